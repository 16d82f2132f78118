"""Rows of JSONL files that prove themselves: a row's id is the hash of the rest, and a file is whole or not there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field

from reharness.envs.config import Config, parse_config
from reharness.envs.errors import ConfigError
from reharness.envs.types import content_hash

Score = Annotated[float, Field(strict=True, ge=0, le=1)]
Count = Annotated[int, Field(strict=True, ge=1)]


class RowMessage(Config):
    """One message of what the proposer reads."""

    role: Literal["system", "user", "assistant"]
    content: str


class Row(Config):
    """The base of a row. ``KIND`` names it in errors and in its hash, ``VERSION`` is the contract it must have,
    ``CURE`` says how to make such rows anew."""

    KIND: ClassVar[str]
    VERSION: ClassVar[int]
    CURE: ClassVar[str]

    version: Annotated[int, Field(strict=True)]
    id: str

    @classmethod
    def make(cls, **fields: Any) -> Self:
        """The row of these fields, with its version and id. Raises ``ConfigError`` for a field that is wrong."""
        draft = parse_config(cls, {**fields, "version": cls.VERSION, "id": ""}, cls.KIND)
        return draft.model_copy(update={"id": draft.content_id})

    @property
    def content_id(self) -> str:
        """The id that the row must have: hash of everything else in it."""
        return content_hash(self.KIND, self.model_dump(mode="json", exclude={"id"}))

    def line(self) -> str:
        """The row as a line of JSON, without its LF."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, allow_nan=False)

    @classmethod
    def parse(cls, line: str, where: str) -> Self:
        """One row, its version and id checked. Raises ``ConfigError`` starting with ``where``."""
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where}: is not JSON ({error}); write one row a line") from None
        if not isinstance(data, dict):
            raise ConfigError(f"{where}: is no JSON object; write one row a line")
        if (version := data.get("version")) != cls.VERSION or isinstance(version, bool):
            raise ConfigError(
                f"{where}: rows of contract version {json.dumps(version)}; this reharness reads {cls.VERSION}:"
                f" {cls.CURE}"
            )
        row = parse_config(cls, data, where)
        if row.id != row.content_id:
            raise ConfigError(f"{where}: its id is not the hash of the rest: the row was changed by hand; {cls.CURE}")
        return row


R = TypeVar("R", bound=Row)


def load_rows(path: Path, parse: Callable[[str, str], R], cure: str) -> list[R]:
    """The rows of a JSONL file in order, each read by ``parse(line, where)``. Raises ``ConfigError`` for a file that
    cannot be read, and what ``parse`` raises, naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a JSONL file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; {cure}") from None
    lines = text.removesuffix("\n").split("\n") if text else []  # never splitlines: U+2028 may stand in a string
    return [parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def check_writable(path: Path) -> None:
    """Raises ``ConfigError`` when `write_rows` could not write there; asked before anything is paid for."""
    aside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise ConfigError(f"{path}: is a folder; choose the path of a file")
        aside.touch()
        aside.unlink()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose a path you can write to") from error


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes the rows, aside and then renamed. Raises ``ConfigError`` when the file cannot be written."""
    aside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text("".join(row.line() + "\n" for row in rows), encoding="utf-8", newline="\n")
        aside.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose a path you can write to") from error
