"""How often a greedy completion of the embedded engine depends on what else is in its batch."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from reharness.envs.registry import get_task
from reharness.solver.models.base import Engine, Sampling
from reharness.solver.models.factory import make_engine

FAMILIES, EACH, TOKENS, BATCHES = ("chain_sum", "spell_backward", "word_sorting", "caesar_cipher"), 10, 32, (8, 16, 32)


def batch_dependence() -> dict[str, Any]:
    """Of 40 real questions, how many get another greedy completion (32 tokens) with 8, 16 or 32 in flight than alone,
    in the engine's fast and in its exact setting; and tokens per second."""
    return {name: asyncio.run(_measure(exact)) for name, exact in (("fast", False), ("exact", True))}


async def _measure(exact: bool) -> dict[str, Any]:
    prompts = [q.text for family in FAMILIES for q in get_task(family).questions(EACH, 5)]
    engine = make_engine({"kind": "embedded", "exact": exact})
    try:
        await engine.probe()
        alone, speed = await _complete(engine, prompts, 1)
        found: dict[str, Any] = {"n": len(prompts), "tokens_per_s": {"1": speed}, "differ": {}}
        for batch in BATCHES:
            together, speed = await _complete(engine, prompts, batch)
            found["differ"][str(batch)] = sum(a != b for a, b in zip(alone, together, strict=True))
            found["tokens_per_s"][str(batch)] = speed
        return found
    finally:
        await engine.aclose()


async def _complete(engine: Engine, prompts: list[str], in_flight: int) -> tuple[list[str], float]:
    slots, start = asyncio.Semaphore(in_flight), time.perf_counter()

    async def one(prompt: str) -> tuple[str, int]:
        async with slots:
            c = await engine.generate([{"role": "user", "content": prompt}], Sampling(max_tokens=TOKENS))
            return c.text, c.completion_tokens

    done = await asyncio.gather(*(one(p) for p in prompts))
    return [text for text, _ in done], round(sum(n for _, n in done) / (time.perf_counter() - start), 1)


if __name__ == "__main__":
    print(batch_dependence())
