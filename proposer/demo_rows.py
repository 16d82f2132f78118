"""Demonstrations as rows of a JSONL file: what a proposer reads, what it should have written, and the proof of both.

A row is believed only if it proves itself: its id is the hash of the rest, and its completion, applied to its parent,
gives the candidate that was scored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from reharness.envs.config import Config, parse_config
from reharness.envs.errors import ConfigError
from reharness.envs.types import content_hash
from reharness.proposer.edits import apply_edit, check_harness
from reharness.solver.harness import Harness

DEMO_VERSION = 1
"""Contract of a row; a row of another version is refused, never guessed at."""

CURE = "make them again with `reharness demos`"

Score = Annotated[float, Field(strict=True, ge=0, le=1)]
Count = Annotated[int, Field(strict=True, ge=1)]


class DemoMessage(Config):
    """One message of what the proposer reads."""

    role: Literal["system", "user", "assistant"]
    content: str


class DemoRow(Config):
    """One demonstration: an edit that was applied, run and scored on ``n`` questions, ``repeats`` times each.

    ``parent`` and ``candidate`` are harness fingerprints; ``context`` is the key of the context whose messages these
    are; ``move`` names the edit where the teacher has names for edits.
    """

    version: Annotated[int, Field(strict=True)] = DEMO_VERSION
    task: str
    family: str
    format: str
    track: Literal["S", "F", "R"]
    defect: str | None
    messages: tuple[DemoMessage, ...] = Field(min_length=1)
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
    id: str

    @classmethod
    def make(cls, **fields: Any) -> DemoRow:
        """The row of these fields, with its version and id. Raises ``ConfigError`` for a field that is wrong."""
        draft = parse_config(cls, {**fields, "id": ""}, "demonstration")
        return draft.model_copy(update={"id": draft.content_id})

    @property
    def content_id(self) -> str:
        """The id that the row must have: hash of everything else in it."""
        return content_hash("demo", self.model_dump(mode="json", exclude={"id"}))

    def line(self) -> str:
        """The row as a line of JSON, without its LF."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, allow_nan=False)


def load_demos(path: Path) -> list[DemoRow]:
    """The rows of a JSONL file in order. Raises ``ConfigError`` naming file and line for a row that is not JSON, has
    a missing or unknown key or another contract version, whose id is not the hash of the rest, or whose completion
    does not turn its parent into its candidate."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a JSONL file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; {CURE}") from None
    lines = text.removesuffix("\n").split("\n") if text else []  # never splitlines: U+2028 may stand in a string
    return [parse_demo(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def parse_demo(line: str, where: str) -> DemoRow:
    """One row, proven. Raises ``ConfigError`` starting with ``where``, as ``load_demos`` says."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is not JSON ({error}); write one demonstration a line") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: is no JSON object; write one demonstration a line")
    if (version := data.get("version")) != DEMO_VERSION or isinstance(version, bool):
        raise ConfigError(
            f"{where}: rows of contract version {json.dumps(version)}; this reharness reads {DEMO_VERSION}: {CURE}"
        )
    row = parse_config(DemoRow, data, where)
    if row.id != row.content_id:
        raise ConfigError(f"{where}: its id is not the hash of the rest: the row was changed by hand; {CURE}")
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


def check_writable(path: Path) -> None:
    """Raises ``ConfigError`` when `write_demos` could not write there; asked before anything is paid for."""
    aside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise ConfigError(f"{path}: is a folder; choose the path of a file")
        aside.touch()
        aside.unlink()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose a path you can write to") from error


def write_demos(path: Path, rows: Iterable[DemoRow]) -> None:
    """Writes the rows, aside and then renamed. Raises ``ConfigError`` when the file cannot be written."""
    aside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text("".join(row.line() + "\n" for row in rows), encoding="utf-8", newline="\n")
        aside.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose a path you can write to") from error
