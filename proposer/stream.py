"""Which contexts an update reads: an endless shuffled stream of the rows, and in multistep training also what followed
on earlier updates (paper 2609.35738, single-step and multistep RL)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from reharness.envs.config import Config
from reharness.envs.types import content_hash
from reharness.proposer.contexts import ContextRow, evenly
from reharness.proposer.policy import Context, make_context
from reharness.proposer.report import CountTokens, EditRecord
from reharness.proposer.revise import Judged, edit_records
from reharness.proposer.select import AcceptIfBetter, SelectionRule, TakeBestScoring
from reharness.solver.evaluate import Solver, evaluate, gather_all

_RULES: dict[str, SelectionRule] = {"search_replace": AcceptIfBetter(), "code_block": TakeBestScoring()}


class Multistep(Config):
    """The harness and report that an update's edits produced become a later context, as they would in adaptation: the
    selection rule takes the best candidate that beats its parent, else the parent stays and the report tells of the
    edits that failed. Every edit is still paid its own reward only."""

    share: float = Field(0.5, gt=0, le=1)
    """Of an update's contexts, as far as the pool has so many."""
    depth: int = Field(3, ge=1)
    """Rounds of proposals that may come before a context."""
    highest: float = Field(0.85, ge=0, le=1)
    """A parent that scores more has nothing to gain and does not enter the pool."""
    size: int = Field(64, ge=1)
    """Of the pool; the oldest leave it."""
    reset_every: int = Field(0, ge=0)
    """Updates after which the pool is emptied, and every chain starts anew; 0: never."""


@dataclass(frozen=True)
class Drawn:
    """One context of an update and the row that it was opened from."""

    row: ContextRow
    context: Context


class ContextStream:
    """Draws contexts; its ``state`` is plain JSON, and a stream that was given it back goes on exactly.

    Every epoch holds every row once, in an order by ``seed``: tracks in proportion, so that an update has of each its
    share; within a track families, formats and defects take turns.
    What is drawn from the pool is removed from it.
    """

    def __init__(
        self, rows: Sequence[ContextRow], seed: int, multistep: Multistep | None, window: int, count_tokens: CountTokens
    ) -> None:
        self.rows, self.seed, self.multistep = tuple(rows), seed, multistep
        self.window, self.count_tokens = window, count_tokens
        self.cursor = 0
        self.pool: list[ContextRow] = []
        self._epoch: tuple[int, list[ContextRow]] = -1, []

    def draw(self, update: int, n: int) -> list[Drawn]:
        """``n`` contexts with different keys; fewer only when there are not so many. Raises what `ContextRow.open`
        raises."""
        if self.multistep and self.multistep.reset_every and update and update % self.multistep.reset_every == 0:
            self.pool = []
        rng = random.Random(content_hash("draw", self.seed, update, self.cursor))
        wanted = round(n * self.multistep.share) if self.multistep else 0
        chosen = rng.sample(self.pool, min(wanted, len(self.pool)))
        self.pool = [row for row in self.pool if row not in chosen]
        found = {row.context: row for row in chosen}
        for _ in range(2 * len(self.rows)):
            if len(found) >= n:
                break
            row = self._at(self.cursor)
            self.cursor += 1
            found.setdefault(row.context, row)
        return [Drawn(row, row.open()) for row in found.values()]

    def _at(self, position: int) -> ContextRow:
        epoch, place = divmod(position, len(self.rows))
        if self._epoch[0] != epoch:
            order = list(self.rows)
            random.Random(content_hash("epoch", self.seed, epoch)).shuffle(order)
            self._epoch = epoch, in_proportion(order)
        return self._epoch[1][place]

    async def grow(self, drawn: Sequence[Drawn], judged: Sequence[Sequence[Judged]], solver: Solver) -> None:
        """Puts what followed on an update into the pool, in its order. A context whose new report could not be measured
        is left out."""
        if self.multistep is None:
            return
        rows = await gather_all(self._next(d, own, solver) for d, own in zip(drawn, judged, strict=True))
        held = {row.context for row in self.pool}
        self.pool += [row for row in rows if row is not None and row.context not in held]
        self.pool = self.pool[-self.multistep.size :]

    async def _next(self, drawn: Drawn, judged: Sequence[Judged], solver: Solver) -> ContextRow | None:
        assert self.multistep is not None
        row, context = drawn.row, drawn.context
        decision = _RULES[context.task.interface](context.parent_card, [j.card for j in judged])
        taken = judged[decision.index] if decision.index is not None else None
        parent, card = context.parent, context.parent_card
        if taken and taken.candidate and taken.card:
            parent, card = taken.candidate, taken.card
        if row.depth >= self.multistep.depth or card.infra or card.mean > self.multistep.highest:
            return None
        sets = row.sets(context.task)
        feedback = await evaluate(parent, sets.feedback, solver, task=context.task, repeats=row.repeats)
        if feedback.infra:
            return None
        new = edit_records(row.depth + 1, context.parent_card, judged, decision.index)
        history: tuple[EditRecord, ...] = (*context.history, *new)
        made = make_context(
            context.task, parent, feedback=sets.feedback, feedback_card=feedback, scoring=sets.scoring,
            parent_card=card, history=history, repeats=row.repeats, window=self.window, count_tokens=self.count_tokens,
        )  # fmt: skip
        return row.next(made)

    def state(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "pool": [row.model_dump(mode="json") for row in self.pool]}

    def restore(self, state: dict[str, Any]) -> None:
        self.cursor = state["cursor"]
        self.pool = [ContextRow.model_validate(row) for row in state["pool"]]


def in_proportion(rows: Sequence[ContextRow]) -> list[ContextRow]:
    """All rows, those of every track spread over the whole length."""
    placed = []
    for track in sorted({row.track for row in rows}):
        own = [row for row in rows if row.track == track]
        placed += [((k + 0.5) / len(own), track, row) for k, row in enumerate(evenly(own, len(own)))]
    return [row for _, _, row in sorted(placed, key=lambda entry: entry[:2])]
