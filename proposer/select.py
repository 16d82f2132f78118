"""Selection rules: which candidate, if any, becomes the next parent. Pure.

Parent and candidates were measured on the same questions, repeats and seeds; where infra left holes, only what all
have is compared, and a candidate with many holes is not eligible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reharness.proposer.reward import MAX_INFRA_SHARE, measurable
from reharness.solver.outcomes import Infra, Scorecard, worth


@dataclass(frozen=True)
class Decision:
    """``index`` of the candidate that is taken, or None to keep the parent; ``gain`` is the best eligible candidate's
    mean paired difference to the parent (NaN when none was eligible)."""

    index: int | None
    gain: float
    reason: str


class SelectionRule(Protocol):
    def __call__(self, parent: Scorecard, candidates: Sequence[Scorecard | None]) -> Decision:
        """``candidates[i]`` is None where proposal i gave nothing to run."""
        ...


@dataclass(frozen=True)
class AcceptIfBetter:
    """Reasoning Gym: take the best candidate only if its score is strictly above the parent's (by more than
    ``margin``, which the paper has at 0: with noisy scores that accepts inert edits, so a margin or repeats help)."""

    margin: float = 0.0

    def __call__(self, parent: Scorecard, candidates: Sequence[Scorecard | None]) -> Decision:
        best, gain = _best(parent, candidates)
        if best is None:
            return Decision(None, gain, "no candidate could be measured")
        if gain > self.margin + TIE:
            return Decision(best, gain, f"gains {gain:+.3f} on Q_score")
        return Decision(None, gain, f"best candidate gains {gain:+.3f}, not above {self.margin:g}")


@dataclass(frozen=True)
class TakeBestScoring:
    """Multi-hop QA: move to the best-scoring candidate even if it is below the parent."""

    def __call__(self, parent: Scorecard, candidates: Sequence[Scorecard | None]) -> Decision:
        best, gain = _best(parent, candidates)
        if best is None:
            return Decision(None, gain, "no candidate could be measured")
        return Decision(best, gain, f"best of the candidates, {gain:+.3f} to the parent")


RULES = {"accept_if_better": AcceptIfBetter, "take_best_scoring": TakeBestScoring}


TIE = 1e-9
"""Means closer than this are equal: a sum of floats depends on its order."""


def _best(parent: Scorecard, candidates: Sequence[Scorecard | None]) -> tuple[int | None, float]:
    """The eligible candidate with the largest mean gain, the first of equals. All are compared on the same (question,
    repeat) pairs: those that the parent and every eligible candidate measured."""
    eligible = [(i, card) for i, card in enumerate(candidates) if card is not None and measurable(card)]
    common = _common([parent, *(card for _, card in eligible)])
    while eligible and len(common) < (1 - MAX_INFRA_SHARE) * len(parent.outcomes):
        # Each has few holes, together they have many: without the one that has most.
        eligible.remove(max(eligible, key=lambda pair: (pair[1].infra, pair[0])))
        common = _common([parent, *(card for _, card in eligible)])
    best, gain = None, math.nan
    for i, card in eligible:
        value = _gain(parent, card, common)
        if not math.isnan(value) and (best is None or value > gain + TIE):
            best, gain = i, value
    return best, gain


def _common(cards: Sequence[Scorecard]) -> list[int]:
    """The positions that every card measured. Raises ``ValueError`` when they are of different questions or repeats."""
    if any((c.questions, c.repeats) != (cards[0].questions, cards[0].repeats) for c in cards):
        raise ValueError("parent and candidate were measured on different questions or repeats")
    return [i for i, row in enumerate(zip(*(c.outcomes for c in cards), strict=True))
            if not any(isinstance(outcome, Infra) for outcome in row)]  # fmt: skip


def _gain(parent: Scorecard, candidate: Scorecard, common: Sequence[int]) -> float:
    """Mean difference candidate - parent over the common positions; NaN if there are none."""
    if not common:
        return math.nan
    return math.fsum(worth(candidate.outcomes[i]) - worth(parent.outcomes[i]) for i in common) / len(common)
