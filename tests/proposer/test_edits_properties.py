"""Laws that hold for any parent and any completion."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reharness.proposer.edits import apply_edit

LINE = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=12)
ODD = st.sampled_from(["\x0c", "a\u2028b", "\x85", "\x1c\x1d", "\u2029", "\v", "tail  ", "\t", "", "========", "```"])
MARKER = st.sampled_from(
    [
        *("<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "<<<<< SEARCH", ">>>>>>> replace x", "NO CHANGE", "x = 1"),
        *("<think>", "</think>", "```python", "```", "````", "def f(:", "    return 1", "\r", "\0"),
    ]
)


@st.composite
def unique_lines(draw: st.DrawFn, tag: str) -> list[str]:
    """Lines that are pairwise different and no markers: each begins with its own number."""
    texts = draw(st.lists(LINE | ODD, min_size=1, max_size=8))
    return [f"{tag}{i} {text}" for i, text in enumerate(texts)]


def completion(search: list[str], replace: list[str]) -> str:
    return "\n".join(["why", "<<<<<<< SEARCH", *search, "=======", *replace, ">>>>>>> REPLACE", ""])


@given(unique_lines("a"), unique_lines("b"), unique_lines("c"), st.lists(LINE | ODD, max_size=4), st.booleans())
def test_splice_is_exact_and_touches_nothing_else(
    before: list[str], middle: list[str], after: list[str], new: list[str], final_lf: bool
) -> None:
    new = [f"n {text}" for text in new]
    parent = "\n".join([*before, *middle, *after]) + ("\n" if final_lf else "")
    result = apply_edit(parent, completion(middle, new), python_checks=False)
    assert result.source == "".join(line + "\n" for line in [*before, *new, *after])


@given(unique_lines("a"), st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=7), st.integers(1, 3))
def test_a_search_applies_iff_it_stands_exactly_once(tail: list[str], text: list[str], size: int) -> None:
    search = ["a", "b", "a"][:size]
    placements = sum(text[i : i + size] == search for i in range(len(text)))
    result = apply_edit("\n".join([*text, *tail]) + "\n", completion(search, ["new"]), python_checks=False)
    kind = result.error.kind if result.error else None
    assert kind == {0: "no_match", 1: None}.get(placements, "ambiguous")


@given(unique_lines("a"), unique_lines("b"))
def test_all_or_nothing(lines: list[str], other: list[str]) -> None:
    good, bad = completion([lines[0]], ["first"]), completion([other[0]], ["second"])
    result = apply_edit("\n".join(lines) + "\n", good + bad, python_checks=False)
    assert result.source is None and result.error is not None
    assert (result.error.kind, result.error.block) == ("no_match", 2)


@settings(max_examples=400)
@example("x = 1\n", ["<<<<<<< SEARCH", "x = 1", "=======", "x = " + "-" * 20_000 + "1", ">>>>>>> REPLACE"], False)
@example("x = 1\n", ["<<<<<<< SEARCH", "x = 1", "=======", "x = " + "not " * 9_000 + "1", ">>>>>>> REPLACE"], False)
@example("x = 1\n", ["<<<<<<< SEARCH", "x = 1", "=======", "x = y" + ".y" * 20_000, ">>>>>>> REPLACE"], False)
@example("x = 1\n", ["<<<<<<< SEARCH", "x = 1", "=======", "x = " + "9" * 20_000, ">>>>>>> REPLACE"], False)
@given(
    st.text(max_size=30) | st.just("x = 1\n    return 1\n"),
    st.lists(MARKER | st.text(max_size=8), max_size=14),
    st.booleans(),
)
def test_any_completion_gives_a_result(parent: str, lines: list[str], prefilled: bool) -> None:
    for interface in ("search_replace", "code_block"):
        for required in (True, False):
            result = apply_edit(
                parent,
                "\n".join(lines),
                interface=interface,  # type: ignore[arg-type]
                require_description=required,
                think_prefilled=prefilled,
            )
            assert (result.source is None) == (result.error is not None)
            if result.source is not None:
                assert result.source.endswith("\n")
