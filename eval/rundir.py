"""A run directory: the ledger is the truth, everything else in it is derived from it.

    ledger.sqlite   config.json   metrics.jsonl   harnesses/<fingerprint>.py   diffs/<parent>-<candidate>.diff
    summary.json    report.html
"""

from __future__ import annotations

import difflib
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reharness.envs.config import Config
from reharness.envs.errors import LedgerError
from reharness.solver.harness import Harness
from reharness.solver.ledger import Ledger

_FREE = ("harness", "harnesses", "concurrency")
"""Keys that may differ between two starts of one run: a path, whose content is an input, and what changes no result."""

SHORT = 12
"""Characters of a fingerprint used in file names."""

MIN_FREE_BYTES = 64 << 20


class RunDir:
    """Opens (or creates) ``path`` for one configuration and its ``inputs`` (what the configuration names: scorer
    versions of the tasks, fingerprints of the harnesses). Raises ``LedgerError`` when the folder cannot be used, the
    disk is nearly full, another run holds it, or it was made with another configuration (the difference is shown)."""

    def __init__(self, path: Path, config: Config, inputs: dict[str, Any]) -> None:
        self.path = path
        try:
            for folder in (path, path / "harnesses", path / "diffs"):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(f"{path}: cannot be made ({error.strerror}); choose a folder you can write to") from None
        if (free := shutil.disk_usage(path).free) < MIN_FREE_BYTES:
            need = MIN_FREE_BYTES >> 20
            raise LedgerError(f"{path}: only {free >> 20} MiB are free on its disk; free at least {need} MiB")
        self.ledger = Ledger(path / "ledger.sqlite")
        try:
            settings = {k: v for k, v in config.resolved().items() if k not in _FREE}
            self.ledger.bind("config", json.dumps(settings, sort_keys=True))
            self.ledger.bind("inputs", json.dumps(inputs, sort_keys=True))
            self.resumed = self.ledger.count("outcome")
            self.write_json("config.json", {"hash": config.digest(), "config": config.resolved()})
        except BaseException:
            self.ledger.close()
            raise

    def metric(self, row: dict[str, Any]) -> None:
        """Appends a line to metrics.jsonl."""
        with self._named_errors(), (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(_line(row))

    def metrics(self, rows: Iterable[dict[str, Any]]) -> None:
        """Writes metrics.jsonl anew, in an order that does not depend on what ended first."""
        self._write("metrics.jsonl", "".join(map(_line, rows)))

    def harness(self, harness: Harness) -> None:
        self._write(f"harnesses/{harness.fingerprint[:SHORT]}.py", harness.source)

    def diff(self, parent: Harness, candidate: Harness) -> str:
        """Writes and returns the unified diff."""
        a, b = parent.fingerprint[:SHORT], candidate.fingerprint[:SHORT]
        text = unified_diff(parent, candidate)
        self._write(f"diffs/{a}-{b}.diff", text)
        return text

    def write_json(self, name: str, value: Any) -> Path:
        return self._write(name, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")

    def close(self) -> None:
        self.ledger.close()

    def _write(self, name: str, text: str) -> Path:
        """Aside, then renamed: a reader never sees half a file."""
        target = self.path / name
        aside = target.with_name(target.name + ".part")
        with self._named_errors():
            aside.write_text(text, encoding="utf-8", newline="\n")
            return aside.replace(target)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerError(
                f"{self.path}: cannot be written ({error.strerror}); make room or mend the folder's rights and give the"
                " same command again: nothing is lost"
            ) from error


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, allow_nan=False) + "\n"


def unified_diff(parent: Harness, candidate: Harness) -> str:
    a, b = parent.fingerprint[:SHORT], candidate.fingerprint[:SHORT]
    before, after = (h.source.rstrip("\n").split("\n") for h in (parent, candidate))  # never splitlines: U+2028, \f
    return "".join(f"{line}\n" for line in difflib.unified_diff(before, after, a, b, lineterm=""))
