"""Tasks by name, from the package and from third parties."""

from __future__ import annotations

import importlib.metadata
import random
from collections.abc import Sequence
from typing import Literal

import pytest

from reharness.envs import registry
from reharness.envs.errors import ConfigError, TaskError, UnknownNameError
from reharness.envs.reasoning_gym import ReasoningGymTask
from reharness.envs.registry import describe_task, get_task, task_names, validate
from reharness.envs.types import Question


class Doubling:
    """A third party's task, as short as it can be."""

    name = "doubling"
    interface: Literal["search_replace", "code_block"] = "search_replace"
    description = "double a number"
    scorer_version = "1"

    def __init__(self, top: int = 1000) -> None:
        self.top = top

    def questions(self, n: int, seed: int) -> Sequence[Question]:
        rng = random.Random(seed)
        return [Question(self.name, f"Double {x}.", str(2 * x)) for x in rng.sample(range(self.top), self.top)[:n]]

    def score(self, question: Question, answer: str) -> float:
        return float(answer.strip() == question.gold)

    def reveal(self, question: Question) -> str | None:
        return str(question.gold)


@pytest.fixture
def doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = importlib.metadata.EntryPoint("doubling", f"{__name__}:Doubling", registry.GROUP)
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: Doubling)
    monkeypatch.setattr(registry, "third_party", lambda: {"doubling": entry})


def test_short_and_full_names_and_parameters_in_the_name() -> None:
    assert len(task_names()) >= 106 and "rg/chain_sum" in task_names()
    task = get_task("rg/chain_sum?min_terms=2&max_terms=2&format=tag&exact=true", max_digits=1)
    assert isinstance(task, ReasoningGymTask)
    assert task.params == {"min_terms": 2, "max_terms": 2, "max_digits": 1}
    assert task.exact is True and task.format.name == "tag"
    assert get_task("chain_sum").scorer_version == get_task("rg/chain_sum").scorer_version


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("chain_sun", UnknownNameError, "'chain_sum'"),
        ("rg/chain_sun", UnknownNameError, "'rg/chain_sum'"),
        ("chain_sum?min_term=2", UnknownNameError, "'min_terms'"),
        ("chain_sum?min_terms", ConfigError, "key=value"),
        ("chain_sum?format=tag&format=boxed", ConfigError, "twice"),
        ("chain_sum?min_terms=two", TaskError, "refuses"),
    ],
)
def test_bad_names(name: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        get_task(name)


def test_describe_names_parameters_and_the_audit() -> None:
    text = describe_task("chain_sum")
    assert "min_terms = 2" in text and "format" in text and "audit: ok" in text
    assert "constant pays" in describe_task("rg/coin_flip")


def test_third_party_tasks(doubling: None) -> None:
    assert "doubling" in task_names()
    task = get_task("doubling?top=50")
    assert isinstance(task, Doubling) and task.top == 50
    assert validate(task) == []
    with pytest.raises(TaskError, match="cannot be built: TypeError"):
        get_task("doubling?bottom=1")
    with pytest.raises(UnknownNameError, match="'doubling'"):
        get_task("dubling")


def test_validate_accepts_a_family() -> None:
    assert validate(ReasoningGymTask("word_sorting", format="json_field", exact=True)) == []


def test_validate_names_each_fault() -> None:
    class Faulty(Doubling):
        interface = "chat"  # type: ignore[assignment]
        scorer_version = ""
        calls = 0

        def questions(self, n: int, seed: int) -> Sequence[Question]:
            self.calls += 1
            return super().questions(n, seed + self.calls)

        def score(self, question: Question, answer: str) -> float:
            return {"": float("nan"), "zq xv": 1.0}.get(answer, 2.0)

    wrong = " | ".join(validate(Faulty()))
    for part in ("scorer_version", "interface", "differs from call to call", "not the beginning", "nan", "junk scores 1", "2.0"):
        assert part in wrong, part

    class Raising(Doubling):
        def score(self, question: Question, answer: str) -> float:
            raise RuntimeError("boom")

    assert any("score raised on its gold: RuntimeError: boom" in w for w in validate(Raising()))

    class Broken(Doubling):
        def questions(self, n: int, seed: int) -> Sequence[Question]:
            raise OSError("no file")

    assert validate(Broken()) == ["questions(4, 0) raised OSError: no file"]
