"""What a harness may call: llm, python and note, with budgets that the host counts. One ``ToolHost`` serves one run."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reharness.envs.types import content_hash
from reharness.solver.models.base import PromptRejected, Sampling
from reharness.solver.outcomes import Event
from reharness.solver.recorded import RecordedEngine
from reharness.solver.sandbox.types import BudgetExceeded, Limits, ToolError

if TYPE_CHECKING:
    from reharness.solver.sandbox import Sandbox

ROLES = ("system", "user", "assistant")
TOOL_PROFILE = "llm,python,note/1"
"""Names the tools and their contract; part of every outcome's key."""


@dataclass(frozen=True)
class Budgets:
    """What one run may ask for. Passing a budget ends the run as failed(budget)."""

    llm_calls: int = 64
    completion_tokens: int = 16_384
    """Reserved at ``max_tokens`` before a call and given back when it stopped earlier."""
    prompt_chars: int = 262_144
    max_tokens: int = 2_048
    """The cap on one call's ``max_tokens``; a higher one is lowered to it."""
    python_calls: int = 32
    python_s: float = 10.0
    observation_chars: int = 2_000
    """How much of a prompt, reply or output the trace keeps (the middle is cut out)."""


class ToolHost:
    """Answers one run's tool calls. ``seed`` is the outcome's key: sampling is seeded by (outcome key, prompt hash,
    occurrence), never by order of arrival."""

    def __init__(self, engine: RecordedEngine, sandbox: Sandbox, budgets: Budgets, seed: str) -> None:
        self.engine, self.sandbox, self.budgets, self.seed = engine, sandbox, budgets, seed
        self.trace: list[Event] = []
        self.llm_calls = self.prompt_tokens = self.completion_tokens = self.python_calls = 0
        self._reserved = self._prompt_chars = 0
        self._seen: Counter[str] = Counter()

    async def __call__(self, method: str, params: dict[str, Any]) -> Any:
        if method == "llm":
            return await self.llm(**params)
        if method == "python":
            return await self.python(**params)
        if method == "note":
            return self.note(**params)
        raise ToolError(f"there is no tool {method!r}")

    async def llm(self, messages: Any, max_tokens: Any = 512, temperature: Any = 0.0) -> str:
        checked = _messages(messages)
        sampling = self._sampling(checked, max_tokens, temperature)
        self._reserve(checked, sampling.max_tokens)
        try:
            completion = await self.engine.generate(checked, sampling)
        except PromptRejected as error:
            raise ToolError(str(error)) from None
        finally:
            self._reserved -= sampling.max_tokens
        self.prompt_tokens += completion.prompt_tokens
        self.completion_tokens += completion.completion_tokens
        self._note("llm", prompt=checked[-1]["content"], messages=len(checked), max_tokens=sampling.max_tokens,
                   temperature=sampling.temperature, reply=completion.text, finish=completion.finish_reason)
        return completion.text

    def _sampling(self, messages: list[dict[str, str]], max_tokens: Any, temperature: Any) -> Sampling:
        if type(max_tokens) is not int or max_tokens < 1:
            raise ToolError(f"llm: max_tokens must be a whole number of at least 1, not {max_tokens!r:.50}")
        if type(temperature) not in (int, float) or not math.isfinite(temperature) or not 0 <= temperature <= 2:
            raise ToolError(f"llm: temperature must be a number from 0 to 2, not {temperature!r:.50}")
        prompt = content_hash(messages, max_tokens, float(temperature))
        self._seen[prompt] += 1
        seed = int(content_hash(self.seed, prompt, self._seen[prompt])[:8], 16) >> 1
        return Sampling(min(max_tokens, self.budgets.max_tokens), float(temperature), seed=seed)

    def _reserve(self, messages: list[dict[str, str]], max_tokens: int) -> None:
        self.llm_calls += 1
        self._prompt_chars += sum(len(m["content"]) for m in messages)
        wanted = {
            "llm_calls": self.llm_calls,
            "completion_tokens": self.completion_tokens + self._reserved + max_tokens,
            "prompt_chars": self._prompt_chars,
        }
        for name, value in wanted.items():
            if value > getattr(self.budgets, name):
                raise BudgetExceeded(f"{name}: {value} asked for, {getattr(self.budgets, name)} allowed")
        self._reserved += max_tokens

    async def python(self, code: Any, timeout: Any = 5.0) -> dict[str, Any]:
        if not isinstance(code, str):
            raise ToolError("python: code must be a string")
        if type(timeout) not in (int, float) or not math.isfinite(timeout) or timeout <= 0:
            raise ToolError(f"python: timeout must be a positive number of seconds, not {timeout!r:.50}")
        self.python_calls += 1
        if self.python_calls > self.budgets.python_calls:
            raise BudgetExceeded(f"python_calls: {self.python_calls} asked for, {self.budgets.python_calls} allowed")
        seconds = min(float(timeout), self.budgets.python_s)
        result = await self.sandbox.python(code, Limits(cpu_s=seconds, wall_s=seconds + 1))
        self._note("python", code=code, stdout=result.stdout, error=result.error)
        return {"stdout": result.stdout, "error": result.error}

    def note(self, text: Any) -> None:
        self._note("note", text=str(text))

    def _note(self, kind: Any, **data: Any) -> None:
        keep = self.budgets.observation_chars
        self.trace.append(Event(kind, {k: _cut(v, keep) if isinstance(v, str) else v for k, v in data.items()}))


def _messages(value: Any) -> list[dict[str, str]]:
    """A prompt, or a list of role/content messages, as messages."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise ToolError("llm: give a prompt string or a list of {'role', 'content'} messages that is not empty")
    for i, message in enumerate(value):
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            raise ToolError(f"llm: message {i} must have exactly the keys 'role' and 'content'")
        if message["role"] not in ROLES or not isinstance(message["content"], str):
            raise ToolError(f"llm: message {i} needs a role out of {', '.join(ROLES)} and a string content")
    return [dict(m) for m in value]


def _cut(text: str, limit: int) -> str:
    """The text, or its two ends when it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = (limit - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"
