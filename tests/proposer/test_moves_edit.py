"""Two sources become the blocks that turn one into the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reharness.proposer.edits import answer_of, apply_edit, parse_search_replace
from reharness.proposer.moves_edit import make_edit

# Few different lines, so that most of them stand several times; the odd ones break appliers that use splitlines().
LINES = st.lists(st.sampled_from(["a", "b", "", "    a", "\x0c", "x\u2028y", "========", "```", "NO CHANGE"]), max_size=14)


@given(LINES, LINES)
def test_the_edit_turns_one_source_into_the_other(old: list[str], new: list[str]) -> None:
    parent, wanted = ("".join(line + "\n" for line in lines) for lines in (old, new))
    if parent == wanted or not parent.strip() or not wanted.strip():
        return
    result = apply_edit(parent, make_edit(parent, wanted, "why"), python_checks=False)
    assert result.error is None and result.source == wanted and result.description == "why"


def test_blocks_are_small_and_unambiguous() -> None:
    parent = "def f():\n    x = 1\n    return x\n\n\ndef g():\n    x = 1\n    return x\n"
    completion = make_edit(parent, parent.replace("def g():\n    x = 1", "def g():\n    x = 2"), "why")
    (block,) = parse_search_replace(answer_of(completion)).blocks
    assert block.search == ("def g():", "    x = 1") and block.replace == ("def g():", "    x = 2")


def test_many_changes_stay_under_the_cap_of_blocks() -> None:
    parent = "".join(f"a{i} = 1\nb{i} = 1\n" for i in range(60))
    wanted = parent.replace("a", "c")
    completion = make_edit(parent, wanted, "why")
    assert len(parse_search_replace(answer_of(completion)).blocks) == 16
    assert apply_edit(parent, completion).source == wanted


@pytest.mark.parametrize(("parent", "new"), [("a\n", "a\n"), ("\n", "a\n"), ("a\n=======\n", "b\n"), ("a\n", "=======\n")])
def test_what_no_edit_can_say_is_refused(parent: str, new: str) -> None:
    with pytest.raises(ValueError, match="no edit"):
        make_edit(parent, new, "why")
