"""Five-round chains of a trained proposer against as many independent proposals from the first report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reharness.envs.types import content_hash
from reharness.eval.adapt import Adaptation, Chain
from reharness.proposer.policy import Proposer
from reharness.proposer.revise import judge, propose
from reharness.proposer.select import AcceptIfBetter
from reharness.recipes.micro_rg.arms import PROPOSALS, WINDOW, Bench
from reharness.recipes.micro_rg.items import Opened
from reharness.solver.evaluate import gather_all

ROUNDS = 5
FAMILIES = 8


def chosen(items: Sequence[Opened]) -> list[str]:
    """The families of the chains: a seeded draw among those in both tracks where no constant pays."""
    in_track = {t: {o.item.family for o in items if o.item.track == t and not o.item.constant_pays} for t in "FR"}
    return sorted(in_track["F"] & in_track["R"], key=lambda f: content_hash("chain of", f))[:FAMILIES]


async def chain_records(bench: Bench, proposer: Proposer, row: str) -> dict[str, list[dict[str, Any]]]:
    """``{track: records}`` of both arms on the chosen families of tracks F and R."""
    families = chosen(bench.items)
    wanted = [i for i, o in enumerate(bench.items) if o.item.track in "FR" and o.item.family in families]
    records = await gather_all(_both(bench, i, proposer, row) for i in wanted)
    return {
        track: [r for i, pair in zip(wanted, records, strict=True) if bench.items[i].item.track == track for r in pair]
        for track in "FR"
    }


async def _both(bench: Bench, i: int, proposer: Proposer, row: str) -> list[dict[str, Any]]:
    o = bench.items[i]
    chain = await Adaptation(
        o.task, o.sets, o.start.parent, proposer, bench.solver, ROUNDS, PROPOSALS, AcceptIfBetter(),
        bench.count_tokens, lambda event: None, window=WINDOW,
    ).sequential()  # fmt: skip
    sequential = await _retained(bench, o, chain)
    context = bench.context(i)
    (proposals,) = await propose([context], proposer, PROPOSALS * ROUNDS, bench.solver)
    (judged,) = await judge([context], [proposals], bench.solver)
    kept = [(o.start.parent, context.parent_card)]
    for count in range(PROPOSALS, len(judged) + 1, PROPOSALS):
        index = AcceptIfBetter()(context.parent_card, [j.card for j in judged[:count]]).index
        taken = judged[index] if index is not None else None
        kept.append((taken.candidate, taken.card) if taken and taken.candidate and taken.card else kept[0])
    independent = [await bench.held_out(o, harness) for harness, _ in kept]
    common = {"family": o.item.family, "row": row, "proposals": PROPOSALS * ROUNDS}
    return [
        {**common, "arm": "sequential", **sequential},
        {**common, "arm": "independent", "rounds": independent, "dev": [card.mean for _, card in kept]},
    ]


async def _retained(bench: Bench, o: Opened, chain: Chain) -> dict[str, Any]:
    kept = [(chain.seed, chain.seed_card), *(r.retained for r in chain.rounds)]
    return {"rounds": [await bench.held_out(o, h) for h, _ in kept], "dev": [card.mean for _, card in kept]}
