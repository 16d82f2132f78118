"""Training contexts: what GRPO's groups read, each with a parent that was measured and has something to gain.

A context is kept if its parent scores at most ``highest`` (no ceiling) and, unless ``proposals`` is 0, the teacher has
an edit for it that rises (not hopeless). A row holds all that opens it again without running the parent.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from reharness.envs.config import Config
from reharness.envs.errors import ConfigError
from reharness.envs.registry import get_task
from reharness.envs.splits import question_sets
from reharness.envs.types import QuestionSets, Task
from reharness.proposer.policy import Context
from reharness.proposer.report import EditRecord
from reharness.proposer.rows import Count, Row, RowMessage, Score, check_writable, load_rows, write_rows
from reharness.proposer.search import Opened, Search, SearchConfig, Searched, WatchSearch, at_work
from reharness.proposer.tracks import Start
from reharness.solver.harness import Harness
from reharness.solver.outcomes import Infra, Outcome, Scorecard, from_record, to_record

CURE = "make them again with `reharness contexts`"


class ContextsConfig(SearchConfig):
    """A search for training contexts. ``proposals`` of the teacher probe each; the first that rises is enough."""

    per_family: int = Field(2, ge=0, le=1000)
    per_format: int = Field(6, ge=0, le=1000)
    per_defect: int = Field(8, ge=0, le=1000)
    seed: int = 1
    """Another than that of the demonstrations: other questions."""
    FREE: ClassVar[frozenset[str]] = SearchConfig.FREE | {"seed_share"}
    proposals: int = Field(80, ge=0, le=1000)
    highest: float = Field(0.85, ge=0, le=1)
    """Parents that score above it are left out: there is nothing to gain."""
    seed_share: float = Field(0.2, ge=0, le=1)
    """Share of the contexts whose parent is the seed harness; the others' parents are stronger or were, before a defect
    was planted. What there is too much of is left out evenly over families, formats and defects."""


class EditRow(Config):
    """An earlier edit that the context's report tells of (`report.EditRecord`)."""

    round: int
    description: str
    effect: str


class ContextRow(Row):
    """One training context. ``questions`` is the digest of its question sets, ``runs`` the parent's outcomes on Q_score
    (question-major, ``repeats`` each) without their traces, ``context`` the key of the context that ``open`` gives.
    ``depth`` counts the rounds of proposals that came before it; 0 outside multistep training."""

    KIND: ClassVar[str] = "context"
    VERSION: ClassVar[int] = 1
    CURE: ClassVar[str] = CURE

    task: str
    family: str
    format: str
    track: Literal["S", "F", "R"]
    defect: str | None
    seed: int
    feedback: Count
    score: Count
    repeats: Count
    parent_source: str
    parent_score: Score
    messages: tuple[RowMessage, ...] = Field(min_length=1)
    history: tuple[EditRow, ...] = ()
    depth: int = Field(0, ge=0)
    questions: str
    runs: tuple[dict[str, Any], ...] = Field(min_length=1)
    context: str

    def sets(self, task: Task) -> QuestionSets:
        return question_sets(task, "train", self.feedback, self.score, 0, self.seed)

    def open(self, where: str = "context") -> Context:
        """The context. Raises ``ConfigError`` when the task's questions are others than those it was made on, or the
        row is not the context that its key names."""
        task = get_task(self.task)
        sets, parent = self.sets(task), Harness(self.parent_source)
        if sets.digest() != self.questions:
            raise ConfigError(f"{where} {self.id[:12]}: {self.task} has other questions now; {CURE}")
        pairs = [(q.key, r) for q in sets.scoring for r in range(self.repeats)]
        if len(pairs) != len(self.runs):
            raise ConfigError(f"{where} {self.id[:12]}: {len(self.runs)} runs of {len(pairs)}; {CURE}")
        card = Scorecard(
            parent.fingerprint, task.name, tuple(q for q, _ in pairs), tuple(r for _, r in pairs),
            tuple(from_record(run) for run in self.runs),
        )  # fmt: skip
        text = tuple({"role": m.role, "content": m.content} for m in self.messages)
        history = tuple(EditRecord(e.round, e.description, e.effect) for e in self.history)
        opened = Context(task, parent, text, sets.scoring, card, history, self.repeats)
        if opened.key != self.context:
            raise ConfigError(f"{where} {self.id[:12]}: is not the context {self.context[:12]}; {CURE}")
        return opened

    @classmethod
    def of(cls, start: Start, opened: Opened, config: SearchConfig) -> ContextRow:
        return cls.make(
            task=start.task, family=start.family, format=start.format, track=start.track, defect=start.defect,
            seed=start.seed, feedback=config.feedback, score=config.score, repeats=config.repeats,
            questions=opened.sets.digest(), **cls._told(opened.context),
        )  # fmt: skip

    def next(self, context: Context) -> ContextRow:
        """The row of the context that followed on this one: the same questions, one round deeper."""
        kept = self.model_dump(exclude={"id", "version", "depth"})
        return ContextRow.make(**{**kept, **self._told(context), "depth": self.depth + 1})

    @staticmethod
    def _told(context: Context) -> dict[str, Any]:
        return {
            "parent_source": context.parent.source, "parent_score": context.parent_card.mean,
            "messages": [dict(m) for m in context.messages], "history": [asdict(e) for e in context.history],
            "runs": [slim(o) for o in context.parent_card.outcomes], "context": context.key,
        }  # fmt: skip


def slim(outcome: Outcome) -> dict[str, Any]:
    """An outcome's record without its trace: what `judge` needs of a parent's runs."""
    return to_record(outcome if isinstance(outcome, Infra) else replace(outcome, trace=()))


class ContextSearch(Search):
    """Whether a start is worth training on."""

    async def search(self, start: Start) -> Searched:
        assert isinstance(self.config, ContextsConfig)
        opened = await self.open(start, self.config.highest)
        if opened is None:
            return Searched(start, "ceiling")
        row = ContextRow.of(start, opened, self.config)
        if not self.config.proposals:
            return Searched(start, "kept", row)
        async for risen in self.risen(opened.context):
            if risen:
                return Searched(start, "kept", row)
        return Searched(start, "no_gain")


async def run_contexts(
    config: ContextsConfig, out: Path, rows_file: Path, watch: WatchSearch | None = None
) -> dict[str, Any]:
    """Runs (or goes on with) a search for training contexts in the folder ``out`` and writes the rows to ``rows_file``.
    Returns the summary, which is also written to ``out/summary.json``. Raises what `search.at_work` raises, and
    ``InfraLimitError``."""
    check_writable(rows_file)
    async with at_work(config, out) as work:
        results = await work.each(ContextSearch(config, work.solver, work.teacher, work.count_tokens), watch)
        found = list({r.row.context: r.row for r in results if r.row}.values())
        rows = shared_out(found, config.seed_share)
        write_rows(rows_file, rows)
        summary = work.summary(results, rows, ("track", "family", "format", "defect"))
        summary["left_out"] = len(found) - len(rows)
        (out / "summary.json").write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return summary


def shared_out(rows: Sequence[ContextRow], seed_share: float) -> list[ContextRow]:
    """As many of the rows as keep the share of seed parents at ``seed_share``, evenly over families, formats and
    defects; all of them when only one kind is there."""
    seeds = [row for row in rows if row.track == "S"]
    others = [row for row in rows if row.track != "S"]
    if not seeds or not others or not 0 < seed_share < 1:
        return others if seed_share == 0 else seeds if seed_share == 1 else list(rows)
    total = min(len(seeds) / seed_share, len(others) / (1 - seed_share))
    kept = {row.id for part, n in ((seeds, seed_share * total), (others, total - seed_share * total))
            for row in evenly(part, round(n))}  # fmt: skip
    return [row for row in rows if row.id in kept]


def evenly(rows: Iterable[ContextRow], n: int) -> list[ContextRow]:
    """``n`` of the rows: one of every family and track before any gives another, and of a family's rows the one whose
    defect or format fewest of those before it have; of equals the first."""
    left: Mapping[tuple[str, str], list[ContextRow]] = defaultdict(list)
    for row in rows:
        left[row.track, row.family].append(row)
    found: list[ContextRow] = []
    used: Counter[tuple[str, str]] = Counter()
    while len(found) < n and any(left.values()):
        for own in [own for own in left.values() if own][: n - len(found)]:
            found.append(min(own, key=lambda row: used[row.track, row.defect or row.format]))
            own.remove(found[-1])
            used[found[-1].track, found[-1].defect or found[-1].format] += 1
    return found


def load_contexts(path: Path) -> list[ContextRow]:
    """The rows of a JSONL file in order. Raises ``ConfigError`` naming file and line for a row that is not JSON, has a
    missing or unknown key or another contract version, or whose id is not the hash of the rest; and for a file without
    rows, or with a context twice."""
    rows = load_rows(path, ContextRow.parse, CURE)
    if not rows:
        raise ConfigError(f"{path}: holds no contexts; {CURE}")
    seen: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        if (before := seen.setdefault(row.context, number)) != number:
            raise ConfigError(f"{path}, line {number}: is the context of line {before} again; remove one of them")
    return rows
