"""Tasks by name: Reasoning Gym's families, and whatever third parties register under ``reharness.tasks``."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from reharness.envs.errors import ConfigError, ReharnessError, TaskError, UnknownNameError
from reharness.envs.formats import FORMATS
from reharness.envs.reasoning_gym import ReasoningGymTask, catalog, family_of
from reharness.envs.types import Question, Task

GROUP = "reharness.tasks"


def third_party() -> dict[str, importlib.metadata.EntryPoint]:
    """Registered tasks of other packages: ``{name: entry point}``."""
    return {e.name: e for e in importlib.metadata.entry_points(group=GROUP)}


def task_names() -> list[str]:
    """Every name that `get_task` takes, in full form (``rg/chain_sum``)."""
    return sorted([f"rg/{family}" for family in catalog()] + list(third_party()))


def get_task(name: str, **params: Any) -> Task:
    """The task of that name. ``name`` may carry parameters: ``chain_sum?min_terms=2&format=tag&exact=true``.

    ``rg/`` may be left out. Values in the name are read as JSON where they are JSON, else as text; ``params`` given
    as arguments add to them. Raises UnknownNameError for a name or parameter that does not exist, TaskError for a
    value the task refuses, ConfigError for a malformed name.
    """
    name, _, query = name.partition("?")
    params = {**_parameters(query, name), **params}
    others = third_party()
    if name in others:
        return _load(others[name], params)
    family = name.removeprefix("rg/")
    if family not in catalog():
        valid = [*(f"rg/{f}" for f in catalog()), *others]
        raise UnknownNameError("task", name, valid if name.startswith("rg/") else [*catalog(), *valid])
    return ReasoningGymTask(family, **params)


def describe_task(name: str) -> str:
    """What `reharness tasks NAME` prints: the description, the parameters with their defaults, the audit's word."""
    others = third_party()
    if name in others:
        return f"{name}: registered by {others[name].value}"
    family = family_of(name)
    from reharness.envs.audit_rows import load_table

    facts, row = catalog()[family], load_table().get(f"rg/{family}")
    lines = [f"rg/{family} ({facts['category']})" + (f": {facts['doc']}" if facts["doc"] else "")]
    lines += [f"  {key} = {json.dumps(value)}" for key, value in facts["params"].items()]
    lines += [f"  format = \"plain\"   (one of {', '.join(FORMATS)})", "  exact = false   (true: 1 above .98, else 0)"]
    if row:
        lines.append(f"audit: {row.status}{': ' + row.why if row.why else ''}")
    return "\n".join(lines)


def _parameters(query: str, name: str) -> dict[str, Any]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise ConfigError(f"task {name!r}: cannot read {query!r}; write name?key=value&key=value") from None
    params: dict[str, Any] = {}
    for key, text in pairs:
        if key in params:
            raise ConfigError(f"task {name!r}: parameter {key!r} is given twice")
        try:
            params[key] = json.loads(text)
        except ValueError:
            params[key] = text
    return params


def _load(entry: importlib.metadata.EntryPoint, params: dict[str, Any]) -> Task:
    origin = f"task {entry.name!r} ({entry.value})"
    try:
        factory: Callable[..., Task] = entry.load()
        task = factory(**params)
    except ReharnessError:
        raise
    except Exception as e:
        raise TaskError(f"{origin} cannot be built: {type(e).__name__}: {e}") from e
    if not isinstance(task, Task):
        missing = [a for a in ("name", "interface", "description", "scorer_version", "questions", "score", "reveal")
                   if not hasattr(task, a)]  # fmt: skip
        raise TaskError(f"{origin} is not a Task: it lacks {', '.join(missing)}")
    return task


def validate(task: Task, n: int = 4, seed: int = 0) -> list[str]:
    """Check a task against the contract, on ``n`` questions. Returns what is wrong, one sentence each; [] is good.

    Checked: attributes and their values, questions deterministic and a prefix of a longer draw, different from each
    other, the revealed gold scores 1, junk and the empty answer get a finite score in [0, 1] below 1.
    """
    wrong: list[str] = []
    for attribute in ("name", "description", "scorer_version"):
        if not isinstance(getattr(task, attribute, None), str) or not getattr(task, attribute):
            wrong.append(f"{attribute} must be a text that is not empty")
    if getattr(task, "interface", None) not in ("search_replace", "code_block"):
        wrong.append("interface must be 'search_replace' or 'code_block'")
    try:
        questions, again, longer = task.questions(n, seed), task.questions(n, seed), task.questions(n + 2, seed)
    except Exception as e:  # noqa: BLE001  (recorded as a finding)
        return [*wrong, f"questions({n}, {seed}) raised {type(e).__name__}: {e}"]
    keys = [q.key for q in questions]
    if len(keys) != n:
        wrong.append(f"questions({n}, {seed}) gave {len(keys)} questions")
    if keys != [q.key for q in again]:
        wrong.append(f"questions({n}, {seed}) differs from call to call; draw from random.Random(seed)")
    if keys != [q.key for q in longer][: len(keys)]:
        wrong.append(f"questions({n}, {seed}) is not the beginning of questions({n + 2}, {seed})")
    if len(set(keys)) != len(keys):
        wrong.append(f"questions({n}, {seed}) holds the same question twice")
    for question in questions:
        wrong += _wrong_scores(task, question)
    return list(dict.fromkeys(wrong))


def _wrong_scores(task: Task, question: Question) -> list[str]:
    wrong = []
    gold = task.reveal(question)
    answers = [("junk", "zq xv"), ("the empty answer", "")]
    if gold is not None:
        answers.append(("its gold", gold))
    for what, answer in answers:
        try:
            value = task.score(question, answer)
        except Exception as e:  # noqa: BLE001  (recorded as a finding)
            wrong.append(f"score raised on {what}: {type(e).__name__}: {e}")
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            wrong.append(f"score of {what} is {value!r}, not a finite number")
        elif not 0 <= value <= 1:
            wrong.append(f"score of {what} is {value!r}, not in [0, 1]")
        elif what == "its gold" and value < 1:
            wrong.append(f"the revealed gold scores {value:g}, not 1")
        elif what != "its gold" and value >= 1:
            wrong.append(f"{what} scores {value:g}")
    return wrong
