"""Demonstrations: a teacher's edits, run for real; those that raise the score are kept (paper 2609.35738, SFT).

For every start of the plan: the parent runs on Q_fb and Q_score (disjoint), the report of Q_fb makes the context, the
teacher proposes, `judge` edits, runs and scores. The best candidate becomes a row if it beats its parent on Q_score by
the margin. All of it is in the run folder's ledger before it is used, so the same command goes on where it stopped and
gives the same rows.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field

from reharness.envs.config import Config
from reharness.envs.errors import ConfigError
from reharness.envs.registry import get_task
from reharness.envs.splits import question_sets
from reharness.envs.types import content_hash
from reharness.proposer.demo_rows import DemoRow, check_writable, write_demos
from reharness.proposer.factory import ProposerConfig, ProposerField, check_proposer, make_proposer
from reharness.proposer.move_search import RandomMove
from reharness.proposer.moves import moves_for
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


class DemosConfig(Config):
    """A search for demonstrations. ``per_family``, ``per_format`` and ``per_defect`` are the starts of tracks S, F and
    R (see `tracks.plan`). ``teacher`` proposes ``proposals`` edits per context, judged ``chunk`` at a time until one
    candidate is perfect. A candidate is kept if its mean on Q_score, over ``repeats`` runs of each question, is at
    least ``margin`` above its parent's."""

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


@dataclass(frozen=True)
class Searched:
    """What came of one start: a row, or why there is none. ``why``: ``kept``, ``ceiling`` (nothing to gain),
    ``no_gain`` (no edit rose by the margin) or ``infra`` (a run of the parent or of a candidate could not be measured;
    the same command tries it again)."""

    start: Start
    why: str
    row: DemoRow | None = None


class WatchDemos(Protocol):
    """What a live view is told."""

    def started(self, starts: int, solver: Solver, teacher: Engine | None) -> None: ...

    def searched(self, done: Searched) -> None: ...


async def run_demos(config: DemosConfig, out: Path, rows_file: Path, watch: WatchDemos | None = None) -> dict[str, Any]:
    """Runs (or goes on with) a search in the folder ``out`` and writes the rows to ``rows_file``. Returns the summary,
    which is also written to ``out/summary.json``.

    Raises ``ConfigError`` and ``TaskError`` for bad input, ``EngineError``, ``SandboxUnavailable``, ``LedgerError``
    (another configuration or other parents in that folder), ``InfraLimitError``.
    """
    check_proposer(config.teacher)
    parents = load_parents(config.parents, config.part)
    starts = plan(
        config.part, parents, seed=config.seed, per_family=config.per_family, per_format=config.per_format,
        per_defect=config.per_defect, families=config.families,
    )  # fmt: skip
    if not starts:
        raise ConfigError("the plan has no starts; raise per_family, per_format or per_defect above 0")
    check_writable(rows_file)
    async with AsyncExitStack() as stack:
        ledger = Ledger(out / "ledger.sqlite")
        stack.callback(ledger.close)
        settings = {k: v for k, v in config.resolved().items() if k not in ("parents", "concurrency", "in_flight")}
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
        search = DemoSearch(config, solver, teacher, (teacher_engine or engine).count_tokens)
        if watch:
            watch.started(len(starts), solver, teacher_engine)
        slots = asyncio.Semaphore(config.in_flight)

        async def one(start: Start) -> Searched:
            async with slots:
                done = await search(start)
            if watch:
                watch.searched(done)
            return done

        results = await gather_all(one(start) for start in starts)
        rows = list({r.row.id: r.row for r in results if r.row}.values())
        write_demos(rows_file, rows)
        summary = summarise(results, rows, solver, teacher_engine)
        (out / "summary.json").write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return summary


@dataclass(frozen=True)
class DemoSearch:
    """The search from one start; called once per start, all of them in any order."""

    config: DemosConfig
    solver: Solver
    teacher: Proposer
    count_tokens: CountTokens

    async def __call__(self, start: Start) -> Searched:
        try:
            return await self._search(start)
        except _Unmeasured:
            return Searched(start, "infra")

    async def _search(self, start: Start) -> Searched:
        c = self.config
        task = get_task(start.task)
        sets = question_sets(task, "train", c.feedback, c.score, 0, start.seed)

        async def measured(questions: Sequence[Any]) -> Scorecard:
            return await evaluate(start.parent, questions, self.solver, task=task, repeats=c.repeats)

        feedback, scoring = await gather_all([measured(sets.feedback), measured(sets.scoring)])
        if feedback.infra or scoring.infra:
            raise _Unmeasured
        if scoring.mean + c.margin > 1:
            return Searched(start, "ceiling")

        def context(history: Sequence[EditRecord]) -> Context:
            return make_context(
                task, start.parent, feedback=sets.feedback, feedback_card=feedback, scoring=sets.scoring,
                parent_card=scoring, history=history, repeats=c.repeats, window=c.window,
                count_tokens=self.count_tokens,
            )  # fmt: skip

        history: list[EditRecord] = []
        if random.Random(content_hash("history", start.seed)).random() < c.with_history:
            (earlier,) = await revise([context(())], RandomMove(start.seed), 2, self.solver)
            rejected = [j for j in _measured(earlier) if j.card and j.card.n and not self._rises(j, scoring)]
            history = edit_records(1, scoring, rejected, None)
        made = context(history)
        best = await self._best(made)
        if best is None or best.candidate is None or best.card is None:
            return Searched(start, "no_gain")
        return Searched(start, "kept", self._row(start, made, best))

    def _rises(self, judged: Judged, parent: Scorecard) -> bool:
        return bool(judged.card and judged.card.n and judged.card.mean >= parent.mean + self.config.margin)

    async def _best(self, context: Context) -> Judged | None:
        """The best candidate that rises; of equals the one with the shortest edit, then the first."""
        (proposals,) = await propose([context], self.teacher, self.config.proposals, self.solver)
        risen: list[Judged] = []
        for i in range(0, len(proposals), self.config.chunk):
            (judged,) = await judge([context], [proposals[i : i + self.config.chunk]], self.solver)
            risen += [j for j in _measured(judged) if self._rises(j, context.parent_card)]
            if any(j.card and j.card.mean == 1 for j in risen):
                break
        if not risen:
            return None
        return min(risen, key=lambda j: (-(j.card.mean if j.card else 0), len(j.proposal.text), j.proposal.index))

    def _row(self, start: Start, context: Context, best: Judged) -> DemoRow:
        assert best.candidate is not None and best.card is not None
        moves = {completion: move.name for move, completion in moves_for(start.parent.source)}
        return DemoRow.make(
            task=start.task, family=start.family, format=start.format, track=start.track, defect=start.defect,
            messages=[dict(m) for m in context.messages], completion=best.proposal.text,
            parent_source=start.parent.source, parent=start.parent.fingerprint, candidate=best.candidate.fingerprint,
            parent_score=context.parent_card.mean, candidate_score=best.card.mean, n=len(context.scoring),
            repeats=self.config.repeats, context=context.key, teacher=self.teacher.name,
            move=moves.get(best.proposal.text),
        )  # fmt: skip


class _Unmeasured(Exception):
    """A run failed for a reason that is not the harness's: what was searched for is not known."""


def _measured(judged: Sequence[Judged]) -> Sequence[Judged]:
    if any(j.card and j.card.infra for j in judged):
        raise _Unmeasured
    return judged


def summarise(
    results: Sequence[Searched], rows: Sequence[DemoRow], solver: Solver, teacher: RecordedEngine | None
) -> dict[str, Any]:
    """Counts of a search: what became of the starts per track, the rows by track, family, format, defect and move, and
    what it cost in this start: of the solver, and of a teacher that is a model."""
    outcome = {t: dict(sorted(Counter(r.why for r in results if r.start.track == t).items())) for t in "SFR"}
    return {
        "starts": outcome,
        "rows": len(rows),
        **{
            f"by_{key}": dict(sorted(Counter(str(getattr(row, key)) for row in rows).items()))
            for key in ("track", "family", "format", "defect", "move")
        },
        "not_kept": sorted(f"{r.start.task} {r.start.defect or r.start.track}: {r.why}" for r in results if not r.row),
        "paid": {"runs": solver.measured, **_paid("solver", solver.recorded), **_paid("teacher", teacher)},
    }


def _paid(who: str, engine: RecordedEngine | None) -> dict[str, int]:
    if engine is None:
        return {}
    return {
        f"{who}_calls": engine.paid_calls,
        f"{who}_prompt_tokens": engine.paid_prompt_tokens,
        f"{who}_completion_tokens": engine.paid_completion_tokens,
    }
