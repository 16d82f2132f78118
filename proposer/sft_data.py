"""Demonstrations as tokens, and the order in which they are trained on. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from reharness.envs.errors import ConfigError
from reharness.proposer.demo_rows import DemoRow
from reharness.solver.models.chat import ChatTokenizer

IGNORED = -100
"""The label of a token that is not trained on."""

_BUCKET_STEPS = 8
"""Rows of as many optimiser steps are sorted by length together: less padding, still a mixture of everything."""


@dataclass(frozen=True)
class Encoded:
    """A row as tokens: the prompt exactly as an engine sends it, the completion with the end of its turn."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)

    @property
    def input_ids(self) -> list[int]:
        return [*self.prompt, *self.completion]

    @property
    def labels(self) -> list[int]:
        return [IGNORED] * len(self.prompt) + list(self.completion)


def encode(rows: Sequence[DemoRow], chat: ChatTokenizer, window: int) -> list[Encoded]:
    """The rows as tokens, in order. Raises ``ConfigError`` for a ``window`` beyond the model's, for a row longer than
    ``window`` (naming it and its tokens), and for a chat template that does not end a turn where completions end."""
    if window > chat.window:
        raise ConfigError(f"window = {window}: {chat.folder} holds {chat.window} tokens; lower `window`")
    end = end_of_turn(chat)
    encoded = []
    for row in rows:
        prompt = chat.encode(chat.render([m.model_dump() for m in row.messages]))
        one = Encoded(tuple(prompt), (*chat.encode(row.completion), end))
        if len(one) > window:
            raise ConfigError(
                f"demonstration {row.id[:12]} ({row.task}) has {len(one)} tokens ({len(prompt)} of them prompt), over"
                f" the window of {window}; raise `window`, or make the demonstrations with a shorter context"
            )
        encoded.append(one)
    return encoded


def end_of_turn(chat: ChatTokenizer) -> int:
    """The token that the chat template puts after what the assistant wrote, and that ends a completion.

    Raises ``ConfigError`` when the two are not the same: what is trained would never stop when deployed.
    """
    text = "ANSWER"
    shown = chat.render([{"role": "user", "content": "QUESTION"}, {"role": "assistant", "content": text}])
    _, found, rest = shown.rpartition(text)
    ids = chat.encode(rest)
    if not found or not ids or ids[0] not in chat.eos_ids:
        raise ConfigError(
            f"{chat.folder}: its chat template does not end the assistant's turn with a token that ends a completion;"
            " mend eos_token_id in generation_config.json, or the template"
        )
    return ids[0]


def training_order(lengths: Sequence[int], total: int, batch: int, accumulation: int, seed: int) -> list[int]:
    """The rows of all epochs, as ``total`` indices into ``lengths``, in the order of training; ``batch`` at a time.

    Every epoch is shuffled; then batches of rows of similar length are formed among the rows of a few neighbouring
    steps, and those batches shuffled. It depends on nothing but the arguments, so a run that goes on from step k goes
    on at index k * batch * accumulation.
    """
    rng = random.Random(seed)
    stream: list[int] = []
    while len(stream) < total:
        epoch = list(range(len(lengths)))
        rng.shuffle(epoch)
        stream += epoch
    del stream[total:]
    order: list[int] = []
    size = batch * accumulation * _BUCKET_STEPS
    for start in range(0, total, size):
        bucket = sorted(stream[start : start + size], key=lambda i: (lengths[i], i))
        batches = [bucket[i : i + batch] for i in range(0, len(bucket), batch)]
        last = batches.pop() if len(batches[-1]) < batch else []  # a short batch elsewhere would shift all others
        rng.shuffle(batches)
        order += [i for rows in batches for i in rows] + last
    return order


def padded_tokens(lengths: Sequence[int], order: Sequence[int], batch: int) -> int:
    """Tokens that the model computes on, padding included."""
    batches = [[lengths[i] for i in order[start : start + batch]] for start in range(0, len(order), batch)]
    return sum(max(rows) * len(rows) for rows in batches)
