"""Held-out evaluation of a sealed chain: the seed and the retained harness on the same Q_eval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reharness.envs.errors import TaskError
from reharness.envs.types import QuestionSets, Seal, Task
from reharness.eval.stats import Mean, bounded_mean, paired_gain
from reharness.solver.evaluate import Solver, evaluate, gather_all
from reharness.solver.harness import Harness
from reharness.solver.outcomes import Scorecard


@dataclass(frozen=True)
class HeldOut:
    """Seed and retained harness on Q_eval. n counts questions (repeats are averaged first); the means leave infra out,
    the gain is over the questions that both measured."""

    seed: Scorecard
    final: Scorecard

    @property
    def gain(self) -> Mean:
        seed, final = self.seed.by_question, self.final.by_question
        both = [key for key in seed if key in final]
        return paired_gain([seed[key] for key in both], [final[key] for key in both])

    def record(self) -> dict[str, Any]:
        return {
            "seed": bounded_mean(list(self.seed.by_question.values())).record(),
            "final": bounded_mean(list(self.final.by_question.values())).record(),
            "gain": self.gain.record(),
            "infra": self.seed.infra + self.final.infra,
        }


async def held_out(
    seal: Seal, seed: Harness, final: Harness, task: Task, sets: QuestionSets, solver: Solver, repeats: int = 1
) -> HeldOut:
    """Opens Q_eval to a chain's seal. Where the seed was retained, both are the same measurement. Raises ``TaskError``
    when ``final`` is not the harness that the seal names."""
    if seal.harness != final.fingerprint:
        raise TaskError(f"{task.name}: the chain was sealed with another harness than the one to be measured")
    questions = sets.held_out(seal)
    both = (seed, final)
    cards = await gather_all(evaluate(h, questions, solver, task=task, repeats=repeats) for h in both)
    return HeldOut(*cards)

