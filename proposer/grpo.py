"""GRPO of a proposer (2402.03300; 2609.35738, single-step and multistep RL): which edit pays, learnt by trying.

    for every update:
        contexts <- stream            (shuffled rows; multistep: also what followed on earlier updates)
        proposals <- pi_theta(. | context), G for each
        rewards <- judge(contexts, proposals)          the same path as adaptation
        advantage = (reward - mean of its group) / std of its group
        theta <- one clipped policy-gradient step by TRL's GRPOTrainer

A run folder holds config.json, ledger.sqlite (samples and outcomes, written before they are used), checkpoints/,
metrics.jsonl (a line per step), and at the end adapter/ and summary.json. After a kill the same command goes on from
the last whole checkpoint; what was sampled and judged since is read from the ledger, so it ends with the same adapter.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from reharness.proposer.base_model import versions
from reharness.proposer.checkpoints import Checkpoints, save_adapter, write_json
from reharness.proposer.grpo_config import GrpoConfig
from reharness.proposer.grpo_plan import GrpoPlan, make_grpo_plan
from reharness.proposer.grpo_trainer import make_trainer, train
from reharness.proposer.grpo_update import Experience
from reharness.proposer.rollout import DecodingSampler, Rollout, Sampler, VllmSampler
from reharness.proposer.stream import ContextStream
from reharness.proposer.training import Watch, finished, named_errors, quiet
from reharness.solver.evaluate import Solver
from reharness.solver.ledger import Ledger
from reharness.solver.models.factory import make_engine
from reharness.solver.sandbox import Sandbox

__all__ = ["GrpoConfig", "run_grpo"]


def run_grpo(config: GrpoConfig, out: Path, watch: Watch | None = None) -> dict[str, Any]:
    """Trains an adapter in the run folder ``out`` and returns the summary; a finished folder returns it at once.

    Raises ``ConfigError`` for input that cannot be used (before any step is made) and for a loss that is no number,
    ``LedgerError`` when the folder belongs to another configuration or other contexts, is in use, or cannot be written,
    ``RewardError`` for rewards that are none and when nothing is left to learn from, ``InfraLimitError``,
    ``EngineError`` (also when sampler and trainer have not got the same weights) and ``SandboxUnavailable``.
    """
    plan = make_grpo_plan(config)
    with closing(Ledger(out / "ledger.sqlite")) as ledger, named_errors(out):
        ledger.bind("config", json.dumps(plan.settings(), sort_keys=True))
        ledger.bind("inputs", json.dumps(plan.inputs(), sort_keys=True))
        if (summary := finished(out, plan.base)) is not None:
            return summary
        write_json(out / "config.json", {"hash": config.digest(), "config": config.resolved()})
        checkpoints = Checkpoints(out / "checkpoints", config.keep_last, config.keep_every * config.iterations)
        last = checkpoints.latest()
        with asyncio.Runner() as runner, _solver(config, ledger, runner) as solver, quiet(plan.threads):
            trainer = make_trainer(plan, checkpoints)
            trainer.experience = _experience(plan, trainer, solver, runner)
            train(plan, trainer, out, checkpoints, watch, last)
            save_adapter(trainer.model, out / "adapter", config.save_dtype, plan.base.label, _note(plan))
        write_json(out / "summary.json", summary := _summary(plan, out))
        return summary


@contextmanager
def _solver(config: GrpoConfig, ledger: Ledger, runner: asyncio.Runner) -> Iterator[Solver]:
    """The frozen solver in its sandbox, open for the length of the run."""
    stack = AsyncExitStack()

    async def start() -> Solver:
        engine = make_engine(config.solver)
        stack.push_async_callback(engine.aclose)
        await engine.probe()
        sandbox = await Sandbox.start()
        stack.push_async_callback(sandbox.aclose)
        solver = Solver(engine, sandbox, ledger, config.limits, config.budgets, config.concurrency)
        stack.push_async_callback(solver.stop)
        return solver

    try:
        yield runner.run(start())
    finally:
        runner.run(stack.aclose())


def _experience(plan: GrpoPlan, trainer: Any, solver: Solver, runner: asyncio.Runner) -> Experience:
    c, chat = plan.config, plan.base.tokenizer
    sampler: Sampler = (
        VllmSampler(trainer, chat.eos_ids) if c.vllm else DecodingSampler(c, plan.base, trainer.model, plan.precision)
    )

    def count_tokens(text: str) -> int:
        return len(chat.encode(text))

    stream = ContextStream(plan.rows, c.seed, c.multistep, c.window, count_tokens)
    return Experience(c, stream, Rollout(c, chat, solver.ledger, sampler), solver, runner)


def _note(plan: GrpoPlan) -> dict[str, Any]:
    """What the adapter says about itself; no times and no paths, so that equal runs leave equal notes."""
    return {
        "base": {"name": plan.base.label, "weights": plan.base.weights},
        "data": plan.data_hash,
        "from": plan.inputs()["adapter"],
        "settings": plan.settings(),
        "steps": plan.steps,
        "dtype": plan.config.save_dtype,
        "versions": versions(),
    }


def _summary(plan: GrpoPlan, out: Path) -> dict[str, Any]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    updates = [row for row in rows if "groups" in row]
    tenth = max(1, len(updates) // 10)
    return {
        **plan.counts(),
        "weights": plan.base.weights_with(out / "adapter"),
        "base": plan.base.label,
        "reward_first": _mean([row["reward"] for row in updates[:tenth] if "reward" in row]),
        "reward_last": _mean([row["reward"] for row in updates[-tenth:] if "reward" in row]),
        "dead_group_ratio": _mean([row["dead_group_ratio"] for row in updates]),
        "clipped_ratio": _mean([row["completions/clipped_ratio"] for row in updates]),
        "infra": _mean([row["rates/infra"] for row in updates]),
        "tokens": round(math.fsum(row["tokens/prompt"] + row["tokens/completion"] for row in updates)),
        "seconds": round(math.fsum(row["seconds"] for row in rows), 1),
        "seconds_sampling": round(math.fsum(row["seconds/sampling"] for row in updates), 1),
        "seconds_judging": round(math.fsum(row["seconds/judging"] for row in updates), 1),
        "device": plan.device,
        "precision": plan.precision,
        "threads": plan.threads,
    }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
