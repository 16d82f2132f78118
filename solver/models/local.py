"""What the in-process engines share: templating and tokens on the host, the model in a worker process."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from reharness.envs.errors import EngineError
from reharness.solver.models.base import Completion, EngineIdentity, Message, Sampling, cut_at_stop
from reharness.solver.models.chat import ChatTokenizer
from reharness.solver.models.worker import Worker


def usable_threads() -> int:
    """At most two, at most the cores that we may use: more threads than free cores fall to ~1 token/s."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(2, cores)


class LocalEngine(ABC):
    """An engine whose model runs in a worker process of its own. A subclass gives the tokenizer, the identity, and how
    its backend is built.

    Requests to the backend: ``{"ids", "max_tokens", "temperature", "top_p", "seed", "stop"}``; its answers:
    ``{"ids": generated tokens, "finish": "stop" | "length", "weights": id of the weights that it loaded}``.
    """

    backend: str
    """``"module:Class"`` of the worker's side."""

    def __init__(self, options: dict[str, Any], threads: int | None = None) -> None:
        self.threads = threads or usable_threads()
        self._worker = Worker(self.backend, {**options, "threads": self.threads}, threads=self.threads)

    @property
    @abstractmethod
    def identity(self) -> EngineIdentity: ...

    @property
    @abstractmethod
    def chat(self) -> ChatTokenizer: ...

    async def probe(self) -> None:
        """Loads the model. Raises ``EngineError`` when it cannot be loaded, or is not what ``identity`` says."""
        self._check((await self._worker.info())["weights"])

    async def generate(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        return await self.generate_text(self.chat.render(messages), sampling)

    async def generate_text(self, prompt: str, sampling: Sampling) -> Completion:
        ids, max_tokens = self.chat.fit(prompt, sampling)
        answer = await self._worker.call({
            "ids": ids, "max_tokens": max_tokens, "temperature": sampling.temperature, "top_p": sampling.top_p,
            "seed": sampling.seed, "stop": list(sampling.stop),
        })  # fmt: skip
        self._check(answer["weights"])
        text, stopped = cut_at_stop(self.chat.decode(answer["ids"]), sampling.stop)
        ended = stopped or answer["finish"] == "stop"
        return Completion(text, len(ids), len(answer["ids"]), "stop" if ended else "length", answer["weights"])

    def _check(self, weights: str) -> None:
        if weights != self.identity.weights:
            raise EngineError(
                f"{self._worker.name}: loaded the weights {weights[:16]}, not {self.identity.weights[:16]}: the model"
                " changed on disk while it was in use; start again"
            )

    def count_tokens(self, text: str) -> int:
        return len(self.chat.encode(text))

    async def aclose(self) -> None:
        await self._worker.aclose()
