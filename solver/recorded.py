"""An engine whose every completion is in the ledger: asked once, paid once, also when two ask at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from reharness.envs.errors import EngineError, LedgerError
from reharness.envs.types import content_hash
from reharness.solver.inflight import InFlight
from reharness.solver.ledger import Ledger
from reharness.solver.models.base import Completion, Engine, EngineIdentity, Message, Sampling


class RecordedEngine:
    """``engine`` behind ``ledger``. A completion is keyed by engine identity, messages and sampling (greedy decoding
    does not depend on the seed, so equal greedy prompts are one call), and written before it is returned.

    ``paid`` counts the calls and tokens that really went to the engine through this object.
    """

    def __init__(self, engine: Engine, ledger: Ledger) -> None:
        self.engine, self.ledger = engine, ledger
        self.paid_calls = self.paid_prompt_tokens = self.paid_completion_tokens = 0
        self._pending = InFlight[Completion]()

    @property
    def identity(self) -> EngineIdentity:
        return self.engine.identity

    async def probe(self) -> None:
        await self.engine.probe()

    def count_tokens(self, text: str) -> int:
        return self.engine.count_tokens(text)

    async def aclose(self) -> None:
        await self.engine.aclose()

    def key(self, messages: Sequence[Message], sampling: Sampling) -> str:
        return content_hash("call", asdict(self.identity), [dict(m) for m in messages], sampling.key())

    async def generate(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Raises what the engine raises; a failed call leaves nothing behind and is asked again next time."""
        key = self.key(messages, sampling)
        if (record := self.ledger.get("call", key)) is not None:
            return Completion(**record)
        return await self._pending(key, lambda: self._pay(key, messages, sampling))

    async def stop(self) -> None:
        """Stops the calls under way (their answers are lost, nothing else is)."""
        await self._pending.stop()

    async def _pay(self, key: str, messages: Sequence[Message], sampling: Sampling) -> Completion:
        completion = await self.engine.generate(messages, sampling)
        try:  # the weights that answered first are the weights of this run, also after a restart
            self.ledger.bind(f"weights of {self.identity.engine} {self.identity.weights}", completion.weights)
        except LedgerError as error:
            raise EngineError(f"{self.identity.engine}: answers with other weights than before: {error}") from error
        self.ledger.put("call", key, asdict(completion))
        self.paid_calls += 1
        self.paid_prompt_tokens += completion.prompt_tokens
        self.paid_completion_tokens += completion.completion_tokens
        return completion
