"""Defects: planted they spoil an answer, undone they are gone, and what is sound is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reharness.envs.errors import HarnessError, UnknownNameError
from reharness.envs.splits import load_split
from reharness.proposer.defects import DEFECTS, HARMLESS, planted
from reharness.proposer.moves import MOVES
from reharness.solver.harness import Harness

PARENTS = [
    "def run(question, tools):\n    words = question.split(': ')[1].split('\\n\\n')[0]\n    answer = words.upper()\n    return answer\n",
    "def solve(text):\n    return text.partition(': ')[2].partition('\\n\\n')[0].upper()\n\n\ndef run(question, tools):\n    return solve(question)\n",
]
QUESTION = "Say it loud,\nplease: yes, 42 is\nright\n\nReply with the answer only."
RIGHT = "YES, 42 IS\nRIGHT"


def answer(source: str, question: str = QUESTION) -> Any:
    namespace: dict[str, Any] = {}
    exec(Harness.from_source(source).source, namespace)
    return namespace["run"](question, None)


def test_the_defects_are_those_of_the_split() -> None:
    assert {name for names in load_split().defects.values() for name in names} == set(DEFECTS)


def test_moves_undo_train_defects_and_no_other() -> None:
    undone = {name.removeprefix("undo_") for name in MOVES if name.startswith("undo_")}
    assert undone == set(load_split().defects["train"])


@pytest.mark.parametrize("parent", PARENTS)
@pytest.mark.parametrize("defect", DEFECTS)
@given(seed=st.integers(0, 10_000), harmless=st.booleans())
def test_a_planted_defect_spoils_the_answer_and_is_undone(parent: str, defect: str, seed: int, harmless: bool) -> None:
    assert answer(parent) == RIGHT
    spoilt = planted(parent, defect, seed, harmless=harmless)
    assert spoilt == planted(parent, defect, seed, harmless=harmless)
    assert answer(spoilt) != RIGHT
    assert answer(DEFECTS[defect].undone(spoilt) or "def run(question, tools):\n    return 'not undone'\n") == RIGHT


@pytest.mark.parametrize("parent", PARENTS)
def test_what_is_harmless_changes_nothing(parent: str) -> None:
    assert {eval(step, {"X": RIGHT}) for step in HARMLESS} == {RIGHT}
    assert [DEFECTS[d].undone(parent) for d in ("prefix", "first_char", "spaced_out")] == [None] * 3


def test_bad_input() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'prefix'"):
        planted(PARENTS[0], "prefx", 0)
    with pytest.raises(HarnessError, match="must end in a return"):
        planted("def run(question, tools):\n    raise ValueError\n", "prefix", 0)
