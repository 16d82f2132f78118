from __future__ import annotations

from pathlib import Path

import pytest

from reharness.envs.errors import HarnessError
from reharness.solver.harness import Harness, seed_harness

GOOD = "def run(question, tools):\n    return question\n"


def test_the_seed_is_a_sound_harness_that_asks_once_at_temperature_zero() -> None:
    seed = seed_harness()
    calls: list[dict[str, object]] = []

    class Tools:
        def llm(self, prompt: str, **options: object) -> str:
            calls.append({"prompt": prompt, **options})
            return " the reply\n"

    scope: dict[str, object] = {}
    exec(seed.source, scope)
    assert scope["run"]("question + format", Tools()) == " the reply\n"  # type: ignore[operator]
    assert calls == [{"prompt": "question + format", "max_tokens": 512, "temperature": 0.0}]


def test_equal_sources_have_equal_fingerprints_and_different_ones_do_not() -> None:
    assert Harness(GOOD).fingerprint == Harness.from_source(GOOD).fingerprint
    assert Harness(GOOD).fingerprint != Harness(GOOD + "\nX = 1\n").fingerprint


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def answer(question, tools):\n    return question\n", ["entry point", "def run(question, tools)"]),
        ("def run(question):\n    return question\n", ["entry point"]),
        ("def run(question, tools, *, more):\n    return question\n", ["entry point"]),
        ("class A:\n    def run(self, question, tools):\n        return question\n", ["entry point"]),
        (GOOD + "run = None\n", ["entry point"]),
        ("async def run(question, tools):\n    return question\n", ["entry point"]),
        ("def run(question, tools)\n    return question\n", ["line 1", "syntax"]),
        (GOOD + "X = '''\n=======\n'''\n", ["line 4", "marker"]),
        (GOOD + "X = '''\n<<<<<<< SEARCH \n'''\n", ["line 4", "marker"]),
        (GOOD.rstrip("\n"), ["one line feed"]),
        (GOOD + "\n", ["one line feed"]),
        (GOOD.replace("\n", "\r\n"), ["line 1", "carriage return"]),
        (GOOD + "X = '" + "x" * 33_000 + "'\n", ["bytes", "32768"]),
        (GOOD + "X = 1\n" * 400, ["402 lines", "400"]),
        (GOOD + "X = '\udc80'\n", ["surrogate"]),
    ],
)
def test_an_unusable_harness_is_named_at_load(source: str, names: list[str]) -> None:
    with pytest.raises(HarnessError) as caught:
        Harness.from_source(source, "mine.py")
    assert all(name in str(caught.value) for name in ["mine.py", *names])


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"none\.py"):
        Harness.load(tmp_path / "none.py")
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n" + GOOD.encode())
    with pytest.raises(HarnessError, match=r"latin\.py: byte 2 is not UTF-8"):
        Harness.load(tmp_path / "latin.py")
    (tmp_path / "good.py").write_text(GOOD)
    assert Harness.load(tmp_path / "good.py").source == GOOD


def test_a_harness_may_have_defaults_and_star_arguments() -> None:
    Harness.from_source("def run(question):\n    return ''\n\n\n" + GOOD)  # the last one counts
    for head in ("def run(question, tools=None):", "def run(*args):", "def run(q, t, more=1):"):
        Harness.from_source(f"{head}\n    return ''\n")
