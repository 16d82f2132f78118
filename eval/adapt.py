"""Adaptation: the frozen proposer improves a harness on one task, round after round (paper 2609.35738, one step).

    x_t = (task, h_{t-1}, report)    y_i ~ pi(. | x_t)    h'_i = Apply(h_{t-1}, y_i)
    h_t = Select(h_{t-1}, {h'_i}; Q_score)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reharness.envs.errors import InfraLimitError
from reharness.envs.types import Question, QuestionSets, Seal, Task, content_hash
from reharness.proposer.policy import Proposer, make_context
from reharness.proposer.report import CountTokens, EditRecord
from reharness.proposer.revise import Judged, edit_records, revise
from reharness.proposer.select import Decision, SelectionRule
from reharness.solver.evaluate import Solver, evaluate
from reharness.solver.harness import Harness
from reharness.solver.outcomes import Scorecard


@dataclass(frozen=True)
class Round:
    """One round: the proposals of one context, judged, and what was selected. ``seconds`` is wall time."""

    number: int
    context: str
    parent: Harness
    parent_card: Scorecard
    judged: tuple[Judged, ...]
    decision: Decision
    seconds: float

    @property
    def accepted(self) -> Judged | None:
        return None if self.decision.index is None else self.judged[self.decision.index]

    @property
    def retained(self) -> tuple[Harness, Scorecard]:
        """The next parent and its scorecard: the accepted candidate, or the parent."""
        taken = self.accepted
        if taken is None or taken.candidate is None or taken.card is None:
            return self.parent, self.parent_card
        return taken.candidate, taken.card

    def record(self) -> dict[str, Any]:
        """Plain JSON without times: equal for equal rounds."""
        scores = [j.card.mean for j in self.judged if j.card and j.card.n]
        stages = [j.stage for j in self.judged]
        n = len(stages)
        return {
            "round": self.number,
            "context": self.context,
            "parent": self.parent.fingerprint,
            "parent_score": self.parent_card.mean if self.parent_card.n else None,
            "n_score": self.parent_card.n,
            "proposals": n,
            "parsed_share": sum(s >= 1 for s in stages) / n,
            "applied_share": sum(s >= 2 for s in stages) / n,
            "ran_share": sum(s >= 3 for s in stages) / n,
            "valid_share": sum(j.valid for j in self.judged) / n,
            # Edits that gave nothing to run, three ways (statistics.md): as the parent's score, as 0, left out.
            "mean_failed_as_parent": _mean([*scores, *[self.parent_card.mean] * (n - len(scores))]),
            "mean_failed_as_zero": _mean([*scores, *[0.0] * (n - len(scores))]),
            "mean_score": _mean(scores),
            "best_score": max(scores, default=None),
            "accepted": self.accepted.candidate.fingerprint if self.accepted and self.accepted.candidate else None,
            "reason": self.decision.reason,
            "proposal_tokens": sum(j.proposal.completion_tokens for j in self.judged),
            "judged": [j.record() for j in self.judged],
        }


@dataclass(frozen=True)
class Chain:
    """One finished adaptation run: the seed, the rounds, the retained harness. It is sealed: only now Q_eval opens."""

    task: str
    seed: Harness
    seed_card: Scorecard
    rounds: tuple[Round, ...]
    harness: Harness
    card: Scorecard

    @property
    def seal(self) -> Seal:
        chain = content_hash("chain", self.task, self.seed.fingerprint, [r.context for r in self.rounds])
        return Seal(chain, self.harness.fingerprint)


Observe = Callable[[Round | Scorecard], None]
"""Called with the seed's scorecard first, then with every round as it ends."""


@dataclass(frozen=True)
class Adaptation:
    """One chain to be run: ``rounds`` of ``n`` proposals. ``sequential``: each round starts from the harness retained
    so far and its fresh report. ``independent``: all rounds x n proposals read the seed's report, and one selection is
    made at the end (the control at equal proposals). ``window`` is in tokens of the proposer's model."""

    task: Task
    sets: QuestionSets
    seed: Harness
    proposer: Proposer
    solver: Solver
    rounds: int
    n: int
    rule: SelectionRule
    count_tokens: CountTokens
    observe: Observe
    repeats: int = 1
    window: int = 4096

    async def sequential(self) -> Chain:
        seed_card = card = await self._seed_card()
        parent, rounds = self.seed, list[Round]()
        history: list[EditRecord] = []
        for number in range(1, self.rounds + 1):
            rounds.append(await self._round(number, self.n, parent, card, history))
            done = rounds[-1]
            history += edit_records(number, done.parent_card, done.judged, done.decision.index)
            parent, card = rounds[-1].retained
        return Chain(self.task.name, self.seed, seed_card, tuple(rounds), parent, card)

    async def independent(self) -> Chain:
        seed_card = await self._seed_card()
        only = await self._round(1, self.n * self.rounds, self.seed, seed_card, ())
        return Chain(self.task.name, self.seed, seed_card, (only,), *only.retained)

    async def _seed_card(self) -> Scorecard:
        card = await self._evaluate(self.seed, self.sets.scoring)
        if not card.n:
            raise InfraLimitError(f"{self.task.name}: no run of the seed harness could be measured: {card.outcomes[0]}")
        self.observe(card)
        return card

    async def _round(
        self, number: int, n: int, parent: Harness, card: Scorecard, history: Sequence[EditRecord]
    ) -> Round:
        start = time.monotonic()
        same = self.sets.feedback == self.sets.scoring
        feedback = card if same else await self._evaluate(parent, self.sets.feedback)
        context = make_context(
            self.task, parent, feedback=self.sets.feedback, feedback_card=feedback, scoring=self.sets.scoring,
            parent_card=card, history=history, repeats=self.repeats, window=self.window, count_tokens=self.count_tokens,
        )  # fmt: skip
        (judged,) = await revise([context], self.proposer, n, self.solver)
        decision = self.rule(card, [j.card for j in judged])
        done = Round(number, context.key, parent, card, tuple(judged), decision, time.monotonic() - start)
        self.observe(done)
        return done

    async def _evaluate(self, harness: Harness, questions: Sequence[Question]) -> Scorecard:
        return await evaluate(harness, questions, self.solver, task=self.task, repeats=self.repeats)


def _mean(values: Sequence[float]) -> float | None:
    mean = math.fsum(values) / len(values) if values else math.nan
    return None if math.isnan(mean) else mean

