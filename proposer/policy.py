"""The Proposer protocol, what it reads (Context) and what it writes (Proposal), and the proposers that are models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

from reharness.envs.errors import EngineError
from reharness.envs.types import Question, Task, content_hash
from reharness.proposer.prompts import messages
from reharness.proposer.report import CountTokens, EditRecord, build_report
from reharness.solver.evaluate import gather_all
from reharness.solver.harness import Harness
from reharness.solver.models.base import Engine, Message, Sampling
from reharness.solver.outcomes import Scorecard


@dataclass(frozen=True)
class Context:
    """One step's x_t = (task, h_{t-1}, report), and what its edits are judged on.

    ``messages`` is all that a proposer which is a model reads. ``scoring`` and ``parent_card`` (the parent's scorecard
    on ``scoring``) are for ``judge`` and are never worded into the messages; a proposer is given ``scoring`` empty.
    """

    task: Task
    parent: Harness
    messages: tuple[Message, ...]
    scoring: tuple[Question, ...] = field(repr=False)
    parent_card: Scorecard = field(repr=False)
    history: tuple[EditRecord, ...] = ()
    repeats: int = 1

    @cached_property
    def key(self) -> str:
        """The context's content hash: equal keys, equal contexts. A group is the proposals of one key."""
        return content_hash("context", self.task.name, self.parent.fingerprint, [dict(m) for m in self.messages])


def make_context(
    task: Task,
    parent: Harness,
    *,
    feedback: Sequence[Question],
    feedback_card: Scorecard,
    scoring: Sequence[Question],
    parent_card: Scorecard,
    history: Sequence[EditRecord] = (),
    repeats: int = 1,
    window: int = 4096,
    count_tokens: CountTokens,
) -> Context:
    """The context of one step. The report is built from ``feedback`` and its scorecard only."""
    report = build_report(task, feedback, feedback_card, history)
    text = messages(task.description, parent.source, report, window, count_tokens)
    return Context(task, parent, tuple(text), tuple(scoring), parent_card, tuple(history), repeats)


@dataclass(frozen=True)
class Proposal:
    """One raw completion for a context. ``weights`` is the id of the weights that wrote it."""

    context: str
    """The context's key."""
    index: int
    text: str
    weights: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str = "stop"
    think_prefilled: bool = False
    """Whether the chat template had already opened `<think>`."""


@runtime_checkable
class Proposer(Protocol):
    """Anything that writes edits. Third parties register theirs by the entry-point group ``reharness.proposers``: a
    callable ``(**params) -> Proposer``; a co-evolution loop takes any object with this protocol."""

    name: str

    @property
    def identity(self) -> str:
        """What determines the proposals (weights, sampling, seed): part of their ledger key."""
        ...

    async def propose(self, contexts: Sequence[Context], n: int) -> list[list[Proposal]]:
        """Exactly ``n`` proposals per context, in order."""
        ...

    async def aclose(self) -> None: ...


class ModelProposer:
    """A language model behind any engine. Proposal ``i`` for a context is seeded by (``seed``, context key, ``i``)."""

    name = "model"

    def __init__(self, engine: Engine, sampling: Sampling | None = None, seed: int = 0, think: bool = False) -> None:
        self.engine, self.seed, self.think = engine, seed, think
        self.sampling = sampling or Sampling(max_tokens=512, temperature=0.8)

    @property
    def identity(self) -> str:
        return content_hash("model", self.engine.identity.__dict__, self.sampling.__dict__, self.seed, self.think)

    async def propose(self, contexts: Sequence[Context], n: int) -> list[list[Proposal]]:
        flat = await gather_all(self._one(context, i) for context in contexts for i in range(n))
        return [flat[k * n : (k + 1) * n] for k in range(len(contexts))]

    async def _one(self, context: Context, index: int) -> Proposal:
        s = self.sampling
        seed = int(content_hash(self.seed, context.key, index)[:8], 16) >> 1
        c = await self.engine.generate(context.messages, Sampling(s.max_tokens, s.temperature, s.top_p, seed, s.stop))
        return Proposal(
            context.key, index, c.text, c.weights, c.prompt_tokens, c.completion_tokens, c.finish_reason, self.think
        )

    async def aclose(self) -> None:
        """The engine is closed by whoever made it."""


class ScriptedProposer:
    """For tests: gives the listed completions in turn, from the first for every context."""

    name = "scripted"

    def __init__(self, completions: Sequence[str]) -> None:
        self.completions = tuple(completions)

    @property
    def identity(self) -> str:
        return content_hash("scripted", self.completions)

    async def propose(self, contexts: Sequence[Context], n: int) -> list[list[Proposal]]:
        texts = [self.completions[i % len(self.completions)] for i in range(n)]
        return [[Proposal(c.key, i, text, "scripted") for i, text in enumerate(texts)] for c in contexts]

    async def aclose(self) -> None:
        pass


class ReplayProposer:
    """For tests and audits: gives back recorded completions by context key. Raises ``EngineError`` for a context that
    was not recorded with as many."""

    name = "replay"

    def __init__(self, recorded: Mapping[str, Sequence[str]]) -> None:
        self.recorded = {key: tuple(texts) for key, texts in recorded.items()}

    @property
    def identity(self) -> str:
        return content_hash("replay", self.recorded)

    async def propose(self, contexts: Sequence[Context], n: int) -> list[list[Proposal]]:
        out = []
        for context in contexts:
            texts = self.recorded.get(context.key, ())
            if len(texts) < n:
                raise EngineError(f"replay: {len(texts)} of {n} proposals were recorded for context {context.key[:12]}")
            out.append([Proposal(context.key, i, text, "replay") for i, text in enumerate(texts[:n])])
        return out

    async def aclose(self) -> None:
        pass
