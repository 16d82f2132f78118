"""What `evaluate` adds to the bare engine: the same prompts, once straight to the engine, once as sandboxed runs."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from reharness.envs.registry import get_task
from reharness.envs.types import Question, Task
from reharness.solver.evaluate import Solver, evaluate
from reharness.solver.harness import Harness
from reharness.solver.models.base import Engine, Sampling
from reharness.solver.models.factory import make_engine
from reharness.solver.models.scripted import ScriptedEngine
from reharness.solver.sandbox import Sandbox

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from endpoint import EndpointServer

HARNESS = "def run(question, tools):\n    return tools.llm(question, max_tokens={tokens}, temperature=0.0)\n"


def evaluate_vs_engine() -> dict[str, Any]:
    """Time of `evaluate` over time of the bare engine, pairs in turn (which goes first alternates), median of the
    pairwise ratios: the embedded engine (32 prompts, batch 32) and an endpoint that answers in 500 ms (320 prompts,
    32 in flight, one call per run)."""
    return {"embedded": asyncio.run(_embedded()), "endpoint": asyncio.run(_endpoint())}


async def _embedded(pairs: int = 4, prompts: int = 32, tokens: int = 128) -> dict[str, Any]:
    engine = make_engine("embedded")
    try:
        await engine.probe()
        return await _compare(engine, pairs, prompts, tokens, in_flight=prompts)
    finally:
        await engine.aclose()


async def _endpoint(pairs: int = 4, prompts: int = 320) -> dict[str, Any]:
    slow = ScriptedEngine(lambda messages, sampling: "7", latency_s=0.5)
    with EndpointServer(slow, "bench") as server:
        engine = make_engine({"kind": "endpoint", "url": server.url, "model": "bench", "key_env": "NO_KEY"})
        try:
            await engine.probe()
            return await _compare(engine, pairs, prompts, 16, in_flight=32)
        finally:
            await engine.aclose()


async def _compare(engine: Engine, pairs: int, prompts: int, tokens: int, in_flight: int) -> dict[str, Any]:
    task = get_task("word_sorting")
    questions = list(task.questions(prompts * (pairs + 1), 1))
    sandbox = await Sandbox.start()
    ratios, bare, whole = [], [], []
    try:
        for pair in range(pairs + 1):
            # Each pair has prompts of its own: neither side finds them in the other's ledger or prefix cache half-way.
            batch = questions[pair * prompts : (pair + 1) * prompts]
            solver = Solver(engine, sandbox, concurrency=in_flight)
            sides: dict[str, Callable[[], Awaitable[None]]] = {
                "bare": lambda batch=batch: _bare(engine, batch, tokens, in_flight),
                "whole": lambda batch=batch, solver=solver: _whole(solver, task, batch, tokens),
            }
            order = ["bare", "whole"] if pair % 2 else ["whole", "bare"]
            seconds = {}
            for side in order:
                start = time.perf_counter()
                await sides[side]()
                seconds[side] = time.perf_counter() - start
            if pair:  # the first pair warms both sides up
                bare.append(seconds["bare"])
                whole.append(seconds["whole"])
                ratios.append(seconds["whole"] / seconds["bare"])
    finally:
        await sandbox.aclose()
    return {
        "ratio": statistics.median(ratios), "ratios": ratios, "engine_s": statistics.median(bare),
        "evaluate_s": statistics.median(whole), "prompts": prompts, "in_flight": in_flight, "pairs": pairs,
    }  # fmt: skip


async def _bare(engine: Engine, batch: list[Question], tokens: int, in_flight: int) -> None:
    slots = asyncio.Semaphore(in_flight)

    async def one(question: Question) -> None:
        async with slots:
            await engine.generate([{"role": "user", "content": question.text}], Sampling(max_tokens=tokens))

    await asyncio.gather(*(one(q) for q in batch))


async def _whole(solver: Solver, task: Task, batch: list[Question], tokens: int) -> None:
    await evaluate(Harness(HARNESS.format(tokens=tokens)), batch, solver, task=task)


if __name__ == "__main__":
    print(evaluate_vs_engine())
