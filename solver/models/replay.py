"""Completions recorded from one engine, answered again without it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from reharness.envs.errors import ConfigError, EngineError
from reharness.envs.types import content_hash
from reharness.solver.models.base import Completion, Engine, EngineIdentity, Message, Sampling


def request_key(messages: Sequence[Message], sampling: Sampling) -> str:
    """What determines a completion, given the engine."""
    return content_hash([dict(m) for m in messages], sampling.key())


class ReplayEngine:
    """Answers the requests in ``recorded`` (by ``request_key``) under the identity of the engine that made them.
    Raises ``EngineError`` for a request that was not recorded."""

    def __init__(self, recorded: Mapping[str, Completion], identity: EngineIdentity) -> None:
        self._recorded, self.identity = recorded, identity

    @classmethod
    def load(cls, path: Path) -> ReplayEngine:
        """From a file that ``RecordingEngine`` wrote. Raises ``ConfigError`` naming the file and line."""
        recorded: dict[str, Completion] = {}
        identity: EngineIdentity | None = None
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}); give recorded completions") from None
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                if identity is None:
                    identity = EngineIdentity(**row["identity"])
                    continue
                sampling = Sampling(**{**row["sampling"], "stop": tuple(row["sampling"]["stop"])})
                recorded[request_key(row["messages"], sampling)] = Completion(**row["completion"])
            except (ValueError, TypeError, KeyError) as error:
                raise ConfigError(f"{path}, line {number}: is not a recorded completion ({error!r})") from error
        if identity is None:
            raise ConfigError(f"{path}: is empty; its first line must be the engine's identity")
        return cls(recorded, identity)

    async def probe(self) -> None:
        """Raises ``EngineError`` when nothing is recorded."""
        if not self._recorded:
            raise EngineError("nothing is recorded to replay")

    async def generate(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        key = request_key(messages, sampling)
        if key not in self._recorded:
            raise EngineError(
                f"this request was not recorded ({len(self._recorded)} were): {sampling.key()},"
                f" {messages[-1]['content']!r:.200}"
            )
        return self._recorded[key]

    def count_tokens(self, text: str) -> int:
        """An estimate: the recording holds no tokenizer."""
        return len(text.encode()) // 4 + 1

    async def aclose(self) -> None:
        """Nothing to end."""


class RecordingEngine:
    """``engine``, every completion of which is appended to a JSONL file: the identity first, then one line each."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine, self._path = engine, path

    @property
    def identity(self) -> EngineIdentity:
        return self._engine.identity

    async def probe(self) -> None:
        await self._engine.probe()

    async def generate(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        completion = await self._engine.generate(messages, sampling)
        if not self._path.exists():
            self._append({"identity": asdict(self.identity)})
        self._append({
            "messages": [dict(m) for m in messages], "sampling": asdict(sampling), "completion": asdict(completion)
        })  # fmt: skip
        return completion

    def _append(self, row: dict[str, object]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def count_tokens(self, text: str) -> int:
        return self._engine.count_tokens(text)

    async def aclose(self) -> None:
        await self._engine.aclose()
