"""The ledger: one SQLite file per run directory that holds everything that was paid for.

A record is written before it is used and is found again by what determines it, so a run that was killed goes on with
the same command and pays for nothing twice. WAL, one writer, busy_timeout, synchronous=NORMAL: what was committed
survives the death of the process at any point (reliability.md, promises 7 and 14).
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from reharness.envs.errors import LedgerError

Kind = Literal["call", "outcome", "proposal", "infra", "chain"]
SCHEMA_VERSION = "1"


class Ledger:
    """``path`` is the ledger file, or None for one in memory (nothing survives the process).

    Raises ``LedgerError`` when the file is locked by another run, cannot be written, or is not a sound ledger.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._lock: IO[bytes] | None = None
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._lock = _lock(path)
            self._db = sqlite3.connect(path or ":memory:", timeout=10, isolation_level=None, check_same_thread=False)
            self._prepare()
        except (sqlite3.Error, OSError) as error:
            self._unlock()
            raise self._error(error) from error
        except LedgerError:
            self._unlock()
            raise

    def _prepare(self) -> None:
        db = self._db
        mode = db.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA busy_timeout=10000")
        if self.path is not None and (mode != "wal" or db.execute("PRAGMA synchronous").fetchone()[0] != 1):
            raise LedgerError(f"{self.path}: this file system does not allow SQLite's WAL; use a local folder")
        db.execute(
            "CREATE TABLE IF NOT EXISTS records (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL,"
            " body TEXT NOT NULL, at REAL NOT NULL, UNIQUE (kind, key))"
        )
        db.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        self.bind("schema", SCHEMA_VERSION)

    def bind(self, key: str, value: str) -> None:
        """Ties the ledger to a value (its schema, the run's configuration). Raises ``LedgerError`` showing the
        difference when it was tied to another: a changed configuration is another run, never a silent mixture."""
        with self._access():
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            if row is None:
                self._db.execute("INSERT INTO meta VALUES (?, ?)", (key, value))
            elif row[0] != value:
                raise LedgerError(
                    f"{self.path}: was written with another {key}: {_difference(row[0], value)}; "
                    "go on with the old value, or choose a new run folder"
                )

    def get(self, kind: Kind, key: str) -> dict[str, Any] | None:
        """The record under ``key``, or None if it was never paid for."""
        with self._access():
            row = self._db.execute("SELECT body FROM records WHERE kind = ? AND key = ?", (kind, key)).fetchone()
            return None if row is None else json.loads(row[0])

    def put(self, kind: Kind, key: str, record: dict[str, Any]) -> None:
        """Writes a record and commits it. A key that is there already keeps its first record."""
        body = json.dumps(record, allow_nan=False)  # ASCII: what a model wrote may hold lone surrogates
        with self._access():
            self._db.execute(
                "INSERT OR IGNORE INTO records (kind, key, body, at) VALUES (?, ?, ?, ?)",
                (kind, key, body, time.time()),
            )

    def count(self, kind: Kind) -> int:
        with self._access():
            return self._db.execute("SELECT COUNT(*) FROM records WHERE kind = ?", (kind,)).fetchone()[0]

    def records(self, kind: Kind) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every (key, record) of a kind in the order of writing, a page at a time."""
        last = -1
        while True:
            with self._access():
                rows = self._db.execute(
                    "SELECT seq, key, body FROM records WHERE kind = ? AND seq > ? ORDER BY seq LIMIT 500", (kind, last)
                ).fetchall()
            for last, key, body in rows:  # noqa: B007 - `last` is the page's cursor
                with self._access():
                    record = json.loads(body)
                yield key, record
            if not rows:
                return

    def close(self) -> None:
        """Safe to call twice."""
        with self._mutex:
            self._db.close()
        self._unlock()

    @contextmanager
    def _access(self) -> Iterator[None]:
        """One thread at a time; what SQLite says becomes a named error."""
        try:
            with self._mutex:
                yield
        except (sqlite3.Error, ValueError) as error:
            raise self._error(error) from error

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _error(self, error: Exception) -> LedgerError:
        text = str(error)
        cure = "check that the folder exists and can be written, and that the disk has room"
        if isinstance(error, ValueError) or "malformed" in text or "not a database" in text:
            cure = "it is damaged: restore it from a copy or start a new run folder"
        elif "locked" in text:
            cure = "another process holds it; wait for it or choose another run folder"
        return LedgerError(f"{self.path or 'ledger in memory'}: {text}; {cure}")


def _lock(path: Path) -> IO[bytes]:
    """An advisory lock that dies with the process, so that two runs never write one ledger."""
    handle = path.with_suffix(".lock").open("ab")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise LedgerError(f"{path}: another run is using this folder; wait for it or choose another one") from None
    os.set_inheritable(handle.fileno(), False)
    return handle


def _difference(old: str, new: str) -> str:
    """The first few keys in which two JSON objects differ; the plain values if they are no objects."""
    try:
        a, b = json.loads(old), json.loads(new)
    except ValueError:
        return f"{old!r} then, {new!r} now"
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return f"{old!r} then, {new!r} now"
    keys = [k for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k)]
    return "; ".join(f"{k} was {a.get(k)!r}, is {b.get(k)!r}" for k in keys[:5])
