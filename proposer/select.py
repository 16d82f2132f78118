"""Selection rules: which candidate, if any, becomes the next parent. Pure.

Parent and candidates were measured on the same questions, repeats and seeds; where infra left holes, only what both
have is compared, and a candidate that is mostly holes is not eligible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reharness.proposer.reward import measurable
from reharness.solver.outcomes import Answered, Infra, Scorecard


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
        if gain > self.margin:
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


def _best(parent: Scorecard, candidates: Sequence[Scorecard | None]) -> tuple[int | None, float]:
    """The eligible candidate with the largest paired gain, the first of equals."""
    best, gain = None, float("nan")
    for i, card in enumerate(candidates):
        if card is None or not measurable(card):
            continue
        value = paired_gain(parent, card)
        if value == value and (best is None or value > gain):
            best, gain = i, value
    return best, gain


def paired_gain(parent: Scorecard, candidate: Scorecard) -> float:
    """Mean difference candidate - parent over the (question, repeat) pairs that both measured; NaN if there is none.

    Raises ``ValueError`` when the two were not measured on the same questions and repeats.
    """
    if (parent.questions, parent.repeats) != (candidate.questions, candidate.repeats):
        raise ValueError("parent and candidate were measured on different questions or repeats")
    differences = [
        _worth(c) - _worth(p)
        for p, c in zip(parent.outcomes, candidate.outcomes, strict=True)
        if not isinstance(p, Infra) and not isinstance(c, Infra)
    ]
    return sum(differences) / len(differences) if differences else float("nan")


def _worth(outcome: object) -> float:
    return outcome.score if isinstance(outcome, Answered) else 0.0
