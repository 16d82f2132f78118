"""Proposers that write moves of the library: every one in turn, or one at random. Neither reads the report's cases."""

from __future__ import annotations

import random
from collections.abc import Sequence

from reharness.envs.types import content_hash
from reharness.proposer.edits import apply_edit
from reharness.proposer.moves import moves_for
from reharness.proposer.policy import Context, Proposal

NO_MOVE = "No move of the library is left to try here.\nNO CHANGE\n"


class MoveSearch:
    """Tries the library's moves in its order, those that the chain already tried on any parent left out; it keeps
    none by itself: selection does. When no move is left it answers with an explicit no-change."""

    name = "move_search"
    identity = "library/1"

    async def propose(self, contexts: Sequence[Context], n: int) -> list[list[Proposal]]:
        return [_numbered(context, self._untried(context)[:n], n) for context in contexts]

    def _untried(self, context: Context) -> list[str]:
        tried = {record.description for record in context.history}
        completions = [text for _, text in moves_for(context.parent.source)]
        return [t for t in completions if apply_edit(context.parent.source, t).description not in tried]

    async def aclose(self) -> None:
        pass


class RandomMove:
    """One move drawn at random (uniformly, with replacement) per proposal, by (``seed``, context key, index)."""

    name = "random_move"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    @property
    def identity(self) -> str:
        return f"library/1 seed {self.seed}"

    async def propose(self, contexts: Sequence[Context], n: int) -> list[list[Proposal]]:
        return [_numbered(context, self._drawn(context, n), n) for context in contexts]

    def _drawn(self, context: Context, n: int) -> list[str]:
        completions = [text for _, text in moves_for(context.parent.source)] or [NO_MOVE]
        return [random.Random(content_hash(self.seed, context.key, i)).choice(completions) for i in range(n)]

    async def aclose(self) -> None:
        pass


def _numbered(context: Context, texts: list[str], n: int) -> list[Proposal]:
    padded = texts + [NO_MOVE] * (n - len(texts))
    return [Proposal(context.key, i, text, "moves") for i, text in enumerate(padded)]
