"""What an edit is paid (paper 2609.35738, reward; the error classes are those of the edit grammar). Pure."""

from __future__ import annotations

from collections.abc import Callable

from reharness.proposer.edits import EditErrorKind, reward_stage
from reharness.solver.outcomes import Scorecard

PARSE, APPLY, RUN = 0.05, 0.10, 0.15
CODE_BONUS = 0.1
MAX_INFRA_SHARE = 0.25

Reward = Callable[[EditErrorKind | None, Scorecard | None], float | None]


def rg_reward(error: EditErrorKind | None, card: Scorecard | None) -> float | None:
    """Reasoning Gym: J + 0.05 parsed + 0.10 applied + 0.15 x share of runs that completed, in [0, 1.3].

    An edit with an error is paid for the stages it passed (0, 0.05 or 0.15). None is no measurement: more than a
    quarter of the scoring run was infra, so the completion must leave its group.
    """
    if error is not None:
        return {"parse": 0.0, "apply": PARSE, "result": PARSE + APPLY}[reward_stage(error)]
    if card is None or not measurable(card):
        return None
    return card.mean + PARSE + APPLY + RUN * card.completed_share


def qa_reward(error: EditErrorKind | None, card: Scorecard | None) -> float | None:
    """Multi-hop QA: EM + 0.1 when no run of the scoring run failed; 0 for any error; None as in ``rg_reward``."""
    if error is not None:
        return 0.0
    if card is None or not measurable(card):
        return None
    return card.mean + (0.0 if card.failures else CODE_BONUS)


def measurable(card: Scorecard) -> bool:
    """Whether enough of a scorecard is a measurement for it to be paid or selected."""
    return card.n > 0 and card.infra <= MAX_INFRA_SHARE * len(card.outcomes)


REWARDS: dict[str, Reward] = {"search_replace": rg_reward, "code_block": qa_reward}
