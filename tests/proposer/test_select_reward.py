from __future__ import annotations

import math

import pytest
import summaries
from hypothesis import given
from hypothesis import strategies as st

from reharness.proposer.reward import qa_reward, rg_reward
from reharness.proposer.select import AcceptIfBetter, TakeBestScoring
from reharness.solver.harness import seed_harness
from reharness.solver.outcomes import Answered, Scorecard


def card(*worths: float | str) -> Scorecard:
    return summaries.card(seed_harness(), worths)


def test_rg_reward_pays_the_stages_and_the_score() -> None:
    assert rg_reward("no_block", None) == rg_reward("description_missing", None) == 0.0
    assert rg_reward("no_match", None) == rg_reward("no_change", None) == rg_reward("noop_ast", None) == 0.05
    assert rg_reward("syntax_error", None) == rg_reward("frozen_region", None) == pytest.approx(0.15)
    assert rg_reward(None, card(0, 0)) == pytest.approx(0.30)  # all wrong but running
    assert rg_reward(None, card(1, "f")) == pytest.approx(0.5 + 0.15 + 0.15 * 0.5)
    assert rg_reward(None, card(1, 1)) == pytest.approx(1.30)


def test_qa_reward_pays_the_bonus_only_when_no_run_failed() -> None:
    assert qa_reward("no_code_block", None) == 0.0
    assert qa_reward(None, card(1, 0)) == pytest.approx(0.6)
    assert qa_reward(None, card(1, "f")) == pytest.approx(0.5)


def test_infra_is_never_a_zero() -> None:
    assert rg_reward(None, card("i", "i")) is None and qa_reward(None, card("i", 1)) is None
    assert rg_reward(None, card("i", 1, 1, 1)) == pytest.approx(1.30)  # a quarter: the rest is the measurement


def test_rg_accepts_only_strictly_better_and_qa_takes_the_best_even_if_lower() -> None:
    parent = card(1, 0, 0, 0)
    equal, lower, better, best = card(0, 1, 0, 0), card(0, 0, 0, 0), card(1, 1, 0, 0), card(1, 1, 1, 0)
    assert AcceptIfBetter()(parent, [equal, lower, None]).index is None
    assert AcceptIfBetter()(parent, [better, best, best]).index == 1  # the first of equals
    assert AcceptIfBetter(margin=0.3)(parent, [better]).index is None
    assert TakeBestScoring()(parent, [lower, None]).index == 0
    assert TakeBestScoring()(parent, [None]).index is None


def test_infra_cannot_win_or_lose_a_selection() -> None:
    parent = card(1, 0, 0, 0)
    assert AcceptIfBetter()(parent, [card(1, "i", "i", "i")]).index is None  # mostly holes: not eligible
    # Paired: on the three questions both measured the candidate is better, though its own mean is lower than 1.
    assert AcceptIfBetter()(card("i", 0, 0, 0), [card(0, 1, 0, 0)]).index == 0
    assert AcceptIfBetter()(card(1, 0, 0, 0), [card("i", 0, 0, 0)]).index is None


def test_different_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="different questions"):
        AcceptIfBetter()(card(1, 0), [card(1, 0, 1)])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_an_inert_candidate_is_never_accepted(scores: list[float]) -> None:
    assert AcceptIfBetter()(card(*scores), [card(*scores)]).index is None


def test_a_scorecard_with_no_measurement_has_no_mean() -> None:
    assert math.isnan(card("i").mean) and card("i").n == 0 and card("f").mean == 0.0
    with pytest.raises(ValueError):
        Answered("a", float("nan"))
    with pytest.raises(ValueError):
        Answered("a", True)


def test_holes_of_many_candidates_do_not_leave_a_handful_of_questions_to_decide() -> None:
    parent = card(*[1, 0] * 8)
    first = card(*["i"] * 4, *[1] * 4, *[0] * 8)
    second = card(*[0] * 4, *["i"] * 4, *[1] * 8)
    third = card(*[0] * 8, *["i"] * 4, *[1] * 4)
    fourth = card(*[1] * 12, *["i"] * 4)  # together they leave no question that all measured
    assert AcceptIfBetter()(parent, [fourth, first, second, third]).index == 0
    assert AcceptIfBetter()(card(1, *["i"] * 15), [card(*[1] * 16)]).index is None  # the parent must be measured too
