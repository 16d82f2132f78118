"""Decoding a batch with a transformers model: every row with its own sampling, seed and end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch

    from reharness.solver.models.chat import ChatTokenizer

ROOM = 64
"""Tokens that a cache has room for before it is copied."""


@dataclass
class Row:
    """One request of a batch: its payload (see ``LocalEngine``) and what was generated so far."""

    request: int
    payload: dict[str, Any]
    generator: np.random.Generator | None
    """None is greedy. Its own, so that what is sampled does not depend on the other rows."""
    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    """Of every token of ``ids`` when it was sampled, at the row's temperature, before the nucleus; none if greedy."""


class DecodingBatch:
    """Requests that are prefilled together and then decoded token by token; a row leaves the batch when it ends.

    Equal prompts are prefilled once (n samples of one context). Rows are padded on the left.
    """

    def __init__(
        self, model: Any, tokenizer: ChatTokenizer, pad_id: int, requests: Sequence[tuple[int, dict[str, Any]]]
    ) -> None:
        import torch

        self.model, self.tokenizer = model, tokenizer
        self.eos = frozenset(tokenizer.eos_ids)
        self.rows = [Row(request, payload, _generator(payload)) for request, payload in requests]
        prompts = list(dict.fromkeys(tuple(row.payload["ids"]) for row in self.rows))
        longest = max(map(len, prompts))
        ids = torch.tensor([[pad_id] * (longest - len(p)) + list(p) for p in prompts], device=model.device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=model.device)
        with torch.inference_mode():
            self._forward(ids, mask, (mask.cumsum(-1) - 1).clamp(min=0), None)
            with_room(self._cache)
        self._mask, self._position = mask, mask.sum(-1, keepdim=True)
        self._select([prompts.index(tuple(row.payload["ids"])) for row in self.rows])

    def step(self) -> list[tuple[Row, str]]:
        """One more token for every row; returns the rows that ended, with ``"stop"`` or ``"length"``."""
        import torch

        with torch.inference_mode():
            tokens = self._sample()
            ended = []
            for row, token in zip(self.rows, tokens.tolist(), strict=True):
                row.ids.append(token)
                if finish := self._finish(row):
                    ended.append((row, finish))
            gone = {row.request for row, _ in ended}
            left = [i for i, row in enumerate(self.rows) if row.request not in gone]
            if ended:
                self.rows = [self.rows[i] for i in left]
                if not left:
                    return ended
                self._select(left)
                tokens = tokens[left]
            self._mask = torch.cat([self._mask, self._mask.new_ones(len(self.rows), 1)], dim=-1)
            self._forward(tokens[:, None], self._mask, self._position, self._cache)
            self._position = self._position + 1
        return ended

    def drop(self, request: int) -> None:
        """Takes a cancelled row out."""
        left = [i for i, row in enumerate(self.rows) if row.request != request]
        if len(left) < len(self.rows):
            self.rows = [self.rows[i] for i in left]
            if left:
                self._select(left)

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, position: torch.Tensor, cache: Any) -> None:
        output = self.model(
            input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True,
            logits_to_keep=1,
        )  # fmt: skip
        self._logits, self._cache = output.logits[:, -1].float(), output.past_key_values

    def _select(self, indices: Iterable[int]) -> None:
        import torch

        chosen = torch.tensor(list(indices), device=self._logits.device)
        self._cache.batch_select_indices(chosen)
        self._logits, self._mask, self._position = self._logits[chosen], self._mask[chosen], self._position[chosen]

    def _sample(self) -> torch.Tensor:
        tokens = self._logits.argmax(-1)
        for i, row in enumerate(self.rows):
            if row.generator is not None:
                p = (self._logits[i] / row.payload["temperature"]).softmax(-1)
                tokens[i] = draw(nucleus(p, row.payload["top_p"]), row.generator)
                row.logps.append(p[tokens[i]].log().item())
        return tokens

    def _finish(self, row: Row) -> str | None:
        if row.ids[-1] in self.eos:
            return "stop"
        stops = row.payload["stop"]
        if stops:
            tail = row.ids[-1 - max(len(s.encode()) for s in stops) :]  # a token is a byte at least
            text = self.tokenizer.decode(tail)
            if any(s in text for s in stops):
                return "stop"
        return "length" if len(row.ids) >= row.payload["max_tokens"] else None


@cache
def room_layer() -> type:
    """The class of a cache layer with room for tokens to come. transformers' own copies all it holds for every token,
    which took half of a decoding step (64 rows of 560 tokens on two cores)."""
    from transformers.cache_utils import DynamicLayer

    class RoomLayer(DynamicLayer):
        """``keys`` and ``values`` (rows, heads, tokens, width) are the filled part of ``store``."""

        store: tuple[torch.Tensor, torch.Tensor]

        def __init__(self, layer: DynamicLayer) -> None:
            super().__init__()
            self.lazy_initialization(layer.keys, layer.values)  # type: ignore[arg-type]
            self._fill(layer.keys, layer.values)  # type: ignore[arg-type]

        def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Any:
            if self.keys.shape[-2] + key_states.shape[-2] > self.store[0].shape[-2]:  # type: ignore[union-attr]
                self._fill(self.keys, self.values)  # type: ignore[arg-type]
            self._show(*self._append(key_states, value_states))
            return self.keys, self.values

        def batch_select_indices(self, indices: torch.Tensor) -> None:
            order = indices.tolist()
            if order == sorted(set(order)):  # rows that leave: the others move up in place
                for to, row in enumerate(order):
                    if to != row:
                        for part in self.store:
                            part[to] = part[row]
                self.store = self.store[0][: len(order)], self.store[1][: len(order)]
                self._show(self.keys.shape[-2], len(order))  # type: ignore[union-attr]
            else:
                self._fill(self.keys[indices], self.values[indices])  # type: ignore[index]

        def _fill(self, keys: torch.Tensor, values: torch.Tensor) -> None:
            rows, heads, tokens, _ = keys.shape
            self.store = tuple(  # type: ignore[assignment]
                part.new_empty(rows, heads, tokens + ROOM, part.shape[-1]) for part in (keys, values)
            )
            self.keys, self.values = (store[:, :, :0] for store in self.store)
            self._show(*self._append(keys, values))

        def _append(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[int, int]:
            start, end = self.keys.shape[-2], self.keys.shape[-2] + keys.shape[-2]  # type: ignore[union-attr]
            for store, part in zip(self.store, (keys, values), strict=True):
                store[:, :, start:end] = part
            return end, len(keys)

        def _show(self, tokens: int, rows: int) -> None:
            self.keys, self.values = (store[:rows, :, :tokens] for store in self.store)

    return RoomLayer


def with_room(cache: Any) -> None:
    """Gives the plain layers of a filled cache room for tokens to come; others, such as sliding windows, stay."""
    from transformers.cache_utils import DynamicLayer

    cache.layers = [room_layer()(layer) if type(layer) is DynamicLayer else layer for layer in cache.layers]


def _generator(payload: dict[str, Any]) -> np.random.Generator | None:
    import numpy as np

    return np.random.default_rng(payload["seed"]) if payload["temperature"] > 0 else None


def nucleus(p: torch.Tensor, top_p: float) -> torch.Tensor:
    """``p`` (V,) with everything outside the smallest set of likeliest tokens that holds ``top_p`` set to 0."""
    if top_p >= 1:
        return p
    ordered, order = p.topk(min(1024, len(p)))  # mostly enough, and far cheaper than sorting the vocabulary
    if ordered.sum() < top_p:
        ordered, order = p.sort(descending=True)
    inside = ordered.cumsum(-1) - ordered < top_p
    inside[0] = True
    return p.new_zeros(p.shape).scatter(0, order[inside], ordered[inside])


def draw(p: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
    """A token with probability proportional to ``p`` (V,): the argmax of p over exponential noise. Unlike the inverse
    of a cumulative sum it seldom changes its mind over the last bits of ``p``, which depend on the batch. The noise is
    of double precision: in single precision one in 2**23 numbers is 0, and over a vocabulary of 49,152 every 170th
    token would be an arbitrary one."""
    import torch

    noise = torch.from_numpy(generator.standard_exponential(len(p)))  # much faster than torch's own on a CPU
    return (p.double() / noise.to(p.device)).argmax(-1)
