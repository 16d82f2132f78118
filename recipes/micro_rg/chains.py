"""Five-round chains of a trained proposer against as many independent proposals from the first report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reharness.envs.types import content_hash
from reharness.eval.adapt import Adaptation
from reharness.proposer.policy import Proposer
from reharness.proposer.revise import propose
from reharness.proposer.select import AcceptIfBetter
from reharness.recipes.micro_rg.arms import PROPOSALS, WINDOW, Bench
from reharness.recipes.micro_rg.items import Opened, whole
from reharness.solver.evaluate import gather_all
from reharness.solver.harness import Harness
from reharness.solver.outcomes import Scorecard

ROUNDS = 5
FAMILIES = 8


def chosen(items: Sequence[Opened]) -> list[str]:
    """The families of the chains: a seeded draw among those in both tracks where no constant pays."""
    in_track = {t: {o.item.family for o in items if o.item.track == t and not o.item.constant_pays} for t in "FR"}
    return sorted(in_track["F"] & in_track["R"], key=lambda f: content_hash("chain of", f))[:FAMILIES]


@dataclass(frozen=True)
class Kept:
    """What one arm retained on an item: harness and dev scorecard after round 0 (the parent), 1, …"""

    arm: str
    item: Opened
    retained: Sequence[tuple[Harness, Scorecard]]


async def chain_records(bench: Bench, proposer: Proposer, row: str) -> dict[str, list[dict[str, Any]]]:
    """``{track: records}`` of both arms on the chosen families of tracks F and R. Q_eval opens when the last selection
    of the last chain is made."""
    families = chosen(bench.items)
    wanted = [i for i, o in enumerate(bench.items) if o.item.track in "FR" and o.item.family in families]
    runs = await gather_all(run(bench, i, proposer) for i in wanted for run in (sequential, independent))
    return {
        track: await gather_all(_record(bench, kept, row) for kept in runs if kept.item.item.track == track)
        for track in "FR"
    }


async def sequential(bench: Bench, i: int, proposer: Proposer) -> Kept:
    """Each round reads the report of what the last one retained."""
    o = bench.items[i]
    chain = await Adaptation(
        o.task, o.sets, o.start.parent, proposer, bench.solver, ROUNDS, PROPOSALS, AcceptIfBetter(),
        bench.count_tokens, lambda event: None, window=WINDOW,
    ).sequential()  # fmt: skip
    return Kept("sequential", o, [(chain.seed, chain.seed_card), *(r.retained for r in chain.rounds)])


async def independent(bench: Bench, i: int, proposer: Proposer) -> Kept:
    """As many proposals, all reading the first report; after k rounds the best of the first k times ``PROPOSALS``."""
    o, context = bench.items[i], bench.context(i)
    (proposals,) = await propose([context], proposer, PROPOSALS * ROUNDS, bench.solver)
    (judged,) = await bench.judge([context], [proposals])
    kept = [(o.start.parent, context.parent_card)]
    for count in range(PROPOSALS, len(judged) + 1, PROPOSALS):
        index = AcceptIfBetter()(context.parent_card, [j.card for j in judged[:count]]).index
        taken = judged[index] if index is not None else None
        kept.append((taken.candidate, taken.card) if taken and taken.candidate and taken.card else kept[0])
    return Kept("independent", o, kept)


async def _record(bench: Bench, kept: Kept, row: str) -> dict[str, Any]:
    o = kept.item
    return {
        "family": o.item.family, "row": row, "arm": kept.arm, "proposals": PROPOSALS * ROUNDS,
        "rounds": [await bench.held_out(o, harness) for harness, _ in kept.retained],
        "dev": [whole(card, f"{o.start.task}, chain").mean for _, card in kept.retained],
    }  # fmt: skip
