"""What became of one harness on one question, as types: answered, failed, or infra. Never a bare 0.0."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

FailureKind = Literal[
    "harness_error", "timeout_wall", "timeout_cpu", "memory", "output_limit", "denied", "budget", "protocol", "died"
]
InfraKind = Literal["engine_error", "sandbox_error", "scorer_error", "timeout_wait"]
FAILURE_KINDS: tuple[str, ...] = get_args(FailureKind)
INFRA_KINDS: tuple[str, ...] = get_args(InfraKind)


@dataclass(frozen=True)
class Event:
    """One line of the trace: a tool call or a note. ``data`` is plain JSON, already cut to the observation limits."""

    kind: Literal["llm", "python", "search", "note"]
    data: dict[str, Any]


@dataclass(frozen=True)
class Usage:
    """What one outcome used. Tokens are counted whether or not the ledger already held the call; ``cpu_s`` is the
    sandboxed process's own CPU time, ``wall_s`` excludes waiting on the host."""

    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    python_calls: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0


@dataclass(frozen=True)
class Answered:
    """The run completed and the host scored its answer: ``score`` is a finite float in [0, 1]."""

    answer: str
    score: float
    trace: tuple[Event, ...] = ()
    usage: Usage = Usage()
    rung: str = ""
    """The rung of the sandbox ladder it ran on."""

    def __post_init__(self) -> None:
        if isinstance(self.score, bool) or not math.isfinite(self.score) or not 0.0 <= self.score <= 1.0:
            raise ValueError(f"a score is a finite float in [0, 1], not {self.score!r}")


@dataclass(frozen=True)
class Failed:
    """The harness did not complete: worth 0 and not completed."""

    kind: FailureKind
    detail: str
    trace: tuple[Event, ...] = ()
    usage: Usage = Usage()
    rung: str = ""


@dataclass(frozen=True)
class Infra:
    """Our fault or the world's, not the harness's: not a measurement, so it has no worth at all."""

    kind: InfraKind
    detail: str


Outcome = Answered | Failed | Infra


def worth(outcome: Answered | Failed | Infra) -> float:
    """The score if answered, 0 if failed; NaN for infra, so that it can never pass for a score."""
    if isinstance(outcome, Infra):
        return math.nan
    return outcome.score if isinstance(outcome, Answered) else 0.0


@dataclass(frozen=True)
class Scorecard:
    """One harness on a question set: ``outcomes[i]`` is of question ``questions[i]`` in repeat ``repeats[i]``."""

    harness: str
    """Harness fingerprint."""
    task: str
    questions: tuple[str, ...]
    """Question keys, aligned with ``outcomes``."""
    repeats: tuple[int, ...]
    outcomes: tuple[Outcome, ...]

    def __post_init__(self) -> None:
        if not len(self.questions) == len(self.repeats) == len(self.outcomes):
            raise ValueError("questions, repeats and outcomes must be aligned one to one")

    @property
    def measured(self) -> Sequence[Answered | Failed]:
        """The outcomes that are measurements (infra left out)."""
        return [o for o in self.outcomes if not isinstance(o, Infra)]

    @property
    def n(self) -> int:
        """Number of measurements."""
        return len(self.measured)

    @property
    def scores(self) -> list[float]:
        """The worth of every measurement."""
        return [worth(o) for o in self.measured]

    @property
    def by_question(self) -> dict[str, float]:
        """The mean worth of each measured question over its repeats, in order of the questions."""
        seen: dict[str, list[float]] = {}
        for key, outcome in zip(self.questions, self.outcomes, strict=True):
            if not isinstance(outcome, Infra):
                seen.setdefault(key, []).append(worth(outcome))
        return {key: math.fsum(values) / len(values) for key, values in seen.items()}

    @property
    def mean(self) -> float:
        """J(h; Q) over the measurements; NaN when there is none, so that it can never pass for a score."""
        return math.fsum(self.scores) / self.n if self.n else math.nan

    @property
    def completed_share(self) -> float:
        """Share of measurements that were answered; NaN when there is none."""
        return sum(isinstance(o, Answered) for o in self.measured) / self.n if self.n else math.nan

    @property
    def infra(self) -> int:
        return len(self.outcomes) - self.n

    @property
    def failures(self) -> Counter[str]:
        """Failed outcomes by kind."""
        return Counter(o.kind for o in self.outcomes if isinstance(o, Failed))

    @property
    def answers(self) -> tuple[str | None, ...]:
        """The answers in order, None where there is none."""
        return tuple(o.answer if isinstance(o, Answered) else None for o in self.outcomes)


def to_record(outcome: Outcome) -> dict[str, Any]:
    """Plain JSON of an outcome, for the ledger and for exports."""
    kind = {Answered: "answered", Failed: "failed", Infra: "infra"}[type(outcome)]
    return {"outcome": kind, **asdict(outcome)}


def from_record(record: dict[str, Any]) -> Outcome:
    """The outcome that ``to_record`` wrote."""
    fields = dict(record)
    kind = fields.pop("outcome")
    if kind == "infra":
        return Infra(**fields)
    fields["trace"] = tuple(Event(**event) for event in fields["trace"])
    fields["usage"] = Usage(**fields["usage"])
    return Answered(**fields) if kind == "answered" else Failed(**fields)
