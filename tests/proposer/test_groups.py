"""Which groups are trained on, and what is counted of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reharness.envs.config import parse_config
from reharness.envs.errors import ConfigError, RewardError
from reharness.proposer.edits import apply_edit
from reharness.proposer.groups import StdGroupFilter, check_rewards, signal
from reharness.proposer.policy import Proposal
from reharness.proposer.revise import Judged
from reharness.proposer.reward import rg_reward
from reharness.solver.harness import Harness
from reharness.solver.outcomes import Answered, Failed, Infra, Outcome, Scorecard

SOURCE = "def run(question, tools):\n    return question\n"
GOOD = "Better.\n<<<<<<< SEARCH\n    return question\n=======\n    return 'x'\n>>>>>>> REPLACE\n"


def judged(text: str = GOOD, outcomes: Sequence[Outcome] = (), context: str = "c", index: int = 0, **changes: Any) -> Judged:
    edit = apply_edit(SOURCE, text)
    card = Scorecard("h", "t", tuple(map(str, range(len(outcomes)))), (0,) * len(outcomes), tuple(outcomes)) if outcomes else None
    reward = rg_reward(edit.error.kind if edit.error else None, card)
    proposal = Proposal(context, index, text, "w", 100, 7, "stop")
    return replace(Judged(proposal, edit, Harness(edit.source) if edit.source else None, card, reward, False), **changes)


RIGHT, WRONG, LOST = Answered("a", 1.0), Answered("b", 0.0), Infra("engine_error", "down")


@given(st.lists(st.none() | st.floats(0, 1.3), min_size=1, max_size=8))
def test_a_group_is_live_if_enough_of_it_was_measured_and_rewards_differ(rewards: list[float | None]) -> None:
    measured = [r for r in rewards if r is not None]
    verdict = StdGroupFilter(min_size=3)(rewards)
    if len(measured) < 3:
        assert verdict == "small"
    elif max(measured) - min(measured) < 1e-5:
        assert verdict == "flat"
    elif max(measured) - min(measured) > 1e-3:
        assert verdict == "live"
    assert StdGroupFilter(flat="keep").trains("flat") and not StdGroupFilter().trains("flat") and not StdGroupFilter(flat="keep").trains("small")


def test_a_lost_completion_leaves_its_group_and_is_never_0() -> None:
    group = [judged(outcomes=[RIGHT, RIGHT]), judged(outcomes=[WRONG, WRONG], index=1), judged(outcomes=[LOST, RIGHT], index=2)]
    ((first, second, third),) = check_rewards([group], 3)
    assert first == pytest.approx(1.3) and second == pytest.approx(0.3) and third is None
    found = signal([group], [[first, second, third]], ["live"])
    assert found["rates/infra"] == pytest.approx(1 / 3) and found["reward"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("group", "size", "words"),
    [
        ([judged(outcomes=[RIGHT])], 2, "1 rewards for 2 completions"),
        ([judged(outcomes=[RIGHT]), judged(outcomes=[RIGHT], context="d")], 2, "holds proposals of 2 contexts"),
        ([judged(outcomes=[RIGHT], reward=math.nan)], 1, "the reward is nan, not a finite number"),
        ([judged(outcomes=[RIGHT], reward=math.inf)], 1, "the reward is inf"),
        ([judged(outcomes=[RIGHT], reward=True)], 1, "the reward is True"),
        ([judged(outcomes=[RIGHT], reward="1")], 1, "the reward is '1'"),
        ([judged(outcomes=[RIGHT], reward=None)], 1, "the reward is None, but the scoring run was a measurement"),
        ([judged("no edit", reward=None)], 1, "the reward is None, but"),
    ],
)
def test_what_is_no_reward_is_refused(group: list[Judged], size: int, words: str) -> None:
    with pytest.raises(RewardError, match=words):
        check_rewards([group], size)


def test_everything_is_counted() -> None:
    groups = [
        [judged(outcomes=[RIGHT, Failed("harness_error", "x")]), judged("no edit", index=1)],
        [judged(GOOD.replace("question", "nowhere"), index=0), judged(GOOD.replace("question", "nowhere"), index=1)],
        [judged(outcomes=[WRONG], inert=True), judged(outcomes=[LOST], index=1, proposal=replace(judged().proposal, index=1, finish_reason="length"))],
    ]  # fmt: skip
    rewards = check_rewards(groups, 2)
    found = signal(groups, rewards, [StdGroupFilter()(r) for r in rewards])
    assert (found["groups"], found["dead_group_ratio"], found["frac_reward_zero_std"], found["small_group_ratio"]) == pytest.approx((3, 2 / 3, 1 / 3, 1 / 3))
    assert found["completions/clipped_ratio"] == pytest.approx(1 / 6) and found["tokens/completion"] == 42 and found["tokens/prompt"] == 300
    assert (found["rates/parsed"], found["rates/applied"], found["rates/ran"]) == pytest.approx((5 / 6, 3 / 6, 2 / 6))
    assert found["rates/inert"] == pytest.approx(1 / 6) and found["rates/valid"] == pytest.approx(1 / 6)
    assert found["errors/no_block"] == pytest.approx(1 / 6) and found["errors/no_match"] == pytest.approx(2 / 6)
    assert found["rewards/score/mean"] == pytest.approx(0.25) and found["rewards/completed/mean"] == pytest.approx(0.75)


def test_a_filter_that_makes_no_sense_is_refused() -> None:
    for data in ({"min_size": 1}, {"min_std": 0.0}, {"flat": "maybe"}, {"size": 3}):
        with pytest.raises(ConfigError):
            parse_config(StdGroupFilter, data, "filter")
