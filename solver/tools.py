"""What a harness may call: llm, python and note, with budgets that the host counts. One ``ToolHost`` serves one run."""

from __future__ import annotations

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

TOOL_PROFILE = "llm,python,note/1"
"""Names the tools and their contract; part of every outcome's key."""


@dataclass(frozen=True)
class Budgets:
    """What one run may ask for. Passing a budget ends the run as failed(budget)."""

    llm_calls: int = 64
    completion_tokens: int = 32_768
    """Counted as asked for (``max_tokens`` of every call), whatever came: so that it does not matter which calls are in
    flight together."""
    prompt_chars: int = 262_144
    max_tokens: int = 2_048
    """The cap on one call's ``max_tokens``; a higher one is lowered to it."""
    python_calls: int = 32
    python_s: float = 10.0
    """CPU seconds of one python call; a longer ``timeout`` is lowered to it."""
    python_total_s: float = 30.0
    """CPU seconds of all python calls of one run."""
    observation_chars: int = 2_000
    """How much of a prompt, reply or output the trace keeps (the middle is cut out)."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < (1 if name in ("max_tokens", "observation_chars") else 0):
                raise ValueError(f"{name} must not be {value}")


class ToolHost:
    """Answers one run's tool calls, whose parameters the sandbox's wire has checked. ``seed`` is the outcome's key:
    sampling is seeded by (outcome key, prompt hash, occurrence), never by order of arrival."""

    def __init__(self, engine: RecordedEngine, sandbox: Sandbox, budgets: Budgets, seed: str) -> None:
        self.engine, self.sandbox, self.budgets, self.seed = engine, sandbox, budgets, seed
        self._trace: list[Event | None] = []
        self.llm_calls = self.prompt_tokens = self.completion_tokens = self.python_calls = 0
        self._asked_tokens = self._prompt_chars = 0
        self._python_s = 0.0
        self._seen: Counter[str] = Counter()

    async def __call__(self, method: str, params: dict[str, Any]) -> Any:
        if method == "llm":
            return await self.llm(**params)
        if method == "python":
            return await self.python(**params)
        if method == "note":
            return self.note(**params)
        raise ToolError(f"there is no tool {method!r}")

    async def llm(self, messages: list[dict[str, str]], max_tokens: int, temperature: float) -> str:
        sampling = self._sampling(messages, max_tokens, temperature)
        chars = sum(len(m["content"]) for m in messages)
        self._within("llm_calls", self.llm_calls + 1)
        self._within("completion_tokens", self._asked_tokens + sampling.max_tokens)
        self._within("prompt_chars", self._prompt_chars + chars)
        self.llm_calls += 1
        self._asked_tokens += sampling.max_tokens
        self._prompt_chars += chars
        place = self._place()
        try:
            completion = await self.engine.generate(messages, sampling)
        except PromptRejected as error:
            raise ToolError(str(error)) from None
        self.prompt_tokens += completion.prompt_tokens
        self.completion_tokens += completion.completion_tokens
        self._note(place, "llm", prompt=messages[-1]["content"], messages=len(messages), reply=completion.text,
                   max_tokens=sampling.max_tokens, temperature=sampling.temperature, finish=completion.finish_reason)
        return completion.text

    def _sampling(self, messages: list[dict[str, str]], max_tokens: int, temperature: float) -> Sampling:
        prompt = content_hash(messages, max_tokens, temperature)
        self._seen[prompt] += 1
        seed = int(content_hash(self.seed, prompt, self._seen[prompt])[:8], 16) >> 1
        return Sampling(min(max_tokens, self.budgets.max_tokens), temperature, seed=seed)

    def _within(self, name: str, value: int) -> None:
        if value > (budget := getattr(self.budgets, name)):
            raise BudgetExceeded(f"{name}: {value} asked for, {budget} allowed")

    async def python(self, code: str, timeout: float) -> dict[str, Any]:
        self._within("python_calls", self.python_calls + 1)
        self.python_calls += 1
        place = self._place()
        seconds = min(timeout, self.budgets.python_s)
        result = await self.sandbox.python(code, Limits(cpu_s=seconds, wall_s=seconds + 1))
        self._python_s += result.cpu_s
        if self._python_s > (budget := self.budgets.python_total_s):
            raise BudgetExceeded(f"python_total_s: {self._python_s:.1f} s used, {budget:g} s allowed")
        self._note(place, "python", code=code, stdout=result.stdout, error=result.error)
        return {"stdout": result.stdout, "error": result.error}

    def note(self, text: str) -> None:
        self._note(self._place(), "note", text=text)

    @property
    def trace(self) -> tuple[Event, ...]:
        """What was asked for, in the order of asking (not of the answers: those come as the engine pleases)."""
        return tuple(event for event in self._trace if event is not None)

    def _place(self) -> int:
        self._trace.append(None)
        return len(self._trace) - 1

    def _note(self, place: int, kind: Any, **data: Any) -> None:
        keep = self.budgets.observation_chars
        self._trace[place] = Event(kind, {k: _cut(v, keep) if isinstance(v, str) else v for k, v in data.items()})


def _cut(text: str, limit: int) -> str:
    """The text, or its two ends when it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = (limit - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"
