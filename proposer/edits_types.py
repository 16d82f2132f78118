"""What an edit can be refused for, and what that refusal is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from reharness.solver.harness import MAX_BYTES, MAX_LINES

Interface = Literal["search_replace", "code_block"]
Stage = Literal["parse", "apply", "result"]

ParseKind = Literal[
    "bad_char",
    "think_unclosed",
    "too_large",
    "description_missing",
    # SEARCH/REPLACE
    "no_block",
    "stray_marker",
    "marker_malformed",
    "missing_divider",
    "nested_search",
    "unexpected_divider",
    "unterminated_block",
    "empty_search",
    # code block
    "diagnosis_missing",
    "no_code_block",
    "multiple_code_blocks",
    "wrong_language",
    "fence_unclosed",
    "empty_code",
]
ApplyKind = Literal["no_match", "ambiguous", "identical_block", "no_change", "noop_result", "noop_ast"]
ResultKind = Literal["marker_in_result", "frozen_region", "empty_result", "syntax_error", "no_entry_point", "too_long"]
EditErrorKind = Literal[ParseKind, ApplyKind, ResultKind]

_STAGES: Final[dict[str, Stage]] = {
    **dict.fromkeys(get_args(ParseKind), "parse"),
    **dict.fromkeys(get_args(ApplyKind), "apply"),
    **dict.fromkeys(get_args(ResultKind), "result"),
}


def reward_stage(kind: EditErrorKind) -> Stage:
    """The hurdle an edit fell at, by which the Reasoning Gym reward pays (paper 2609.35738: 0.05 parse + 0.10 apply).

    ``parse``: nothing earned (0). ``apply``: it parsed, but changed no code (0.05); an explicit or accidental no-op
    counts here, for text that changes nothing was not applied to anything. ``result``: it parsed and applied, but
    what came out cannot be run (0.15).
    """
    return _STAGES[kind]


@dataclass(frozen=True)
class EditError:
    """Why a proposal became no candidate. It is what the next report shows the proposer.

    ``block`` counts from 1. ``line`` counts from 1: in the answer (the completion without its reasoning) at the
    stage ``parse`` and for ``no_match``, ``ambiguous`` and ``identical_block`` (for ``bad_char`` in the completion); in
    the resulting source otherwise.
    ``nearest`` holds, for ``no_match`` only, up to five lines of the parent that look most like the missing one.
    """

    kind: EditErrorKind
    message: str
    block: int | None = None
    line: int | None = None
    nearest: tuple[str, ...] = ()

    @property
    def stage(self) -> Stage:
        return reward_stage(self.kind)

    def __str__(self) -> str:
        places = [f"{name} {n}" for name, n in (("block", self.block), ("line", self.line)) if n is not None]
        where = f" ({', '.join(places)})" if places else ""
        return f"{self.kind}{where}: {self.message}"


@dataclass(frozen=True)
class EditResult:
    """Either a ``source`` or an ``error``. ``description`` (a diagnosis, for a code block) is there once it was read.

    ``near_markers``: lines of the answer that look like a marker and are none (0 for a code block).
    """

    source: str | None
    description: str | None
    error: EditError | None
    near_markers: int = 0


class EditRefused(Exception):
    """Raised by the single steps (parse, apply, check); ``apply_edit`` turns it into a result. ``error`` says why."""

    def __init__(
        self,
        kind: EditErrorKind,
        message: str,
        block: int | None = None,
        line: int | None = None,
        nearest: tuple[str, ...] = (),
    ) -> None:
        self.error = EditError(kind, message, block, line, nearest)
        super().__init__(str(self.error))


@dataclass(frozen=True)
class Caps:
    """Upper bounds. Bytes are of UTF-8; ``description_chars`` also bounds a diagnosis."""

    blocks: int = 16
    answer_bytes: int = 64 << 10
    description_chars: int = 2_000
    harness_bytes: int = MAX_BYTES
    lines_search_replace: int = MAX_LINES["search_replace"]
    lines_code_block: int = MAX_LINES["code_block"]

    def lines(self, interface: Interface) -> int:
        return self.lines_code_block if interface == "code_block" else self.lines_search_replace


DEFAULT_CAPS: Final = Caps()
