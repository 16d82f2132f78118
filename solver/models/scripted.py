"""An engine that answers by rule: for tests, examples and benchmarks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence

from reharness.envs.errors import EngineError
from reharness.envs.types import content_hash
from reharness.solver.models.base import Completion, EngineIdentity, Message, Sampling, cut_at_stop

Reply = Callable[[Sequence[Message], Sampling], str]


class ScriptedEngine:
    """Answers from ``replies``: a function of messages and sampling; a mapping from the last message's content; or a
    list, used in order of arrival. A "token" is a word. ``calls`` holds what was asked.

    ``latency_s`` is waited out before every answer, any number at once. Raises ``EngineError`` when the script has no
    reply; what a function raises is passed on.
    """

    def __init__(
        self, replies: Reply | Mapping[str, str] | Sequence[str], *, latency_s: float = 0.0, name: str = "scripted"
    ) -> None:
        self.latency_s, self.calls = latency_s, list[tuple[list[Message], Sampling]]()
        self._used = 0
        self._reply = replies if callable(replies) else self._look_up
        self._replies = replies
        script = "function" if callable(replies) else content_hash(replies)[:16]
        self.identity = EngineIdentity(engine="scripted", weights=f"{name}:{script}")

    async def probe(self) -> None:
        """A script can always answer."""

    async def generate(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.calls.append((list(messages), sampling))
        text = self._reply(messages, sampling)
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        text, _ = cut_at_stop(text, sampling.stop)
        words = re.findall(r"\s*\S+", text)
        if cut := len(words) > sampling.max_tokens:
            text = "".join(words[: sampling.max_tokens])
        return Completion(
            text=text,
            prompt_tokens=sum(self.count_tokens(m["content"]) for m in messages),
            completion_tokens=min(len(words), sampling.max_tokens),
            finish_reason="length" if cut else "stop",
            weights=self.identity.weights,
        )

    async def generate_text(self, prompt: str, sampling: Sampling) -> Completion:
        return await self.generate([{"role": "user", "content": prompt}], sampling)

    def _look_up(self, messages: Sequence[Message], sampling: Sampling) -> str:
        asked = messages[-1]["content"]
        if isinstance(self._replies, Mapping):
            if asked not in self._replies:
                raise EngineError(f"the script has no reply to {asked!r:.200}; it knows {len(self._replies)} prompts")
            return self._replies[asked]
        assert not callable(self._replies)
        self._used += 1
        if self._used > len(self._replies):
            raise EngineError(f"the script has {len(self._replies)} replies, and was asked {self._used} times")
        return self._replies[self._used - 1]

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def aclose(self) -> None:
        """Nothing to end."""
