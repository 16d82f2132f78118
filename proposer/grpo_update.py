"""One update's experience: contexts drawn, proposals sampled, all of them judged together, groups filtered and counted.

    stream.draw -> rollout (G proposals a context) -> judge (edit, run, pay: adaptation's path) -> filter -> groups
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reharness.envs.errors import InfraLimitError, RewardError
from reharness.proposer.groups import Verdict, check_rewards, signal
from reharness.proposer.grpo_config import GrpoConfig
from reharness.proposer.revise import Judged, judge
from reharness.proposer.rollout import Rollout, Sample
from reharness.proposer.stream import ContextStream, Drawn
from reharness.solver.evaluate import Solver


@dataclass(frozen=True)
class Group:
    """The proposals of one context and what came of them. ``rewards`` has None for a completion that left the group."""

    drawn: Drawn
    samples: Sequence[Sample]
    judged: Sequence[Judged]
    rewards: Sequence[float | None]
    verdict: Verdict
    trains: bool


@dataclass
class Experience:
    """Makes the groups of one update after the other; ``state`` is what a resumed run goes on from."""

    config: GrpoConfig
    stream: ContextStream
    rollout: Rollout
    solver: Solver
    runner: asyncio.Runner
    empty: int = 0
    """Updates in a row without a group to train on."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Of the last update."""

    def __call__(self, update: int, weights: str) -> list[Group]:
        """``config.groups`` groups, those that are trained on first. Raises ``InfraLimitError`` when too many
        completions could not be measured, ``RewardError`` for rewards that are none, and when nothing could be trained
        on for ``max_empty`` updates."""
        c = self.config
        every: list[Group] = []
        self.rollout.seconds, judging = 0.0, 0.0
        for attempt in range(1 + c.oversample):
            live = sum(group.trains for group in every)
            if live >= c.groups:
                break
            drawn = self.stream.draw(update, c.groups - live)
            proposals, samples = self.rollout(drawn, weights, update, attempt)
            started = time.monotonic()
            judged = self.runner.run(judge([d.context for d in drawn], proposals, self.solver))
            every += self._groups(drawn, samples, judged)
            self.runner.run(self.stream.grow(drawn, judged, self.solver))
            judging += time.monotonic() - started
        kept = sorted(every, key=lambda group: not group.trains)[: c.groups]
        self._count(update, every, kept, judging)
        return kept

    def _groups(self, drawn: Sequence[Drawn], samples: Any, judged: Sequence[Sequence[Judged]]) -> list[Group]:
        rewards = check_rewards(judged, self.config.group_size)
        verdicts = [self.config.filter(own) for own in rewards]
        return [
            Group(d, s, j, r, v, self.config.filter.trains(v))
            for d, s, j, r, v in zip(drawn, samples, judged, rewards, verdicts, strict=True)
        ]

    def _count(self, update: int, every: Sequence[Group], kept: Sequence[Group], judging: float) -> None:
        c = self.config
        m: dict[str, Any] = dict(
            signal([g.judged for g in every], [g.rewards for g in every], [g.verdict for g in every])
        )
        m["groups_trained"] = sum(group.trains for group in kept)
        m["pool"] = len(self.stream.pool)
        m["depth/mean"] = sum(group.drawn.row.depth for group in every) / len(every)
        m["seconds/sampling"], m["seconds/judging"] = round(self.rollout.seconds, 3), round(judging, 3)
        warnings = []
        if m["completions/clipped_ratio"] > c.clipped_warning:
            warnings.append(f"{m['completions/clipped_ratio']:.0%} of the completions were cut off; raise max_tokens")
        m["warnings"] = warnings
        self.metrics = m
        self.empty = 0 if m["groups_trained"] else self.empty + 1
        if m["rates/infra"] > c.infra_limit:
            raise InfraLimitError(
                f"update {update + 1}: {m['rates/infra']:.0%} of its completions could not be measured, over the limit"
                f" of {c.infra_limit:.0%}. Nothing is lost: mend it and give the same command again"
            )
        if self.empty >= c.max_empty:
            raise RewardError(
                f"update {update + 1}: nothing to train on for {self.empty} updates in a row: of the last groups"
                f" {m['frac_reward_zero_std']:.0%} had equal rewards, {m['small_group_ratio']:.0%} too few; parsed"
                f" {m['rates/parsed']:.0%}, applied {m['rates/applied']:.0%}, ran {m['rates/ran']:.0%}. Train longer by"
                " SFT first, raise the temperature, or make contexts that are neither hopeless nor solved"
            )

    def state(self) -> dict[str, Any]:
        return {"stream": self.stream.state(), "empty": self.empty}

    def restore(self, state: dict[str, Any]) -> None:
        self.stream.restore(state["stream"])
        self.empty = state["empty"]
