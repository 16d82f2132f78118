"""Demonstrations as rows of a JSONL file: what a proposer reads, what it should have written, and the proof of both.

A row is believed only if it proves itself: its id is the hash of the rest, and its completion, applied to its parent,
gives the candidate that was scored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from reharness.envs.errors import ConfigError
from reharness.proposer.edits import apply_edit, check_harness
from reharness.proposer.rows import Count, Row, RowMessage, Score, load_rows
from reharness.solver.harness import Harness

CURE = "make them again with `reharness demos`"


class DemoRow(Row):
    """One demonstration: an edit that was applied, run and scored on ``n`` questions, ``repeats`` times each.

    ``parent`` and ``candidate`` are harness fingerprints; ``context`` is the key of the context whose messages these
    are; ``move`` names the edit where the teacher has names for edits.
    """

    KIND: ClassVar[str] = "demo"
    VERSION: ClassVar[int] = 1
    CURE: ClassVar[str] = CURE

    task: str
    family: str
    format: str
    track: Literal["S", "F", "R"]
    defect: str | None
    messages: tuple[RowMessage, ...] = Field(min_length=1)
    completion: str = Field(min_length=1)
    parent_source: str
    parent: str
    candidate: str
    parent_score: Score
    candidate_score: Score
    n: Count
    repeats: Count
    context: str
    teacher: str
    move: str | None


def load_demos(path: Path) -> list[DemoRow]:
    """The rows of a JSONL file in order. Raises ``ConfigError`` naming file and line for a row that is not JSON, has
    a missing or unknown key or another contract version, whose id is not the hash of the rest, or whose completion
    does not turn its parent into its candidate."""
    return load_rows(path, parse_demo, CURE)


def parse_demo(line: str, where: str) -> DemoRow:
    """One row, proven. Raises ``ConfigError`` starting with ``where``, as ``load_demos`` says."""
    row = DemoRow.parse(line, where)
    if row.messages[-1].role != "user":
        raise ConfigError(f"{where}: messages end with role {row.messages[-1].role!r}, not 'user'; {CURE}")
    _prove(row, where)
    return row


def _prove(row: DemoRow, where: str) -> None:
    if Harness(row.parent_source).fingerprint != row.parent:
        raise ConfigError(f"{where}: parent_source is not the harness {row.parent[:12]} of `parent`; {CURE}")
    edit = check_harness(apply_edit(row.parent_source, row.completion))
    if edit.source is None:
        raise ConfigError(f"{where}: its completion no longer applies to its parent: {edit.error}; {CURE}")
    if (found := Harness(edit.source).fingerprint) != row.candidate:
        raise ConfigError(
            f"{where}: its completion gives the harness {found[:12]}, not the `candidate` {row.candidate[:12]}; {CURE}"
        )


def check_set(rows: Sequence[DemoRow]) -> None:
    """Raises ``ConfigError`` for a set that nothing can be learnt from: empty, one-sided (one completion for every
    context, or a single family), or with a row that is there twice."""
    if not rows:
        raise ConfigError(f"there are no demonstrations; {CURE}")
    identity, times = Counter(row.id for row in rows).most_common(1)[0]
    if times > 1:
        raise ConfigError(f"demonstration {identity[:12]} is there {times} times; list each file and row once")
    if len({row.completion for row in rows}) == 1:
        raise ConfigError(f"one-sided: all {len(rows)} demonstrations have the same completion; add other edits")
    if len(families := {row.family for row in rows}) == 1:
        raise ConfigError(f"one-sided: all {len(rows)} demonstrations are of the family {families.pop()!r}; add others")
