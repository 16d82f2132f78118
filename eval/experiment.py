"""An adaptation run: tasks x proposers, chains in flight together on one solver, then held-out questions."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field, model_validator

from reharness.envs.config import Config
from reharness.envs.errors import ConfigError
from reharness.envs.registry import get_task
from reharness.envs.splits import question_sets
from reharness.envs.types import QuestionSets, Seal, Task, content_hash
from reharness.eval.adapt import Adaptation, Chain, Round
from reharness.eval.heldout import HeldOut, held_out
from reharness.eval.rundir import RunDir, unified_diff
from reharness.eval.stats import bounded_mean
from reharness.proposer.factory import ProposerConfig, ProposerField, check_proposer, make_proposer
from reharness.proposer.policy import Proposer
from reharness.proposer.report import CountTokens
from reharness.proposer.select import RULES
from reharness.solver.evaluate import Solver, gather_all
from reharness.solver.harness import Harness, seed_harness
from reharness.solver.models.base import Engine
from reharness.solver.models.factory import EmbeddedConfig, EngineField, make_engine
from reharness.solver.outcomes import Scorecard
from reharness.solver.recorded import RecordedEngine
from reharness.solver.sandbox import Sandbox
from reharness.solver.sandbox.types import Limits
from reharness.solver.tools import Budgets


class AdaptConfig(Config):
    """One adaptation run. ``tasks`` are task names with optional parameters (``chain_sum?format=tag&exact=true``);
    every task is adapted by every proposer on the same questions."""

    tasks: tuple[str, ...] = Field(min_length=1)
    proposers: tuple[ProposerField, ...] = Field((ProposerConfig(name="move_search"),), min_length=1)
    solver: EngineField = EmbeddedConfig()
    harness: str = ""
    """Path of the harness to start from; the interface's seed harness when empty."""
    harnesses: dict[str, str] = {}
    """Paths of harnesses to start from, by task as it stands in ``tasks``; the others start from ``harness``."""
    mode: Literal["sequential", "independent"] = "sequential"
    rounds: int = Field(3, ge=1, le=10_000)
    proposals: int = Field(8, ge=1, le=1000)
    rule: Literal["accept_if_better", "take_best_scoring"] = "accept_if_better"
    dev: int = Field(16, ge=1, le=100_000)
    held_out: int = Field(32, ge=1, le=100_000)
    repeats: int = Field(1, ge=1, le=1000)
    seed: int = 0
    window: int = Field(4096, ge=256)
    """Tokens of a proposer's context."""
    concurrency: int = Field(32, ge=1, le=1000)
    rung: int | None = Field(None, ge=1, le=3)
    """Insist on this rung of the sandbox ladder; the strongest that proves itself when not given."""
    limits: Limits = Limits()
    budgets: Budgets = Budgets()

    @model_validator(mode="after")
    def _distinct(self) -> AdaptConfig:
        for what, names in (("tasks", self.tasks), ("proposers", [p.title for p in self.proposers])):
            if twice := [name for name in names if list(names).count(name) > 1]:
                raise ValueError(f"{twice[0]!r} is twice in {what}; tables could not tell them apart (set a label)")
        if stray := [name for name in self.harnesses if name not in self.tasks]:
            raise ValueError(f"harnesses: {stray[0]!r} is none of the tasks {', '.join(self.tasks)}")
        return self

    def start(self, task: str, interface: Literal["search_replace", "code_block"]) -> Harness:
        """The harness that a task, as named in ``tasks``, starts from. Raises ``HarnessError``."""
        path = self.harnesses.get(task, self.harness)
        return Harness.load(path, interface) if path else seed_harness(interface)


@dataclass(frozen=True)
class Arm:
    """One task with one proposer. ``label`` is the task as the configuration names it, parameters included."""

    label: str
    task: Task
    sets: QuestionSets
    seed: Harness
    proposer: Proposer
    title: str
    count_tokens: CountTokens
    """Of the proposer's model, where it is one."""


class Watch(Protocol):
    """What a live view is told; every call is cheap and made on the event loop."""

    def started(self, config: AdaptConfig, solver: Solver, resumed: int) -> None:
        """``resumed`` is the number of outcomes that the run folder already held."""
        ...

    def progress(self, proposer: str, task: str, event: Round | Scorecard) -> None:
        """The seed's scorecard first, then every round as it ends."""
        ...

    def done(self, proposer: str, task: str, held: HeldOut) -> None: ...


async def run_adapt(config: AdaptConfig, path: Path, watch: Watch | None = None) -> dict[str, Any]:
    """Runs (or goes on with) an adaptation run in the folder ``path`` and returns its summary, which is also written
    to ``summary.json``. Everything that can be checked without paying is checked first.

    Raises ``ConfigError`` and ``TaskError`` for bad input, ``EngineError`` when an engine's probe fails,
    ``SandboxUnavailable``, ``LedgerError`` (another configuration, a locked or unusable folder), ``InfraLimitError``.
    """
    start = time.monotonic()
    for p in config.proposers:
        check_proposer(p)
    tasks = [get_task(name) for name in config.tasks]
    if other := [t.name for t in tasks if t.interface != "search_replace"]:
        raise ConfigError(f"task {other[0]!r}: interface 'code_block' comes with multi-hop QA; use 'search_replace'")
    seeds = [config.start(name, t.interface) for name, t in zip(config.tasks, tasks, strict=True)]
    sets = [question_sets(t, "adapt_rg", config.dev, config.dev, config.held_out, config.seed) for t in tasks]
    async with AsyncExitStack() as stack:
        inputs = {
            "tasks": [t.scorer_version for t in tasks],
            "questions": [s.digest() for s in sets],
            "harnesses": [h.fingerprint for h in seeds],
        }
        run = RunDir(path, config, inputs)
        stack.callback(run.close)
        engines = await _engines(config, stack)
        sandbox = await Sandbox.start(rung=config.rung)
        stack.push_async_callback(sandbox.aclose)
        engine = engines[config.solver.digest()]
        arms = []
        for p in config.proposers:
            own = RecordedEngine(engines[p.engine.digest()], run.ledger) if p.name == "model" else None
            proposer = make_proposer(p, own)
            stack.push_async_callback(proposer.aclose)
            if own:
                stack.push_async_callback(own.stop)
            arms += [
                Arm(label, t, s, h, proposer, p.title, (own or engine).count_tokens)
                for label, t, s, h in zip(config.tasks, tasks, sets, seeds, strict=True)
            ]
        solver = Solver(engine, sandbox, run.ledger, config.limits, config.budgets, config.concurrency)
        stack.push_async_callback(solver.stop)
        run.metrics([])  # written anew by every start that gets as far as this
        if watch:
            watch.started(config, solver, run.resumed)
        results = await gather_all(_run_arm(arm, config, solver, run, watch) for arm in arms)
        run.metrics(_metric(a["task"], a["proposer"], r, r["seconds"]) for a in results for r in a["rounds"])
        summary = {
            "config": config.digest(),
            "mode": config.mode,
            "solver": {"engine": solver.engine.identity.engine, "weights": solver.engine.identity.weights},
            "sandbox": sandbox.rung.name,
            "arms": results,
            "paid": _paid(solver, arms),
            "infra": solver.infra,
            "seconds": round(time.monotonic() - start, 1),
        }
        run.write_json("summary.json", summary)
        return summary


async def _engines(config: AdaptConfig, stack: AsyncExitStack) -> dict[str, Engine]:
    """One engine per distinct engine configuration (by its digest), each probed before any work."""
    wanted = [config.solver, *(p.engine for p in config.proposers if p.name == "model")]
    engines: dict[str, Engine] = {}
    for spec in wanted:
        if (key := spec.digest()) not in engines:
            engines[key] = make_engine(spec)
            stack.push_async_callback(engines[key].aclose)
            await engines[key].probe()
    return engines


async def _run_arm(arm: Arm, config: AdaptConfig, solver: Solver, run: RunDir, watch: Watch | None) -> dict[str, Any]:
    def observe(event: Round | Scorecard) -> None:
        if isinstance(event, Round):
            _write_round(arm, event, run)
        else:
            run.harness(arm.seed)
        if watch:
            watch.progress(arm.title, arm.label, event)

    key = content_hash("chain", arm.label, arm.title)
    if (done := run.ledger.get("chain", f"{key} done")) is not None:
        return done
    start = time.monotonic()
    # Once a chain is sealed its held-out questions may have been seen: it is never adapted again, also where an outcome
    # that could not be measured then could be now.
    if (sealed := run.ledger.get("chain", key)) is None:
        adaptation = Adaptation(
            arm.task, arm.sets, arm.seed, arm.proposer, solver, config.rounds, config.proposals, RULES[config.rule](),
            arm.count_tokens, observe, config.repeats, config.window,
        )  # fmt: skip
        chain = await (adaptation.sequential() if config.mode == "sequential" else adaptation.independent())
        record = {**_record(arm, chain, solver.runtime_fingerprint), "questions": arm.sets.digest()}
        sealed = {"seal": asdict(chain.seal), "record": record}
        run.ledger.put("chain", key, sealed)
    seal, record = Seal(**sealed["seal"]), sealed["record"]
    final = Harness(record["final_source"])
    held = await held_out(seal, arm.seed, final, arm.task, arm.sets, solver, config.repeats)
    if watch:
        watch.done(arm.title, arm.label, held)
    record = {**record, "held_out": held.record(), "seconds": round(time.monotonic() - start, 1)}
    if not record["held_out"]["infra"]:
        run.ledger.put("chain", f"{key} done", record)
    return record


def _write_round(arm: Arm, done: Round, run: RunDir) -> None:
    for judged in done.judged:
        if judged.candidate:
            run.harness(judged.candidate)
            run.diff(done.parent, judged.candidate)
    run.metric(_metric(arm.label, arm.title, done.record(), done.seconds))


def _metric(task: str, proposer: str, record: dict[str, Any], seconds: float) -> dict[str, Any]:
    """A line of metrics.jsonl: the round without its proposals."""
    kept = {k: v for k, v in record.items() if k not in ("judged", "diff")}
    return {**kept, "task": task, "proposer": proposer, "seconds": round(seconds, 1)}


def _record(arm: Arm, chain: Chain, phi: Callable[[Harness], str]) -> dict[str, Any]:
    """What a sealed chain is known by, without its held-out result."""
    return {
        "proposer": arm.title,
        "task": arm.label,
        "seed_harness": chain.seed.fingerprint,
        "final_harness": chain.harness.fingerprint,
        "final_source": chain.harness.source,
        "diff": unified_diff(chain.seed, chain.harness),
        "dev": {
            "seed": bounded_mean(list(chain.seed_card.by_question.values())).record(),
            "final": bounded_mean(list(chain.card.by_question.values())).record(),
        },
        "phi": {"seed": phi(chain.seed), "final": phi(chain.harness)},
        "rounds": [
            {**r.record(), "seconds": round(r.seconds, 1), "diff": _accepted_diff(r)} for r in chain.rounds
        ],
    }


def _accepted_diff(done: Round) -> str | None:
    taken = done.accepted
    return unified_diff(done.parent, taken.candidate) if taken and taken.candidate else None


def _paid(solver: Solver, arms: list[Arm]) -> dict[str, Any]:
    """Calls and tokens newly paid for in this start, per role."""
    roles = {"solver": [solver.recorded]}
    roles["proposer"] = [
        e for e in {id(a.proposer): getattr(a.proposer, "engine", None) for a in arms}.values()
        if isinstance(e, RecordedEngine)
    ]  # fmt: skip
    return {
        role: {
            "calls": sum(e.paid_calls for e in engines),
            "prompt_tokens": sum(e.paid_prompt_tokens for e in engines),
            "completion_tokens": sum(e.paid_completion_tokens for e in engines),
        }
        for role, engines in roles.items()
    }
