"""Evaluating again from a full ledger, against evaluating for the first time: same harness, questions and sandbox."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from reharness.envs.registry import get_task
from reharness.solver.evaluate import Solver, evaluate
from reharness.solver.harness import seed_harness
from reharness.solver.ledger import Ledger
from reharness.solver.models.scripted import ScriptedEngine
from reharness.solver.sandbox import Sandbox

QUESTIONS, REPLAYS, LATENCY_S = 256, 5, 0.3


def ledger_replay_speedup() -> dict[str, Any]:
    """256 questions, a scripted solver that answers in 300 ms, 32 runs in flight: first against median of 5 replays.
    The ledger is a file, opened anew for every replay; a replay that calls the solver is an error."""
    return asyncio.run(_measure())


async def _measure() -> dict[str, Any]:
    task = get_task("chain_sum")
    questions = task.questions(QUESTIONS, 1)
    engine = ScriptedEngine(lambda messages, sampling: "7", latency_s=LATENCY_S)
    sandbox = await Sandbox.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            seconds = []
            for _ in range(REPLAYS + 1):
                solver = Solver(engine, sandbox, Ledger(Path(folder) / "ledger.sqlite"))
                start = time.perf_counter()
                await evaluate(seed_harness(), questions, solver, task=task)
                seconds.append(time.perf_counter() - start)
                solver.ledger.close()
    finally:
        await sandbox.aclose()
    calls = len(engine.calls) - QUESTIONS
    assert calls == 0, f"{calls} solver calls were paid for again"
    replay = statistics.median(seconds[1:])
    return {"ratio": seconds[0] / replay, "first_s": seconds[0], "replay_s": replay, "calls_in_replay": calls,
            "n": QUESTIONS}  # fmt: skip


if __name__ == "__main__":
    print(ledger_replay_speedup())
