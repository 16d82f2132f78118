"""What a group of proposals can teach, and the counters of it that are always on (reliability.md, promises 3-5). Pure.

A group is the proposals of one context; its baseline is their mean reward. A group without variance teaches nothing:
peers have trained for days on such groups unseen, so each is filtered or kept by a named rule, and counted.
"""

from __future__ import annotations

import math
import numbers
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from reharness.envs.config import Config
from reharness.envs.errors import RewardError
from reharness.proposer.revise import Judged
from reharness.proposer.reward import measurable

Verdict = Literal["live", "small", "flat"]


class StdGroupFilter(Config):
    """The rule that says which groups are trained on (EvoTrainer's `StdGroupFilter`): those with at least ``min_size``
    measured completions (``small`` otherwise) and a standard deviation of their rewards of at least ``min_std``
    (``flat`` otherwise). ``flat = "keep"`` trains on flat groups too, where a KL term has something to say."""

    min_size: int = Field(2, ge=2)
    min_std: float = Field(1e-4, gt=0)
    flat: Literal["drop", "keep"] = "drop"

    def __call__(self, rewards: Sequence[float | None]) -> Verdict:
        """The verdict on one group; None is a completion that left it (infra)."""
        measured = [r for r in rewards if r is not None]
        if len(measured) < self.min_size:
            return "small"
        return "flat" if statistics.pstdev(measured) < self.min_std else "live"

    def trains(self, verdict: Verdict) -> bool:
        return verdict == "live" or (verdict == "flat" and self.flat == "keep")


def check_rewards(groups: Sequence[Sequence[Judged]], size: int) -> list[list[float | None]]:
    """The rewards of groups of ``size`` judged proposals.

    Raises ``RewardError`` for a group of another size, of two contexts or with a proposal missing, and for a reward
    that is no finite number, or is None where the scoring run was a measurement.
    """
    out: list[list[float | None]] = []
    for number, group in enumerate(groups):
        if len(group) != size:
            raise RewardError(f"group {number}: {len(group)} rewards for {size} completions; give one for each")
        if len(keys := {j.proposal.context for j in group}) != 1:
            raise RewardError(f"group {number}: holds proposals of {len(keys)} contexts; a group is of one context")
        out.append([_checked(j, f"group {number}, proposal {j.proposal.index}") for j in group])
    return out


def _checked(judged: Judged, where: str) -> float | None:
    reward: Any = judged.reward
    if reward is None:
        if judged.card is None or measurable(judged.card):
            raise RewardError(f"{where}: the reward is None, but the scoring run was a measurement; mend the reward")
        return None
    if isinstance(reward, bool) or not isinstance(reward, numbers.Real) or not math.isfinite(reward):
        raise RewardError(f"{where}: the reward is {reward!r}, not a finite number; mend the reward")
    return float(reward)


def signal(
    groups: Sequence[Sequence[Judged]], rewards: Sequence[Sequence[float | None]], verdicts: Sequence[Verdict]
) -> dict[str, float]:
    """The metrics of an update's groups: shares of groups by verdict, rates of completions, means of the reward and of
    its terms, errors by kind, tokens. Shares are of all completions; a mean over none is left out."""
    flat = [j for group in groups for j in group]
    paid = [r for group in rewards for r in group if r is not None]
    ran = [j for j in flat if j.card is not None and j.card.n]
    n = len(flat)
    seen, errors = Counter(verdicts), Counter(j.status for j in flat if j.edit.error)
    metrics = {
        "groups": float(len(groups)),
        "dead_group_ratio": 1 - seen["live"] / len(groups),
        "frac_reward_zero_std": seen["flat"] / len(groups),
        "small_group_ratio": seen["small"] / len(groups),
        "completions/clipped_ratio": sum(j.proposal.finish_reason == "length" for j in flat) / n,
        "completions/mean_length": sum(j.proposal.completion_tokens for j in flat) / n,
        "tokens/prompt": float(sum(group[0].proposal.prompt_tokens for group in groups)),
        "tokens/completion": float(sum(j.proposal.completion_tokens for j in flat)),
        "rates/infra": sum(j.reward is None for j in flat) / n,
        "rates/parsed": sum(j.stage >= 1 for j in flat) / n,
        "rates/applied": sum(j.stage >= 2 for j in flat) / n,
        "rates/ran": sum(j.stage == 3 for j in flat) / n,
        "rates/valid": sum(j.valid for j in flat) / n,
        "rates/inert": sum(j.inert for j in flat) / n,
        **{f"errors/{kind}": count / n for kind, count in sorted(errors.items())},
    }
    if paid:
        metrics["reward"] = math.fsum(paid) / len(paid)
        measured = [[r for r in group if r is not None] for group in rewards]
        metrics["reward_std"] = statistics.fmean(statistics.pstdev(group) for group in measured if group)
    if ran:  # the terms of the reward apart, over what ran
        metrics["rewards/score/mean"] = math.fsum(j.card.mean for j in ran if j.card) / len(ran)
        metrics["rewards/completed/mean"] = math.fsum(j.card.completed_share for j in ran if j.card) / len(ran)
    return metrics
