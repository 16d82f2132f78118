"""Every kind of refusal, and what an accepted edit gives."""

from typing import get_args

import pytest

from reharness.envs.errors import UnknownNameError
from reharness.proposer.edits import (
    Caps,
    EditErrorKind,
    EditResult,
    apply_edit,
    check_harness,
    reward_stage,
)
from reharness.solver.harness import Harness

PARENT = "def run(question, tools):\n    reply = tools.llm(question)\n    return reply\n"


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}=======\n{replace}>>>>>>> REPLACE\n"


GOOD = block("    return reply\n", "    return reply.strip()\n")
KEEP, CUT = "    return reply\n", "    return reply[0]\n"


def refused(completion: str, parent: str = PARENT, **options: object) -> str:
    options.setdefault("require_description", False)
    result = apply_edit(parent, completion, **options)  # type: ignore[arg-type]
    assert result.source is None and result.error is not None, result
    return result.error.kind


FROZEN = "# reharness: frozen\nLIMIT = 3\n# reharness: end\n" + PARENT
SEARCH_REPLACE = [
    ("bad_char", GOOD.replace("reply.strip", "\rreply.strip"), {}),
    ("bad_char", "nul \0\n" + GOOD, {}),
    ("bad_char", "surrogate \ud800\n" + GOOD, {}),
    ("think_unclosed", " \n<think>\n" + GOOD, {}),
    ("think_unclosed", GOOD, {"think_prefilled": True}),
    ("no_block", "Nothing is wrong.\n", {}),
    ("no_block", " NO CHANGE\n", {}),
    ("no_block", "", {}),
    ("stray_marker", ">>>>>>> REPLACE\n" + GOOD, {}),
    ("marker_malformed", ">>> print(1)\n" + GOOD, {}),
    ("marker_malformed", "  <<<<\n" + GOOD, {}),
    ("marker_malformed", GOOD + "<<<<<<< search\n", {}),
    ("marker_malformed", "<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>>REPLACE it\n", {}),
    ("marker_malformed", "<<<<<<< SEARCH\nx\n>>>> search\n=======\ny\n>>>>>>> REPLACE\n", {}),
    ("missing_divider", "<<<<<<< SEARCH\nx\n>>>>>>> REPLACE\n", {}),
    ("missing_divider", "<<<<<<< SEARCH\nx\n", {}),
    ("nested_search", "<<<<<<< SEARCH\nx\n" + GOOD, {}),
    ("nested_search", "<<<<<<< SEARCH\nx\n=======\ny\n" + GOOD, {}),
    ("unexpected_divider", block("x\n", "=======\n"), {}),
    ("unterminated_block", "<<<<<<< SEARCH\nx\n=======\ny\n", {}),
    ("empty_search", block("", "x\n"), {}),
    ("empty_search", block(" \n\t\n", "x\n"), {}),
    ("too_large", GOOD * 17, {}),
    ("too_large", GOOD + "x" * (64 << 10), {}),
    ("too_large", "x" * 2001 + "\n" + GOOD, {}),
    ("description_missing", GOOD, {"require_description": True}),
    ("description_missing", "```python\n" + GOOD + "```\nI strip the reply.\n", {"require_description": True}),
    ("description_missing", "NO CHANGE\nIt is fine.\n", {"require_description": True}),
    ("no_change", "It is fine as it is.\nNO CHANGE\n", {"require_description": True}),
    ("no_change", "NO CHANGE", {}),
    ("no_match", block("return reply\n", "x\n"), {}),
    ("no_match", block("    return  reply\n", "x\n"), {}),
    ("ambiguous", block("a\nb\na\n", "x\n"), {"parent": "a\nb\na\nb\na\n"}),  # placements that overlap count
    ("identical_block", block("    return reply\n", "    return reply\n"), {}),
    ("noop_result", block(KEEP, CUT) + block(CUT, KEEP), {}),
    ("noop_ast", block("    return reply\n", "    # the reply\n    return (reply)\n"), {}),
    ("noop_ast", block("def run(question, tools):\n", 'def run(question, tools):\n    """Doc."""\n'), {}),
    ("marker_in_result", block("x = 1\n", "x = 2\n"), {"parent": "x = 1\n=======\n", "python_checks": False}),
    ("frozen_region", block("LIMIT = 3\n", "LIMIT = 4\n"), {"parent": FROZEN}),
    ("frozen_region", block("# reharness: end\n", "LIMIT = 4\n# reharness: end\n"), {"parent": FROZEN}),
    ("frozen_region", block("# reharness: frozen\n", ""), {"parent": FROZEN}),
    ("frozen_region", block("    return reply\n", "    # reharness: frozen\n    return 1\n    # reharness: end\n"), {}),
    ("empty_result", block(PARENT, ""), {}),
    ("empty_result", block(PARENT, "\n"), {}),
    ("syntax_error", block("    return reply\n", "    return (reply\n"), {}),
    ("syntax_error", block("    return reply\n", "return reply\n"), {}),  # only the compiler sees this one
    ("syntax_error", block("    return reply\n", "    return " + "(" * 3000 + ")" * 3000 + "\n"), {}),
]


@pytest.mark.parametrize(("kind", "completion", "options"), SEARCH_REPLACE)
def test_search_replace_refusals(kind: str, completion: str, options: dict[str, object]) -> None:
    assert refused(completion, **options) == kind  # type: ignore[arg-type]


CODE_BLOCK = [
    ("no_code_block", PARENT, {}),
    ("no_code_block", "Fix.\n ```python\n v = 1\n ```\n", {}),  # not at column 0
    ("multiple_code_blocks", "```python\nv = 1\n```\n```\n", {}),
    ("wrong_language", "Fix.\n```\nv = 1\n```\n", {}),
    ("wrong_language", "Fix.\n```python title=x\nv = 1\n```\n", {}),
    ("fence_unclosed", "Fix.\n````python\nv = 1\n```\n", {}),
    ("empty_code", "Fix.\n```python\n```\n", {}),
    ("diagnosis_missing", "\n```python\nv = 1\n```\nDone.\n", {"require_description": True}),
    ("too_large", "d" * 2001 + "\n```python\nv = 1\n```\n", {}),
    ("frozen_region", "Fix.\n```python\nLIMIT = 4\n```\n", {"parent": FROZEN}),
    ("syntax_error", "Fix.\n```python\nv = = 1\n```\n", {}),
    ("noop_ast", "Fix.\n```PYTHON\n" + PARENT + "```\n", {}),
    ("think_unclosed", "```python\nv = 1\n```\n", {"think_prefilled": True}),
]


@pytest.mark.parametrize(("kind", "completion", "options"), CODE_BLOCK)
def test_code_block_refusals(kind: str, completion: str, options: dict[str, object]) -> None:
    assert refused(completion, interface="code_block", **options) == kind  # type: ignore[arg-type]


HARNESS = [
    ("no_entry_point", "def main(question, tools):\n    return ''\n", "search_replace"),
    ("no_entry_point", "def run(question):\n    return ''\n", "search_replace"),
    ("too_long", PARENT + "x = 1\n" * 398, "search_replace"),
    ("too_long", PARENT + "x = 1\n" * 198, "code_block"),
    ("too_long", PARENT + f"x = '{'y' * (32 << 10)}'\n", "search_replace"),
    ("marker_in_result", PARENT + "x = '''\n=======\n'''\n", "code_block"),
    ("syntax_error", "def run(:\n", "search_replace"),
]


@pytest.mark.parametrize(("kind", "source", "interface"), HARNESS)
def test_harness_checks(kind: str, source: str, interface: str) -> None:
    result = check_harness(EditResult(source, "d", None), interface)  # type: ignore[arg-type]
    assert result.error is not None and result.error.kind == kind and result.source is None


def test_every_kind_has_a_test_above() -> None:
    tested = {row[0] for row in [*SEARCH_REPLACE, *CODE_BLOCK, *HARNESS]}
    kinds = {kind for part in get_args(EditErrorKind) for kind in (get_args(part) or (part,))}
    assert tested == kinds
    assert {reward_stage(kind) for kind in kinds} == {"parse", "apply", "result"}


def test_harness_checks_give_a_source_that_loads() -> None:
    edit = apply_edit(PARENT, "Blank lines.\n" + block("    return reply\n", "    return reply[0]\n\n\n"))
    assert edit.source is not None and edit.source.endswith("\n\n\n")
    checked = check_harness(edit)
    assert checked.source is not None and Harness.from_source(checked.source).source.endswith("reply[0]\n")
    failed = EditResult(None, "d", edit.error)
    assert check_harness(failed) is failed


def test_apply_edit_leaves_harness_checks_out() -> None:
    assert apply_edit("x = 1\n", "d\n" + block("x = 1\n", "x = 2\n")).source == "x = 2\n"


def test_python_checks_off_leaves_out_syntax_and_ast_only() -> None:
    for replacement in ("    return (reply\n", "    return (reply)\n"):
        result = apply_edit(PARENT, "d\n" + block("    return reply\n", replacement), python_checks=False)
        assert result.source is not None and result.source.endswith(replacement)
    assert refused(block(PARENT, ""), python_checks=False) == "empty_result"
    assert refused(block("LIMIT = 3\n", "LIMIT = 4\n"), FROZEN, python_checks=False) == "frozen_region"


def test_frozen_lines_may_stand_in_a_search() -> None:
    new = block("LIMIT = 3\n# reharness: end\n", "LIMIT = 3\n# reharness: end\nMORE = 1\n")
    assert apply_edit(FROZEN, "d\n" + new).source == FROZEN.replace("end\n", "end\nMORE = 1\n", 1)


def test_description_is_what_stands_before_the_first_block() -> None:
    result = apply_edit(PARENT, "Strip it.\nNO CHANGE elsewhere\n```\n" + GOOD + "```\nNO CHANGE\n")
    assert result.source is not None and result.description == "Strip it.\nNO CHANGE elsewhere"
    whole = apply_edit(PARENT, "It fails.\n```python\nv = 1\n```\n", interface="code_block")
    assert whole.description == "It fails." and whole.source == "v = 1\n"


def test_description_is_kept_beside_an_error() -> None:
    result = apply_edit(PARENT, "Strip it.\n" + block("nowhere\n", "x\n"))
    assert result.description == "Strip it." and result.error is not None and result.error.kind == "no_match"


def test_the_reasoning_is_never_parsed() -> None:
    assert apply_edit(PARENT, "<think>" + block("x\n", "y\n") + "</think>Strip.\n" + GOOD).source is not None
    later = apply_edit(PARENT, "thought</think>Strip.</think> <think>\n" + GOOD, think_prefilled=True)
    assert later.description == "Strip.</think> <think>" and later.source is not None
    assert apply_edit(PARENT, "</think>\n" + GOOD, think_prefilled=False).description == "</think>"
    big = "<think>" + "x" * (65 << 10) + "</think>Strip.\n" + GOOD
    assert apply_edit(PARENT, big).source is not None


def test_an_error_names_block_and_line() -> None:
    second = apply_edit(PARENT, "d\n" + GOOD + "\n" + block("    reply = tools.lm(question)\n", "x\n")).error
    assert second is not None and (second.block, second.line) == (2, 8)
    assert second.nearest[0] == "    reply = tools.llm(question)"
    assert len(second.nearest) <= 5 and str(second).startswith("no_match (block 2, line 8): ")
    syntax = apply_edit(PARENT, "d\n" + block("    return reply\n", "    return (\n")).error
    assert syntax is not None and (syntax.block, syntax.line) == (None, 3)


def test_a_search_whose_lines_are_all_there_still_shows_near_lines() -> None:
    error = apply_edit("alpha\nbeta\ngamma\n", "d\n" + block("gamma\nalpha\n", "x\n"), python_checks=False).error
    assert error is not None and error.nearest[0] == "gamma"


def test_nearest_are_at_most_five() -> None:
    parent = "".join(f"value_{i} = {i}\n" for i in range(50))
    error = apply_edit(parent, "d\n" + block("value_7 = 8\n", "x\n")).error
    assert error is not None and len(error.nearest) == 5 and "value_7 = 7" in error.nearest


def test_content_that_only_looks_like_a_marker() -> None:
    parent = "x = '''\n<<<<<<< mine\n======= x\n========\n>>> a\n'''\n"
    completion = "A row of equals signs is fine in prose:\n=======\n"
    completion += block("<<<<<<< mine\n======= x\n", ">>>>>>> b\n")
    result = apply_edit(parent, completion)
    assert result.source == "x = '''\n>>>>>>> b\n========\n>>> a\n'''\n" and result.near_markers == 0


def test_near_markers_are_counted_past_the_first_fault() -> None:
    assert apply_edit(PARENT, "<<<<< SEARCH\na\n=====\nb\n>>>>> REPLACE\n").near_markers == 2
    assert apply_edit(PARENT, "d\n" + GOOD).near_markers == 0


def test_crlf_completion() -> None:
    expected = PARENT.replace("return reply", "return reply.strip()")
    assert apply_edit(PARENT, ("Strip.\n" + GOOD).replace("\n", "\r\n")).source == expected


def test_caps_are_options() -> None:
    assert refused(GOOD * 2, caps=Caps(blocks=1)) == "too_large"
    assert refused(GOOD, caps=Caps(answer_bytes=10)) == "too_large"


def test_a_finally_that_the_compiler_would_multiply_is_left_to_the_sandbox() -> None:
    body = " x = 2\n"
    for _ in range(6):  # 30 ways out of each `try`: the innermost body would be compiled 30**6 times
        ways = "".join(f"  if x == {n}:\n   return\n" for n in range(30))
        body = " try:\n" + ways + " finally:\n" + "".join(f" {line}\n" for line in body.splitlines())
    body = "def f(x):\n" + body
    assert apply_edit("x = 1\n", "d\n" + block("x = 1\n", body)).source == body


def test_a_long_chain_of_operators_is_compared() -> None:
    chain = "x = " + " + ".join(["1"] * 900) + "\n"
    assert refused(block(chain, chain.replace("\n", "  # many\n")), chain) == "noop_ast"


def test_unknown_interface_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="code_block"):
        apply_edit(PARENT, GOOD, interface="code_blok")  # type: ignore[arg-type]
