"""The arms of the experiment: what each row of the tables proposes for an item, and how its proposals are recorded.

Every arm reads the same first report of an item (8 dev questions), is judged on those dev questions and measured on
Q_eval. Nothing is selected after Q_eval was seen: an arm's proposals are all made, judged and selected from before its
first held-out run. A run that could not be measured stops the arm; the same command goes on.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from reharness.envs.types import Seal, content_hash
from reharness.proposer.moves import MOVES
from reharness.proposer.policy import Context, Proposal, Proposer, make_context
from reharness.proposer.prompts import messages
from reharness.proposer.report import CountTokens, build_report
from reharness.proposer.revise import Judged, judge, propose
from reharness.proposer.select import AcceptIfBetter
from reharness.recipes.micro_rg.items import Opened, whole
from reharness.recipes.micro_rg.tool_loop import SOURCE as TOOL_LOOP
from reharness.solver.evaluate import Solver, evaluate, gather_all
from reharness.solver.harness import Harness
from reharness.solver.outcomes import Scorecard

PROPOSALS = 8
WINDOW = 600


class Bench:
    """The items of the experiment with their parents' dev scorecards and contexts, on one solver."""

    def __init__(self, items: Sequence[Opened], solver: Solver, count_tokens: CountTokens) -> None:
        self.items, self.solver, self.count_tokens = list(items), solver, count_tokens
        self._cards: dict[int, Scorecard] = {}

    async def prepare(self) -> None:
        """Runs every parent on its dev questions."""
        cards = await gather_all(self.dev(o, o.start.parent) for o in self.items)
        self._cards = dict(enumerate(cards))

    async def dev(self, o: Opened, harness: Harness) -> Scorecard:
        card = await evaluate(harness, o.sets.scoring, self.solver, task=o.task)
        return whole(card, f"{o.item.track} {o.item.family}, dev")

    def context(self, i: int) -> Context:
        """What a proposer reads of item ``i``."""
        o, card = self.items[i], self._cards[i]
        return make_context(
            o.task, o.start.parent, feedback=o.sets.feedback, feedback_card=card, scoring=o.sets.scoring,
            parent_card=card, window=WINDOW, count_tokens=self.count_tokens,
        )  # fmt: skip

    def shuffled(self, i: int) -> Context:
        """The same item with the report of another one: of the same track, with another format or defect."""
        o, own = self.items[i], self.context(i)
        others = [
            k for k, p in enumerate(self.items)
            if p.item.track == o.item.track and p.item.family != o.item.family
            and (o.item.track == "S" or (p.item.format, p.item.defect) != (o.item.format, o.item.defect))
        ]  # fmt: skip
        k = min(others, key=lambda k: content_hash("report of", o.item.family, self.items[k].item.family))
        other = self.items[k]
        report = build_report(other.task, other.sets.feedback, self._cards[k])
        text = messages(o.task.description, o.start.parent.source, report, WINDOW, self.count_tokens)
        return replace(own, messages=tuple(text))

    async def proposer_rows(self, proposer: Proposer, *, shuffled: bool = False) -> list[dict[str, Any]]:
        """One record per item: ``PROPOSALS`` proposals, judged on dev, then held out."""
        contexts = [self.shuffled(i) if shuffled else self.context(i) for i in range(len(self.items))]
        proposals = await propose(contexts, proposer, PROPOSALS, self.solver)
        judged = await self.judge(contexts, proposals)
        return await gather_all(self.row(i, own) for i, own in enumerate(judged))

    async def judge(self, contexts: Sequence[Context], proposals: Sequence[Sequence[Proposal]]) -> list[list[Judged]]:
        judged = await judge(contexts, proposals, self.solver)
        for card in (j.card for group in judged for j in group if j.card):
            whole(card, f"{card.task}, a candidate on dev")
        return judged

    async def row(self, i: int, judged: Sequence[Judged]) -> dict[str, Any]:
        """The record of an item's proposals (see `reharness.eval.results`)."""
        o, parent = self.items[i], self._cards[i]
        held = {j.candidate.fingerprint: j.candidate for j in judged if j.candidate}
        scores = dict(zip(held, await gather_all(self.held_out(o, h) for h in held.values()), strict=True))
        stages = [j.stage for j in judged]
        picked = AcceptIfBetter()(parent, [j.card for j in judged]).index
        chosen = o.start.parent if picked is None else judged[picked].candidate
        assert chosen is not None
        return {
            "scores": [scores[j.candidate.fingerprint] if j.candidate else None for j in judged],
            "dev": [j.card.mean if j.card else None for j in judged],
            "parsed": sum(s >= 1 for s in stages),
            "applied": sum(s >= 2 for s in stages),
            "ran": sum(s >= 3 for s in stages),
            "valid": sum(j.valid for j in judged),
            "distinct": len({ast.dump(ast.parse(h.source)) for h in held.values()}),
            "n": len(judged),
            "errors": dict(sorted(Counter(j.status for j in judged if j.status != "ran").items())),
            "picked": await self.held_out(o, chosen),
            "tokens": sum(j.proposal.completion_tokens for j in judged),
        }

    async def fixed_rows(self, harness: Callable[[Opened], Harness | None]) -> list[dict[str, Any]]:
        """One record per item of a single harness; None (a move that does not fit) is a failed edit."""

        async def one(o: Opened) -> dict[str, Any]:
            made = harness(o)
            return {"scores": [None if made is None else await self.held_out(o, made)]}

        return await gather_all(one(o) for o in self.items)

    async def held_out(self, o: Opened, harness: Harness) -> float:
        """Mean exact score on Q_eval. Raises ``InfraLimitError`` when an outcome could not be measured."""
        seal = Seal(content_hash("micro_rg", o.item.track, o.item.family), harness.fingerprint)
        card = await evaluate(harness, o.sets.held_out(seal), self.solver, task=o.task)
        return whole(card, f"{o.item.track} {o.item.family}, held out").mean


def constant(o: Opened) -> Harness:
    """Answers every question with the commonest gold of the dev questions, in the required form."""
    golds = Counter(o.task.reveal(q) or "" for q in o.sets.scoring)
    return Harness(f"def run(question, tools):\n    return {golds.most_common(1)[0][0]!r}\n")


def tool_loop(_: Opened) -> Harness:
    return Harness.from_source(TOOL_LOOP)


def moved(name: str) -> Callable[[Opened], Harness | None]:
    """The parent after one move of the library."""

    def harness(o: Opened) -> Harness | None:
        new = MOVES[name].rewrite(o.start.parent.source)
        return Harness(new) if new else None

    return harness


async def rank_moves(bench: Bench, dev: int = 4) -> dict[str, dict[str, float]]:
    """For every track the mean gain of every move over the *train* items, on their first ``dev`` dev questions; a move
    that does not fit gains nothing."""

    async def gain(o: Opened, name: str) -> float:
        harness = moved(name)(o)
        if harness is None:
            return 0.0
        cards = [
            whole(await evaluate(h, o.sets.scoring[:dev], bench.solver, task=o.task), f"{o.start.task}, {name}")
            for h in (o.start.parent, harness)
        ]
        return cards[1].mean - cards[0].mean

    ranking: dict[str, dict[str, float]] = {}
    for track in ("S", "F", "R"):
        own = [o for o in bench.items if o.item.track == track]
        pairs = [(o, name) for name in MOVES for o in own]
        gains = await gather_all(gain(o, name) for o, name in pairs)
        mean = {
            name: sum(g for (_, n), g in zip(pairs, gains, strict=True) if n == name) / len(own) for name in MOVES
        }
        ranking[track] = dict(sorted(mean.items(), key=lambda kv: -kv[1]))
    return ranking
