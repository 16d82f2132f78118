"""Held-out evaluation of a sealed chain: the seed and the retained harness on the same Q_eval."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from reharness.envs.types import QuestionSets, Task
from reharness.eval.adapt import Chain
from reharness.eval.stats import Mean, bounded_mean, paired_gain
from reharness.solver.evaluate import Solver, evaluate
from reharness.solver.outcomes import Answered, Infra, Outcome, Scorecard


@dataclass(frozen=True)
class HeldOut:
    """Seed and retained harness on Q_eval; the means leave infra out, the gain is over what both measured."""

    seed: Scorecard
    final: Scorecard

    @property
    def gain(self) -> Mean:
        pairs = [
            (_worth(s), _worth(f))
            for s, f in zip(self.seed.outcomes, self.final.outcomes, strict=True)
            if not isinstance(s, Infra) and not isinstance(f, Infra)
        ]
        return paired_gain([s for s, _ in pairs], [f for _, f in pairs])

    def record(self) -> dict[str, Any]:
        return {
            "seed": bounded_mean(self.seed.scores).record(),
            "final": bounded_mean(self.final.scores).record(),
            "gain": self.gain.record(),
            "infra": self.seed.infra + self.final.infra,
        }


async def held_out(chain: Chain, task: Task, sets: QuestionSets, solver: Solver, repeats: int = 1) -> HeldOut:
    """Opens Q_eval to the chain's seal. Where the seed was retained, both are the same measurement."""
    questions = sets.held_out(chain.seal)
    seed, final = await asyncio.gather(
        evaluate(chain.seed, questions, solver, task=task, repeats=repeats),
        evaluate(chain.harness, questions, solver, task=task, repeats=repeats),
    )
    return HeldOut(seed, final)


def _worth(outcome: Outcome) -> float:
    return outcome.score if isinstance(outcome, Answered) else 0.0
