"""Which families, formats and defects are for what, and which questions of a task may be used for what."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Literal, get_args

from reharness.envs.audit_rows import require_trainable
from reharness.envs.errors import ConfigError, TaskError, UnknownNameError
from reharness.envs.formats import FORMATS
from reharness.envs.types import ProtocolName, Question, QuestionSets, Task, content_hash

Part = Literal["train", "validation", "unseen"]


@dataclass(frozen=True)
class Split:
    """The split of `data/rg_split.toml`: ``{part: names}`` for families, formats and defects of the repair track.

    ``constant_pays``: families where a constant or an echo scores .15 or more exactly; results that touch one are
    also given without it.
    """

    families: dict[Part, tuple[str, ...]]
    formats: dict[Part, tuple[str, ...]]
    defects: dict[Part, tuple[str, ...]]
    constant_pays: frozenset[str]


@functools.cache
def load_split() -> Split:
    """The committed split, checked: parts are disjoint and every format exists. Raises ConfigError."""
    return parse_split(resources.files("reharness.envs").joinpath("data/rg_split.toml").read_text(encoding="utf-8"))


def parse_split(text: str, families: Iterable[str] | None = None) -> Split:
    """A split from TOML text; with ``families`` (the known names) every family must be among them."""
    table = tomllib.loads(text)
    parts = get_args(Part)
    sections: dict[str, dict[Part, tuple[str, ...]]] = {}
    for section in ("families", "formats", "defects"):
        lists = {part: tuple(table[section][part]) for part in parts}
        sections[section] = lists
        seen: dict[str, str] = {}
        for part in parts:
            for name in lists[part]:
                if name in seen:
                    raise ConfigError(f"rg_split.toml [{section}]: {name!r} is in both {seen[name]} and {part}")
                seen[name] = part
    for name in (name for names in sections["formats"].values() for name in names):
        if name not in FORMATS:
            raise UnknownNameError("format", name, FORMATS, "rg_split.toml")
    split = Split(
        sections["families"], sections["formats"], sections["defects"], frozenset(table["families"]["constant_pays"])
    )
    if families is not None:
        known = set(families)
        for name in (*(n for names in split.families.values() for n in names), *split.constant_pays):
            if name not in known:
                raise UnknownNameError("family", name, known, "rg_split.toml")
    return split


def stream_seed(seed: int, stream: str) -> int:
    """A seed for one named stream of draws, unrelated to those of other streams and seeds."""
    return int(content_hash("stream", stream, seed)[:8], 16) >> 1


def question_sets(
    task: Task,
    protocol: ProtocolName,
    n_feedback: int,
    n_score: int,
    n_eval: int,
    seed: int,
    *,
    allow_untrainable: bool = False,
) -> QuestionSets:
    """Q_fb, Q_score and Q_eval of a task under protocol ``train`` or ``adapt_rg`` (paper 2609.35738, protocol section).

    ``train``: ``n_feedback`` and ``n_score`` different questions, of a Reasoning Gym family only if the committed audit
    clears it for training with the task's scoring, or with ``allow_untrainable``. ``adapt_rg``: the same ``n_score``
    dev questions serve both, so the two numbers must agree. Q_eval comes from a stream of its own and shares no
    question text with the dev ones. Raises TaskError when the task has too few different questions.
    """
    if min(n_feedback, n_score, n_eval) < 0 or n_score == 0:
        raise TaskError(f"cannot draw {n_feedback} feedback, {n_score} scoring and {n_eval} held-out questions")
    dev_seed, eval_seed = stream_seed(seed, "dev"), stream_seed(seed, "eval")
    if protocol == "train":
        if task.name.startswith("rg/") and not allow_untrainable:
            require_trainable([task.name], raw=not getattr(task, "exact", False))
        dev = _draw(task, n_feedback + n_score, dev_seed, f"{n_feedback} feedback and {n_score} scoring questions")
        feedback, scoring = dev[:n_feedback], dev[n_feedback:]
    elif protocol == "adapt_rg":
        if n_feedback != n_score:
            raise TaskError(
                f"protocol 'adapt_rg' uses the same dev questions for feedback and scoring; "
                f"ask for equal numbers, not {n_feedback} and {n_score}"
            )
        dev = feedback = scoring = _draw(task, n_score, dev_seed, f"{n_score} dev questions")
    else:
        raise TaskError(f"protocol {protocol!r} does not draw a task's questions by number; use 'train' or 'adapt_rg'")
    return QuestionSets(protocol, feedback, scoring, _held_out(task, dev, n_eval, eval_seed))


def _draw(task: Task, n: int, seed: int, needed: str) -> tuple[Question, ...]:
    """``n`` questions with different texts. Raises TaskError when the task does not give so many."""
    drawn = tuple(task.questions(n, seed))[:n]
    if (different := len({q.text for q in drawn})) < n:
        raise TaskError(
            f"{task.name}: gave {different} different questions of {n} asked for, too few for {needed};"
            " ask for fewer, or make the task larger"
        )
    return drawn


def _held_out(task: Task, dev: tuple[Question, ...], n: int, seed: int) -> tuple[Question, ...]:
    """The first ``n`` questions of the stream whose text no dev question has; at most ``n + len(dev)`` are drawn."""
    taken, drawn = {q.text for q in dev}, n
    while n:
        questions = _draw(task, drawn, seed, f"{n} held-out questions beside {len(dev)} dev ones")
        fresh = [q for q in questions if q.text not in taken]
        if len(fresh) >= n:
            return tuple(fresh[:n])
        drawn += n - len(fresh)
    return ()
