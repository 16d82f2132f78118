"""The audit finds what is planted, and passes what is sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from reharness.envs import audit as audit_module
from reharness.envs import audit_rows
from reharness.envs.audit import AuditRow, audit, audit_table, audit_task
from reharness.envs.audit_panel import echoes, shotguns
from reharness.envs.audit_rows import load_table, write_table
from reharness.envs.audit_solutions import CONSTRUCTORS
from reharness.envs.errors import ConfigError, UnknownNameError
from reharness.envs.reasoning_gym import ReasoningGymTask
from reharness.envs.rg_worker import decode
from reharness.envs.types import Question


def test_a_sound_family_is_ok_and_an_unsound_one_says_why() -> None:
    seen: list[str] = []
    good, constant, echo, nonsense, unknown = audit(
        ["chain_sum", "rg/coin_flip", "string_insertion", "game_of_life_halting", "composite"],
        on_row=lambda row: seen.append(row.task),
        items=24,
    )
    assert (good.status, good.trainable, good.why, good.gold) == ("ok", True, "", 1.0)
    assert constant.status == "fails" and not constant.trainable and "constant pays: '0'" in constant.why
    assert "echo pays: its last word" in echo.why
    assert "nonsense pays" in nonsense.why
    assert unknown.status == "not audited" and "at least one dataset" in unknown.why and not unknown.trainable
    assert seen == ["rg/chain_sum", "rg/coin_flip", "rg/string_insertion", "rg/game_of_life_halting", "rg/composite"]


def test_a_gold_that_does_not_score_fails_the_family() -> None:
    row = audit_task("gsm_symbolic", 24)
    assert row.status == "fails" and "a gold answer scores 0.01" in row.why


def test_a_scorer_that_raises_is_noted() -> None:
    assert "letters" in audit_task("prime_factorization", 8).raises


def test_unknown_names_are_refused_before_any_work() -> None:
    rows: list[AuditRow] = []
    with pytest.raises(UnknownNameError):
        audit(["chain_sum", "chain_sun"], rows.append)
    assert not rows
    with pytest.raises(ConfigError, match="without task names"):
        audit_table(["chain_sum"], None, write=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", CONSTRUCTORS)
def test_constructed_solutions_score_one(family: str) -> None:
    task = ReasoningGymTask(family)
    questions = task.questions(6, 5)
    assert all(q.gold["answer"] is None for q in questions)
    answers = [CONSTRUCTORS[family](decode(q.gold)) for q in questions]
    assert task.score_many([(q, a or "") for q, a in zip(questions, answers, strict=True)]) == [1.0] * 6


def test_table_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(load_table().values())
    (tmp_path / "data").mkdir()
    write_table(rows, tmp_path / "data" / "rg_audit.json", tmp_path / "audit.md")
    monkeypatch.setattr(audit_rows.resources, "files", lambda _: tmp_path)
    assert list(load_table.__wrapped__().values()) == rows
    page = (tmp_path / "audit.md").read_text()
    assert page.count("\n| ") == len(rows) + 2 and "| coin_flip | fails | no |" in page


def test_the_committed_page_is_that_of_the_committed_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "audit.md"
    assert page.read_text(encoding="utf-8") == audit_rows.markdown(list(load_table().values()))


def test_panels() -> None:
    kinds = echoes("Given:\n1. (P → Q)\nWhat is 'x' of 3 and 4?")
    assert kinds["its line 2 without the list mark"] == "(P → Q)"
    assert (kinds["its last number"], kinds["its first quoted text"], kinds["its last word"]) == ("4", "x", "4")
    assert shotguns("a", ["a", "b", "c", "b"])["other golds joined by ', '"] == "b, c"


def test_third_party_tasks_are_held_to_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    class Generous(ReasoningGymTask):
        def score(self, question: Question, answer: str) -> float:
            return 1.0

    tasks = {"sound": ReasoningGymTask("chain_sum", exact=True), "generous": Generous("chain_sum")}
    monkeypatch.setattr(audit_module, "third_party", lambda: tasks)
    monkeypatch.setattr(audit_module, "get_task", tasks.__getitem__)
    sound, generous = audit(["sound", "generous"])
    assert (sound.status, sound.trainable, sound.why) == ("ok", True, "")
    assert (generous.status, generous.trainable) == ("fails", False) and "junk scores 1" in generous.why
