"""The engine protocol: one language model, whoever runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

Message = Mapping[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``."""


@dataclass(frozen=True)
class Sampling:
    """How to sample. ``temperature`` 0 is greedy, and then ``seed`` has no part in the result."""

    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()

    def key(self) -> dict[str, Any]:
        """What determines the result: greedy decoding does not depend on seed or nucleus."""
        fields = asdict(self)
        if self.temperature == 0.0:
            fields.update(seed=0, top_p=1.0)
        return fields


@dataclass(frozen=True)
class Completion:
    """One completion. ``weights`` is the id of the weights that really produced it, as the engine reports it."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: Literal["stop", "length"]
    weights: str


@dataclass(frozen=True)
class EngineIdentity:
    """What determines an engine's completions; part of every ledger key."""

    engine: str
    """Implementation, e.g. ``openvino-genai``, ``transformers``, ``endpoint``."""
    weights: str
    """Hash of the weights file(s), of base + adapter, or the model name an endpoint reports."""
    quantisation: str = ""
    template: str = ""
    """Hash of the chat template, where we apply it ourselves."""


@runtime_checkable
class Engine(Protocol):
    """A language model. ``generate`` may be called many times at once; the engine batches as it can.

    Errors: ``EngineError`` when the model cannot answer (after the engine's own bounded retries).
    """

    @property
    def identity(self) -> EngineIdentity: ...

    async def probe(self) -> None:
        """One cheap check that the engine can work (endpoint up, key valid, model known). Raises EngineError."""
        ...

    async def generate(self, messages: Sequence[Message], sampling: Sampling) -> Completion: ...

    def count_tokens(self, text: str) -> int:
        """Length of ``text`` in this model's tokens (an endpoint without a tokenizer estimates bytes / 4)."""
        ...

    async def aclose(self) -> None:
        """Ends worker processes and connections; safe to call twice."""
        ...
