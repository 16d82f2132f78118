"""Families as tasks: parameters, frozen items, formats, exact scores."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reharness.envs import reasoning_gym
from reharness.envs.cache import write_atomically
from reharness.envs.errors import ConfigError, TaskError, UnknownNameError
from reharness.envs.formats import FORMATS
from reharness.envs.reasoning_gym import FrozenItems, ReasoningGymTask, catalog
from reharness.envs.types import Task


def test_every_family_of_the_package_is_known() -> None:
    import reasoning_gym  # noqa: F401
    from reasoning_gym.factory import DATASETS

    assert set(catalog()) == set(DATASETS)
    assert catalog()["chain_sum"]["params"]["min_terms"] == 2


def test_the_host_process_never_imports_the_package() -> None:
    code = (
        "import sys; from reharness.envs.registry import get_task; t = get_task('chain_sum'); q = t.questions(2, 0)[0];"
        "assert t.score(q, t.reveal(q)) == 1.0; assert not {'reasoning_gym', 'sympy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_is_a_task_with_a_spec() -> None:
    task = ReasoningGymTask("rg/chain_sum", format="tag", exact=True, max_terms=3)
    assert isinstance(task, Task)
    assert (task.name, task.interface) == ("rg/chain_sum", "search_replace")
    assert task.spec["params"] == {"max_terms": 3} and task.spec["format"] == "tag" and task.spec["exact"] is True
    versions = {
        ReasoningGymTask("chain_sum", **kw).scorer_version for kw in ({}, {"exact": True}, {"format": "tag"}, {"max_terms": 3})
    }  # fmt: skip
    assert len(versions) == 4 and task.scorer_version not in versions


@pytest.mark.parametrize("changed", ["formats.py", "rg_guard.py", "rg_worker.py", "scoring.py", "reasoning_gym.py"])
def test_a_change_of_the_scoring_code_changes_the_scorer_version(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ReasoningGymTask("chain_sum").scorer_version
    room = tmp_path / "elsewhere"
    shutil.copytree(Path(reasoning_gym.__file__).parent, room, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("importlib.resources.files", lambda package: room)

    def version() -> str:
        reasoning_gym._scoring_code.cache_clear()
        return ReasoningGymTask("chain_sum").scorer_version

    try:
        assert version() == before  # the place of the installation has no part in it
        source = (room / changed).read_bytes()
        (room / changed).write_bytes(source.replace(b"\n", b"\r\n"))
        assert version() == before
        (room / changed).write_bytes(source + b"X = 1\n")
        assert version() != before
    finally:
        reasoning_gym._scoring_code.cache_clear()


def test_too_many_questions_are_refused_before_any_is_made() -> None:
    with pytest.raises(TaskError, match="rg/chain_sum: 99999999999999 questions are too many; ask for at most 100000"):
        ReasoningGymTask("chain_sum").questions(99999999999999, 0)


def test_bad_names_and_values_say_what_is_right() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'chain_sum'"):
        ReasoningGymTask("chain_sun")
    with pytest.raises(UnknownNameError, match="'min_term' in rg/chain_sum; did you mean 'min_terms'"):
        ReasoningGymTask("chain_sum", min_term=2)
    with pytest.raises(UnknownNameError, match="did you mean 'boxed'"):
        ReasoningGymTask("chain_sum", format="boxd")
    with pytest.raises(TaskError, match="max_terms must be >= min_terms"):
        ReasoningGymTask("chain_sum", min_terms=5, max_terms=2)
    with pytest.raises(TaskError, match="questions\\(n, seed\\)"):
        ReasoningGymTask("chain_sum", seed=3)
    with pytest.raises(TaskError, match="plain data"):
        ReasoningGymTask("chain_sum", min_terms={1, 2})
    with pytest.raises(TaskError, match="at least one dataset"):
        ReasoningGymTask("composite")


def test_composite_takes_its_datasets() -> None:
    task = ReasoningGymTask("composite", datasets=[{"name": "chain_sum"}, {"name": "gcd", "weight": 2.0}])
    questions = task.questions(24, 0)
    assert {q.gold["metadata"]["source_dataset"] for q in questions} == {"chain_sum", "gcd"}
    assert task.score_many([(q, task.reveal(q) or "") for q in questions]) == [1.0] * 24


@pytest.mark.parametrize("family", ["chain_sum", "acre", "tower_of_hanoi", "string_splitting"])
def test_fewer_questions_are_a_prefix_and_all_differ(family: str) -> None:
    few = ReasoningGymTask(family).questions(8, 3)
    many = ReasoningGymTask(family).questions(70, 3)  # more than one block, and made at another time
    assert [q.key for q in many[:8]] == [q.key for q in few]
    assert len({q.text for q in many}) == len({q.key for q in many}) == 70
    assert not {q.text for q in many} & {q.text for q in ReasoningGymTask(family).questions(8, 4)} or family != "chain_sum"


def test_the_same_items_in_every_format_with_the_instruction_after_the_question() -> None:
    plain = ReasoningGymTask("rotate_matrix").questions(4, 0)
    boxed = ReasoningGymTask("rotate_matrix", format="boxed").questions(4, 0)
    for p, b in zip(plain, boxed, strict=True):
        assert p.gold == b.gold and p.key != b.key
        assert p.text == f"{p.gold['question']}\n\n{FORMATS['plain'].instruction}"
        assert b.text == f"{p.gold['question']}\n\n{FORMATS['boxed'].instruction}"
    with pytest.raises(TaskError, match="'last_line' cannot hold"):
        ReasoningGymTask("rotate_matrix", format="last_line").questions(4, 0)


@pytest.mark.parametrize("form", FORMATS)
def test_only_the_required_form_scores(form: str) -> None:
    task = ReasoningGymTask("chain_sum", format=form, exact=True)
    pairs = [(q, task.reveal(q) or "") for q in task.questions(3, 0)]
    assert task.score_many(pairs) == [1.0] * 3
    if form != "plain":
        assert task.score_many([(q, q.gold["answer"]) for q, _ in pairs]) == [0.0] * 3


def test_exact_turns_partial_credit_into_none() -> None:
    raw, exact = ReasoningGymTask("chain_sum"), ReasoningGymTask("chain_sum", exact=True)
    question = raw.questions(1, 0)[0]
    reply = f"The answer is {raw.reveal(question)}"
    assert 0 < raw.score(question, reply) < 0.98
    assert exact.score(question, reply) == 0.0


def test_too_few_different_questions_is_an_error() -> None:
    task = ReasoningGymTask("count_bits", min_n=1, max_n=3)
    assert len(task.questions(3, 0)) == 3
    with pytest.raises(TaskError, match="only 3 different questions"):
        task.questions(4, 0)


def test_items_are_frozen_once_and_a_damaged_line_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    frozen = FrozenItems("gcd", "{}", 77)
    entries = frozen.entries(0, 5)
    before = frozen.path.read_text()
    stamp = frozen.path.stat().st_mtime_ns
    assert frozen.entries(0, 5) == entries and frozen.path.stat().st_mtime_ns == stamp
    lines = before.splitlines()
    row = json.loads(lines[3])
    row["entry"]["answer"] = "999"
    frozen.path.write_text("\n".join([*lines[:3], json.dumps(row), lines[4]]) + "\n")
    with caplog.at_level(logging.WARNING):
        assert frozen.entries(0, 5) == entries
    assert "line 4 is damaged" in caplog.text
    assert frozen.path.read_text() == before


def test_a_generator_that_fails_is_a_task_error() -> None:
    frozen = FrozenItems("chain_sum", '{"min_terms": "x"}', 0)
    with pytest.raises(TaskError, match="generator failed"):
        frozen.entries(0, 2)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REHARNESS_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="set REHARNESS_CACHE"):
        ReasoningGymTask("chain_sum").questions(1, 0)
    monkeypatch.setenv("REHARNESS_CACHE", str(tmp_path))

    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reasoning_gym, "write_atomically", full)
    with pytest.raises(TaskError, match=r"cannot freeze the items of rg/chain_sum .*No space left"):
        ReasoningGymTask("chain_sum").questions(1, 0)


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "items"
    write_atomically(path, "old")
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        write_atomically(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
