"""The engine protocol: one language model, whoever runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from reharness.envs.errors import ReharnessError

Message = Mapping[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``."""


@dataclass(frozen=True)
class Sampling:
    """How to sample. ``temperature`` 0 is greedy, and then ``seed`` (0 to 2**31 - 1) has no part in the result."""

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


class PromptRejected(ReharnessError):
    """This prompt can have no completion. That is the doing of whoever wrote the prompt (a harness), not of the engine,
    so it is no ``EngineError``: inside a run it becomes an error that the harness sees."""


class PromptTooLong(PromptRejected):
    """The prompt leaves no room in the model's context window."""


@runtime_checkable
class Engine(Protocol):
    """A language model. ``generate`` may be called many times at once; the engine batches as it can. An engine may be
    used from several event loops, one after the other.

    Errors: ``EngineError`` when the model cannot answer (after the engine's own bounded retries), ``PromptRejected``
    (``PromptTooLong``) when this prompt can have no answer. ``max_tokens`` is lowered to what the window still holds.
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


@runtime_checkable
class TextEngine(Engine, Protocol):
    """An engine that also completes text which the caller has put through the chat template already."""

    async def generate_text(self, prompt: str, sampling: Sampling) -> Completion: ...


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """The text before the first of the stop strings, and whether there was one."""
    found = [at for s in stop if s and (at := text.find(s)) >= 0]
    return (text[: min(found)], True) if found else (text, False)
