"""Scores of Reasoning Gym answers: asked of the scoring worker in batches, checked on the host.

What is 0 without asking: an answer longer than any real one, and "nan" or "inf" as a number (complex_arithmetic pays
``nan`` 1.0 in 0.1.25, because ``min(1.0, nan)`` is 1.0). What the worker decides: see `rg_worker`. What is an error:
a scorer that fails on its own gold, a score that is no number in [0, 1], a worker that stalls or ends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from reharness.envs.errors import TaskError
from reharness.envs.rg_host import SCORER, WorkerDied

SCORE_WALL_S = 20.0
"""Longest wait for one score. The worker stops a score after 5 CPU seconds; this is for what it cannot stop."""
MAX_ANSWER_CHARS = 20_000
"""Answers above this score 0 (the longest gold of the package at default difficulty has about 4,100 characters)."""
BATCH = 256
_NON_FINITE = re.compile(r"(?<![a-z])(nan|inf|infinity)[ij]?(?![a-z])", re.IGNORECASE)


def score_many(
    family: str, params_json: str, pairs: Sequence[tuple[dict[str, Any], str]], strict: bool = False
) -> list[float | TaskError]:
    """One result per (encoded entry, answer), in order: a score in [0, 1], or the TaskError that kept it from one.

    With ``strict`` a scorer that raises on an answer, or is too slow on it, is an error even where it would pay its
    own gold (the audit asks so). Blocks; may be called from several threads (one batch is scored at a time).
    """
    results: list[float | TaskError | None] = [0.0 if _surely_wrong(e, a) else None for e, a in pairs]
    open_ = [i for i, result in enumerate(results) if result is None]
    while open_:
        batch = open_[:BATCH]
        request = {
            "op": "score",
            "family": family,
            "params": params_json,
            "strict": strict,
            "items": [pairs[i] for i in batch],
        }
        items = SCORER.ask(request, SCORE_WALL_S)
        if not items:
            items = [TaskError("the scorer gave no answer")]
        for i, item in zip(batch, items, strict=False):  # fewer items than asked: the rest is asked again
            results[i] = _checked(item, family)
        open_ = open_[min(len(items), len(batch)) :]
        if isinstance(items[-1], TaskError) and not isinstance(items[-1], WorkerDied) and len(items) == 1 < len(batch):
            for i in open_:  # the request as a whole was refused: it would be again
                results[i] = items[-1]
            break
    return [r if r is not None else TaskError(f"{family}: not scored") for r in results]


def _surely_wrong(entry: dict[str, Any], answer: str) -> bool:
    gold = entry["answer"] or ""
    if answer == gold:
        return False
    if len(answer) > MAX_ANSWER_CHARS:
        return True
    return _NON_FINITE.search(answer) is not None and _NON_FINITE.search(gold) is None


def _checked(item: Any, family: str) -> float | TaskError:
    if isinstance(item, TaskError):
        return type(item)(f"scorer of {family}: {item}")
    if isinstance(item, bool) or not isinstance(item, (int, float)) or not math.isfinite(item) or not 0 <= item <= 1:
        return TaskError(f"scorer of {family}: {item!r} is not a score in [0, 1]")
    return float(item)
