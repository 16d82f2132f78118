"""Task, Question and QuestionSets: what is to be solved, and which questions may be used for what."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from reharness.envs.errors import TaskError

ProtocolName = Literal["train", "adapt_rg", "adapt_qa"]


def content_hash(*parts: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of ``parts``; the identity of everything the ledger keys by content."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Question:
    """One question of a task.

    ``text`` is all that a harness ever sees (the question and the format instruction). ``gold`` is whatever the
    task's scorer needs; it stays on the host. ``key`` is the content hash of text and gold: two questions with
    equal keys are the same question.
    """

    task: str
    text: str
    gold: Any = field(repr=False, compare=False)
    key: str = ""

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", content_hash(self.task, self.text, self.gold))


@runtime_checkable
class Task(Protocol):
    """One family of Reasoning Gym or one QA benchmark. Third parties register theirs by the entry-point group
    ``reharness.tasks``: a callable ``(**params) -> Task`` under the task's name.
    """

    name: str
    interface: Literal["search_replace", "code_block"]
    description: str
    scorer_version: str

    def questions(self, n: int, seed: int) -> Sequence[Question]:
        """``n`` questions, deterministic by ``seed``: ``questions(m, seed)`` is a prefix of ``questions(n, seed)``."""
        ...

    def score(self, question: Question, answer: str) -> float:
        """A finite float in [0, 1]. An exception here is an *infra* outcome (the scorer failed, not the harness)."""
        ...

    def reveal(self, question: Question) -> str | None:
        """The gold answer in the form a harness should return; shown in reports of *feedback* questions only."""
        ...


@dataclass(frozen=True)
class QuestionSets:
    """Q_fb, Q_score and Q_eval of one task under one protocol (paper 2609.35738, protocol section).

    ``train``: Q_fb and Q_score disjoint. ``adapt_rg``: the same dev questions serve both. ``adapt_qa``: one round's
    draw from a pool, Q_fb and Q_score disjoint. Q_eval shares no question with any of them, and opens only to a seal
    (see ``held_out``).
    """

    protocol: ProtocolName
    feedback: tuple[Question, ...]
    scoring: tuple[Question, ...]
    _eval: tuple[Question, ...] = field(repr=False, default=())

    def __post_init__(self) -> None:
        fb, score, held = ({q.key for q in qs} for qs in (self.feedback, self.scoring, self._eval))
        if not self.scoring:
            raise TaskError("Q_score is empty: ask for at least one scoring question")
        if self.protocol in ("train", "adapt_qa") and (both := fb & score):
            raise TaskError(f"protocol {self.protocol!r} needs Q_fb and Q_score disjoint; {len(both)} are in both")
        if self.protocol == "adapt_rg" and fb != score:
            raise TaskError("protocol 'adapt_rg' uses the same dev questions as Q_fb and Q_score; they differ")
        if seen := held & (fb | score):
            raise TaskError(f"Q_eval is not held out: {len(seen)} of its questions are also in Q_fb or Q_score")

    @property
    def n_eval(self) -> int:
        return len(self._eval)

    def holds(self, question: Question) -> bool:
        """Whether the question is in any of the sets: for drawing others that share none with them."""
        return question.key in {q.key for qs in (self.feedback, self.scoring, self._eval) for q in qs}

    def digest(self) -> str:
        """Hash of which questions are used for what; part of what a run is tied to."""
        return content_hash(self.protocol, *([q.key for q in qs] for qs in (self.feedback, self.scoring, self._eval)))

    def held_out(self, seal: Seal) -> tuple[Question, ...]:
        """Q_eval, for a sealed chain only: nothing can be adapted or selected after it was seen."""
        if not isinstance(seal, Seal):
            raise TaskError("Q_eval opens only to the seal of a finished chain")
        return self._eval


@dataclass(frozen=True)
class Seal:
    """Proof that a chain is finished: made once by the chain, after its last selection."""

    chain: str
    harness: str
    """Fingerprint of the retained harness."""
