"""One pass over a prompt and all completions of its group, in place of one pass per completion.

The packed row is the prompt without its last token, then for every completion that last token and the completion. A
token sees the prompt and what stands before it in its own completion; its position is that of the unpacked row. So
every completion is predicted as in a row of its own, and the prompt, mostly the longest part, is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

IGNORED = -100


def group_logps(model: Any, input_ids: Any, attention_mask: Any, completion: int, limit: int) -> tuple[Any, Any]:
    """Log-probabilities and entropies [rows, completion] of the last ``completion`` tokens of every row, 0 where
    ``attention_mask`` [rows, tokens] is 0. The rows share their prompt, which is padded on the left, the completions on
    the right. ``model`` has TRL's fused head (``add_fused_lm_head``), which divides by the temperature. A pass holds at
    most ``limit`` tokens, unless one row alone has more.

    Raises ``ValueError`` when the rows do not share their prompt.
    """
    import torch

    if not same_prompt(input_ids, attention_mask, completion):
        raise ValueError("the rows of a group must share their prompt")
    lengths = attention_mask[:, -completion:].sum(dim=1).tolist()
    sizes = packs(lengths, int(attention_mask[0, :-completion].sum()), limit)
    parts = zip(input_ids.split(sizes), attention_mask.split(sizes), strict=True)
    found = [_packed_logps(model, *part, completion) for part in parts]
    return tuple(torch.cat(values) for values in zip(*found, strict=True))  # type: ignore[return-value]


def _packed_logps(model: Any, input_ids: Any, attention_mask: Any, completion: int) -> tuple[Any, Any]:
    import torch

    rows, width = input_ids.shape
    before = width - completion
    prompt = input_ids[0, :before][attention_mask[0, :before].bool()]
    told = attention_mask[:, before:].bool()
    lengths = told.sum(dim=1).tolist()
    shared, last = len(prompt) - 1, prompt[-1:]
    parts = [input_ids[i, before:][told[i]] for i in range(rows)]
    packed = torch.cat([prompt[:-1], *(piece for part in parts for piece in (last, part))])
    # Segment 0 is the prompt, segment i + 1 the i-th completion with the token that opens it.
    segment = torch.cat([torch.zeros(shared, dtype=torch.long), *(
        torch.full((n + 1,), i + 1) for i, n in enumerate(lengths))]).to(input_ids.device)  # fmt: skip
    position = torch.cat([torch.arange(shared), *(torch.arange(shared, shared + n + 1) for n in lengths)])
    labels = torch.full_like(packed, IGNORED)
    at = shared
    for part in parts:
        labels[at : at + len(part)] = part
        at += len(part) + 1
    order = torch.arange(len(packed), device=packed.device)
    sees = (order[:, None] >= order[None, :]) & ((segment[None, :] == 0) | (segment[:, None] == segment[None, :]))
    out = model(
        input_ids=packed[None], attention_mask=sees[None, None], position_ids=position[None].to(packed.device),
        shift_labels=labels[None], fused_lm_head=True,
    )  # fmt: skip
    predicts = labels != IGNORED
    return tuple(  # type: ignore[return-value]
        torch.zeros(told.shape, dtype=values.dtype, device=values.device).masked_scatter(told, values[0][predicts])
        for values in (out.log_probs, out.entropy)
    )


def packs(lengths: Sequence[int], prompt: int, limit: int) -> list[int]:
    """How many rows each pass takes, in their order: as many as keep it within ``limit`` tokens, and at least one.
    ``lengths`` are the completions'."""
    sizes: list[int] = []
    width = limit
    for n in lengths:
        if (width := width + n + 1) > limit:
            sizes.append(0)
            width = prompt + n
        sizes[-1] += 1
    return sizes


def same_prompt(input_ids: Any, attention_mask: Any, completion: int) -> bool:
    """Whether the rows share all that stands before their last ``completion`` tokens."""
    before = input_ids.shape[1] - completion
    ids, mask = input_ids[:, :before], attention_mask[:, :before]
    return bool((mask == mask[:1]).all()) and bool(((ids == ids[:1]) | (mask == 0)).all())
