"""From the starts of a plan to rows: every parent measured, its context made, edits for it tried. Demonstrations and
training contexts are both found so.

For every start the parent runs on Q_fb and Q_score (disjoint), the report of Q_fb makes the context, a teacher
proposes, `judge` edits, runs and scores. All of it is in the run folder's ledger before it is used, so the same command
goes on where it stopped and gives the same rows.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field

from reharness.envs.config import Config
from reharness.envs.errors import ConfigError
from reharness.envs.registry import get_task
from reharness.envs.splits import question_sets
from reharness.envs.types import QuestionSets, Task, content_hash
from reharness.proposer.factory import ProposerConfig, ProposerField, check_proposer, make_proposer
from reharness.proposer.move_search import RandomMove
from reharness.proposer.policy import Context, Proposer, make_context
from reharness.proposer.report import CountTokens, EditRecord
from reharness.proposer.revise import Judged, edit_records, judge, propose, revise
from reharness.proposer.tracks import Start, load_parents, plan
from reharness.solver.evaluate import Solver, evaluate, gather_all
from reharness.solver.ledger import Ledger
from reharness.solver.models.base import Engine
from reharness.solver.models.factory import EmbeddedConfig, EngineField, make_engine
from reharness.solver.outcomes import Scorecard
from reharness.solver.recorded import RecordedEngine
from reharness.solver.sandbox import Sandbox
from reharness.solver.sandbox.types import Limits
from reharness.solver.tools import Budgets


class SearchConfig(Config):
    """``per_family``, ``per_format`` and ``per_defect`` are the starts of tracks S, F and R (see `tracks.plan`).
    ``teacher`` proposes ``proposals`` edits per context, judged ``chunk`` at a time. A candidate rises if its mean on
    Q_score, over ``repeats`` runs of each question, is at least ``margin`` above its parent's."""

    parents: Path = Path("recipes/micro_rg/parents")
    part: Literal["train", "validation"] = "train"
    families: tuple[str, ...] | None = None
    per_family: int = Field(3, ge=0, le=1000)
    per_format: int = Field(8, ge=0, le=1000)
    per_defect: int = Field(11, ge=0, le=1000)
    feedback: int = Field(6, ge=1, le=1000)
    score: int = Field(6, ge=1, le=1000)
    repeats: int = Field(2, ge=1, le=100)
    margin: float = Field(0.15, gt=0, le=1)
    with_history: float = Field(0.25, ge=0, le=1)
    """Share of the contexts whose report also tells of two earlier edits: random moves, run and rejected."""
    teacher: ProposerField = ProposerConfig(name="move_search")
    proposals: int = Field(80, ge=1, le=1000)
    chunk: int = Field(12, ge=1, le=1000)
    solver: EngineField = EmbeddedConfig()
    window: int = Field(600, ge=256)
    """Tokens of a context."""
    seed: int = 0
    concurrency: int = Field(8, ge=1, le=1000)
    in_flight: int = Field(4, ge=1, le=1000)
    """Contexts worked on at once."""
    limits: Limits = Limits()
    budgets: Budgets = Budgets()

    FREE: ClassVar[frozenset[str]] = frozenset({"parents", "concurrency", "in_flight"})
    """Keys that a run folder is not tied to: they do not change what is measured (parents are bound by content)."""


@dataclass(frozen=True)
class Opened:
    """A start whose parent was measured: on Q_fb (``feedback``), and on Q_score in the context's ``parent_card``."""

    start: Start
    task: Task
    sets: QuestionSets
    feedback: Scorecard
    context: Context


@dataclass(frozen=True)
class Searched:
    """What came of one start: a row, or why there is none. ``why``: ``kept``, ``ceiling`` (nothing to gain),
    ``no_gain`` (no edit rose by the margin) or ``infra`` (a run of the parent or of a candidate could not be measured;
    the same command tries it again)."""

    start: Start
    why: str
    row: Any = None


class WatchSearch(Protocol):
    """What a live view is told."""

    def started(self, starts: int, solver: Solver, teacher: Engine | None) -> None: ...

    def searched(self, done: Searched) -> None: ...


class Search:
    """What is done with a start; a subclass says which row is made of it. Called once per start, in any order."""

    def __init__(self, config: SearchConfig, solver: Solver, teacher: Proposer, count_tokens: CountTokens) -> None:
        self.config, self.solver, self.teacher, self.count_tokens = config, solver, teacher, count_tokens

    async def __call__(self, start: Start) -> Searched:
        try:
            return await self.search(start)
        except Unmeasured:
            return Searched(start, "infra")

    async def search(self, start: Start) -> Searched:
        raise NotImplementedError

    async def open(self, start: Start, highest: float) -> Opened | None:
        """The start with its parent measured and its context; None when the parent scores above ``highest``."""
        c, task = self.config, get_task(start.task)
        sets = question_sets(task, "train", c.feedback, c.score, 0, start.seed)

        async def measured(questions: Sequence[Any]) -> Scorecard:
            return await evaluate(start.parent, questions, self.solver, task=task, repeats=c.repeats)

        feedback, scoring = await gather_all([measured(sets.feedback), measured(sets.scoring)])
        if feedback.infra or scoring.infra:
            raise Unmeasured
        if scoring.mean > highest:
            return None

        def context(history: Sequence[EditRecord]) -> Context:
            return make_context(
                task, start.parent, feedback=sets.feedback, feedback_card=feedback, scoring=sets.scoring,
                parent_card=scoring, history=history, repeats=c.repeats, window=c.window,
                count_tokens=self.count_tokens,
            )  # fmt: skip

        history: list[EditRecord] = []
        if random.Random(content_hash("history", start.seed)).random() < c.with_history:
            (earlier,) = await revise([context(())], RandomMove(start.seed), 2, self.solver)
            rejected = [j for j in _measured(earlier) if j.card and j.card.n and not self.rises(j, scoring)]
            history = edit_records(1, scoring, rejected, None)
        return Opened(start, task, sets, feedback, context(history))

    def rises(self, judged: Judged, parent: Scorecard) -> bool:
        return bool(judged.card and judged.card.n and judged.card.mean >= parent.mean + self.config.margin)

    async def risen(self, context: Context) -> AsyncIterator[list[Judged]]:
        """The teacher's edits that rise, a chunk at a time."""
        (proposals,) = await propose([context], self.teacher, self.config.proposals, self.solver)
        for i in range(0, len(proposals), self.config.chunk):
            (judged,) = await judge([context], [proposals[i : i + self.config.chunk]], self.solver)
            yield [j for j in _measured(judged) if self.rises(j, context.parent_card)]


class Unmeasured(Exception):
    """A run failed for a reason that is not the harness's: what was searched for is not known."""


def _measured(judged: Sequence[Judged]) -> Sequence[Judged]:
    if any(j.card and j.card.infra for j in judged):
        raise Unmeasured
    return judged


@dataclass
class AtWork:
    """A search under way: its starts, what it runs on, and what it has paid."""

    starts: list[Start]
    solver: Solver
    teacher: Proposer
    teacher_engine: RecordedEngine | None

    @property
    def count_tokens(self) -> CountTokens:
        return (self.teacher_engine or self.solver.engine).count_tokens

    async def each(self, search: Search, watch: WatchSearch | None) -> list[Searched]:
        """What comes of every start, in their order."""
        if watch:
            watch.started(len(self.starts), self.solver, self.teacher_engine)
        slots = asyncio.Semaphore(search.config.in_flight)

        async def one(start: Start) -> Searched:
            async with slots:
                done = await search(start)
            if watch:
                watch.searched(done)
            return done

        return await gather_all(one(start) for start in self.starts)

    def summary(self, results: Sequence[Searched], rows: Sequence[Any], by: Sequence[str]) -> dict[str, Any]:
        """Counts of a search: what became of the starts per track, the rows by their fields ``by``, and what it cost
        in this start: of the solver, and of a teacher that is a model."""
        missed = [f"{r.start.task} {r.start.defect or r.start.track}: {r.why}" for r in results if not r.row]
        outcome = {t: dict(sorted(Counter(r.why for r in results if r.start.track == t).items())) for t in "SFR"}
        return {
            "starts": outcome,
            "rows": len(rows),
            **{f"by_{key}": dict(sorted(Counter(str(getattr(row, key)) for row in rows).items())) for key in by},
            "not_kept": sorted(missed),
            "paid": {
                "runs": self.solver.measured, **_paid("solver", self.solver.recorded),
                **_paid("teacher", self.teacher_engine),
            },
        }  # fmt: skip


@asynccontextmanager
async def at_work(config: SearchConfig, out: Path) -> AsyncIterator[AtWork]:
    """Solver, sandbox, teacher and the ledger of the run folder ``out``.

    Raises ``ConfigError`` and ``TaskError`` for bad input, ``EngineError``, ``SandboxUnavailable``, ``LedgerError``
    (another configuration or other parents in that folder).
    """
    check_proposer(config.teacher)
    parents = load_parents(config.parents, config.part)
    starts = plan(
        config.part, parents, seed=config.seed, per_family=config.per_family, per_format=config.per_format,
        per_defect=config.per_defect, families=config.families,
    )  # fmt: skip
    if not starts:
        raise ConfigError("the plan has no starts; raise per_family, per_format or per_defect above 0")
    async with AsyncExitStack() as stack:
        ledger = Ledger(out / "ledger.sqlite")
        stack.callback(ledger.close)
        settings = {k: v for k, v in config.resolved().items() if k not in config.FREE}
        ledger.bind("config", json.dumps(settings, sort_keys=True))
        ledger.bind("starts", content_hash([(s.task, s.track, s.parent.fingerprint, s.seed) for s in starts]))
        engine = make_engine(config.solver)
        stack.push_async_callback(engine.aclose)
        await engine.probe()
        teacher_engine: RecordedEngine | None = None
        if config.teacher.name == "model":
            teacher_engine = RecordedEngine(make_engine(config.teacher.engine), ledger)
            stack.push_async_callback(teacher_engine.aclose)
            stack.push_async_callback(teacher_engine.stop)
            await teacher_engine.probe()
        teacher = make_proposer(config.teacher, teacher_engine)
        stack.push_async_callback(teacher.aclose)
        sandbox = await Sandbox.start()
        stack.push_async_callback(sandbox.aclose)
        solver = Solver(engine, sandbox, ledger, config.limits, config.budgets, config.concurrency)
        stack.push_async_callback(solver.stop)
        yield AtWork(starts, solver, teacher, teacher_engine)


def _paid(who: str, engine: RecordedEngine | None) -> dict[str, int]:
    if engine is None:
        return {}
    return {
        f"{who}_calls": engine.paid_calls,
        f"{who}_prompt_tokens": engine.paid_prompt_tokens,
        f"{who}_completion_tokens": engine.paid_completion_tokens,
    }
