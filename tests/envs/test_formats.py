"""Formats carry what they say they carry, and read nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reharness.envs.errors import ConfigError, UnknownNameError
from reharness.envs.formats import FORMATS, format_varied, get_format
from reharness.envs.splits import load_split

GOLDS = ["42", "-0.5", "5 8 0\n2 1 5\n8 1 9", '[["a", "b"], ["c"]]', r"$\frac{131}{319}$", "E=6,F=3", "['1.0', '2']",
         "w,C1,A2", "❌✅\n✅❌", "3 < 4   2\n        ∧\n1   2"]  # fmt: skip


def test_formats_are_those_of_the_split() -> None:
    split = load_split()
    assert {n for names in split.formats.values() for n in names} == set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("gold", GOLDS)
def test_real_golds_survive(name: str, gold: str) -> None:
    form = FORMATS[name]
    if name == "last_line" and "\n" in gold:
        assert not form.carries(gold)
    else:
        assert form.extract(form.render(gold)) == gold.strip()
        assert form.carries(gold)


@pytest.mark.parametrize("name", FORMATS)
@given(answer=st.text(max_size=60))
def test_plain_single_line_text_is_carried_or_disowned(name: str, answer: str) -> None:
    form = FORMATS[name]
    assert form.carries(answer) == (form.extract(form.render(answer)) == answer.strip() and bool(answer.strip()))


@pytest.mark.parametrize("name", FORMATS)
@given(answer=st.text(alphabet="abcxyz0189 .,-+*/=", min_size=1, max_size=60).filter(str.strip))
def test_ordinary_text_is_always_carried(name: str, answer: str) -> None:
    form = FORMATS[name]
    assert form.extract(form.render(answer)) == answer.strip()


@pytest.mark.parametrize("name", FORMATS)
@given(reply=st.text(alphabet='ab<>/answerfinal{}[]"\\:#`\n 1', max_size=200))
def test_extract_never_raises_and_never_gives_an_empty_answer(name: str, reply: str) -> None:
    answer = FORMATS[name].extract(reply)
    assert answer is None or answer == answer.strip() != ""


@pytest.mark.parametrize("name", [n for n in FORMATS if n != "plain"])
def test_a_bare_answer_costs_its_score(name: str) -> None:
    assert FORMATS[name].extract("42") is None
    assert FORMATS[name].extract("") is None


@pytest.mark.parametrize(
    ("name", "reply", "answer"),
    [
        ("tag", "<answer>1</answer> no, <answer>2</answer>", "2"),
        ("tag", "<answer>1", None),
        ("final_tag", "so <final>\n1 2\n3 4\n</final>.", "1 2\n3 4"),
        ("json_field", 'Here: {"answer": "7"}', "7"),
        ("json_field", '{"answer": 7.50}', "7.50"),
        ("json_field", '{"answer": true}', None),
        ("json_field", "{'answer': '7'}", None),
        ("json_field", '{"result": "7"}', None),
        ("json_list", '["7"]', "7"),
        ("json_list", '["7", "8"]', None),
        ("last_line", "working\n\n42\n\n", "42"),
        ("label", "Answer: 1\nbut\nAnswer:\n5 8\n2 1", "5 8\n2 1"),
        ("label", "The Answer: 1", None),
        ("hash_line", "#### 1\n#### 2", "2"),
        ("hash_line", "##### 2", None),
        ("boxed", r"\boxed{1} then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("boxed", r"\boxed{1", None),
        ("boxed", r"\boxed{}", None),
        ("double_bracket", "[[1]] or [[2]]", "2"),
        ("double_bracket", "[1]", None),
        ("code_fence", "```\n1\n```\ntext\n```python\n2\n3\n```", "2\n3"),
        ("code_fence", "```\n1", None),
    ],
)
def test_reading(name: str, reply: str, answer: str | None) -> None:
    assert FORMATS[name].extract(reply) == answer


@pytest.mark.parametrize("name", FORMATS)
def test_a_hostile_reply_is_read_in_time(name: str) -> None:
    for piece in ("{", '{"a":', "[", "[[", "<answer>", "\\boxed{", "```\n", "Answer:\n", '{"answer": "', "####\n"):
        FORMATS[name].extract(piece * 20_000)


def test_format_varied_is_seeded_and_stable_under_more_tasks() -> None:
    tasks = [f"rg/t{i}" for i in range(300)]
    names = load_split().formats["train"]
    a, b = format_varied(tasks, names, 3), format_varied([*tasks, "rg/new"], reversed(names), 3)
    assert set(a.values()) == set(names)
    assert {t: b[t] for t in tasks} == a
    assert format_varied(tasks, names, 4) != a
    assert set(format_varied(tasks, names, 3, lambda task, form: form != "tag").values()) == set(names) - {"tag"}


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'boxed'"):
        get_format("boxd")
    with pytest.raises(UnknownNameError):
        format_varied(["rg/a"], ["boxd"], 0)
    with pytest.raises(ConfigError, match="no format of"):
        format_varied(["rg/a"], ["tag"], 0, lambda task, form: False)
