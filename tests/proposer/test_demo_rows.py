"""Demonstrations prove themselves: what is read is what was written, and nothing else is read."""

import json
from pathlib import Path

import pytest
from demo_set import demo, demos
from hypothesis import given
from hypothesis import strategies as st

from reharness.envs.errors import ConfigError, UnknownNameError
from reharness.proposer.demo_rows import DemoRow, check_set, load_demos, parse_demo
from reharness.proposer.rows import write_rows


def test_what_was_written_is_read(tmp_path: Path) -> None:
    rows = [*demos(5), demo(5, messages=[{"role": "user", "content": "line\u2028separator, form\ffeed, ½"}])]
    write_rows(tmp_path / "deep" / "d.jsonl", rows)
    assert load_demos(tmp_path / "deep" / "d.jsonl") == rows
    assert all(row.version == DemoRow.VERSION and len(row.id) == 64 for row in rows)
    check_set(rows)


def test_the_keys_of_a_row_are_the_contract() -> None:
    keys = ["version", "task", "family", "format", "track", "defect", "messages", "completion", "parent_source", "parent", "candidate", "parent_score", "candidate_score", "n", "repeats", "context", "teacher", "move", "id"]
    assert sorted(json.loads(demo().line())) == sorted(keys)


def line(**changes: object) -> str:
    """A row that was changed afterwards, with its id mended so that only the change is at fault."""
    data = json.loads(demo().line()) | changes
    return json.dumps(data)


def honest(**changes: object) -> str:
    return demo(0, **changes).line()


WRONG = [
    ("{", "is not JSON"),
    ("", "is not JSON"),
    ("[1]", "no JSON object"),
    (line(version=0), "rows of contract version 0; this reharness reads 1: make them again with `reharness demos`"),
    (line(version=None), "rows of contract version null"),
    (line(version=True), "rows of contract version true"),
    (line(famly="x"), "unknown key 'famly'.*did you mean 'family'"),
    (line(track="X"), "track = \"X\""),
    (line(n=True), "n = true"),
    (line(n=0), "n = 0"),
    (line(candidate_score="1.0"), "candidate_score"),
    (line(candidate_score=1.5), "candidate_score = 1.5"),
    (line(candidate_score=float("nan")), "candidate_score"),
    (line(messages=[]), "messages"),
    (line(messages=[{"role": "user"}]), "messages.0.content"),
    (line(completion="\ud800"), "completion"),
    (line(family="other"), "id is not the hash of the rest"),
    (line(id="0" * 64), "id is not the hash of the rest"),
    (honest(messages=[{"role": "assistant", "content": "x"}]), "end with role 'assistant', not 'user'"),
    (honest(parent="0" * 64), "parent_source is not the harness 000000000000"),
    (honest(candidate="0" * 64), "gives the harness .*, not the `candidate` 000000000000"),
    (honest(completion="no block"), "no longer applies to its parent: no_block"),
    (honest(completion="x\n<<<<<<< SEARCH\n    return answer\n=======\n    return (\n>>>>>>> REPLACE\n"), "syntax_error"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(demo(1).line() + "\n" + text + "\n" + demo(2).line() + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        load_demos(path)
    assert f"{path}, line 2" in str(caught.value)


@pytest.mark.parametrize("key", sorted(set(DemoRow.model_fields) - {"version"}))
def test_a_missing_key_is_named(key: str) -> None:
    data = json.loads(demo().line())
    del data[key]
    with pytest.raises(ConfigError, match=rf"d.jsonl, line 1: {key} .*[Ff]ield required"):
        parse_demo(json.dumps(data), "d.jsonl, line 1")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.jsonl: cannot be read \(No such file"):
        load_demos(tmp_path / "absent.jsonl")
    (tmp_path / "latin").write_bytes(b"\xff\n")
    with pytest.raises(ConfigError, match="byte 0 is not UTF-8"):
        load_demos(tmp_path / "latin")
    (tmp_path / "empty").write_text("")
    assert load_demos(tmp_path / "empty") == []
    with pytest.raises(ConfigError, match="cannot be written"):
        write_rows(tmp_path / "latin" / "d.jsonl", demos(1))


def test_a_bad_field_is_refused_when_a_row_is_made() -> None:
    with pytest.raises(UnknownNameError, match=r"'moves'.*did you mean 'move'"):
        demo(0, moves="x")
    with pytest.raises(ConfigError, match="parent_score"):
        demo(0, parent_score=2.0)


def test_sets_that_nothing_can_be_learnt_from() -> None:
    with pytest.raises(ConfigError, match="there are no demonstrations"):
        check_set([])
    with pytest.raises(ConfigError, match="is there 2 times"):
        check_set([*demos(3), demo(1)])
    with pytest.raises(ConfigError, match="one-sided: all 2 demonstrations have the same completion"):
        check_set([demo(0), demo(2)])
    with pytest.raises(ConfigError, match="one-sided: all 2 demonstrations are of the family 'gcd'"):
        check_set([demo(0, family="gcd"), demo(1, family="gcd")])


@given(st.one_of(st.text(), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*DemoRow.model_fields]) | st.text(), inner),
).map(json.dumps)))  # fmt: skip
def test_junk_is_refused_by_name_and_never_crashes(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^here: |in here"):
        parse_demo(text, "here")


@given(st.sampled_from(sorted(DemoRow.model_fields)), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3),
))  # fmt: skip
def test_a_row_changed_in_one_place_is_refused_or_is_the_row(key: str, value: object) -> None:
    text = json.dumps(json.loads(demo().line()) | {key: value})
    try:
        row = parse_demo(text, "here")
    except ConfigError:
        return
    assert row == demo()
