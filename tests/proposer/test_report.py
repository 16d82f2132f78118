from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reharness.envs.errors import ConfigError
from reharness.envs.types import Question
from reharness.proposer.prompts import SEARCH_REPLACE, messages
from reharness.proposer.report import EditRecord, build_report
from reharness.solver.outcomes import Answered, Event, Failed, Infra, Outcome, Scorecard


class Echo:
    """A task whose gold is the question's first word, shown quoted."""

    name, interface, description, scorer_version = "echo", "search_replace", "say the first word", "1"

    def questions(self, n: int, seed: int) -> list[Question]:
        return [Question("echo", f"word{i} of question {i}", f"word{i}") for i in range(n)]

    def score(self, question: Question, answer: str) -> float:
        return float(answer == question.gold)

    def reveal(self, question: Question) -> str | None:
        return str(question.gold)


TASK = Echo()
CALL = {"prompt": "p", "messages": 1, "max_tokens": 9, "temperature": 0.0, "reply": "x", "finish": "length"}
LLM = Event("llm", CALL)


def card(questions: list[Question], outcomes: list[Outcome]) -> Scorecard:
    return Scorecard("h", "echo", tuple(q.key for q in questions), (0,) * len(outcomes), tuple(outcomes))


def words(text: str) -> int:
    return len(text) // 4 + 1


def test_the_report_shows_scores_failures_traces_and_gold_of_feedback_questions_only() -> None:
    feedback, others = TASK.questions(5, 0)[:3], TASK.questions(5, 0)[3:]
    outcomes: list[Outcome] = [
        Answered('"word0"', 0.0, (LLM,)),
        Failed("harness_error", "ZeroDivisionError at harness.py line 3"),
        Answered("word2", 1.0),
        Answered("nonsense", 0.0),
        Answered("nonsense", 0.0),
    ]
    history = [EditRecord(1, "try harder", "score 0.333 -> 0.200, rejected")]
    report = build_report(TASK, feedback, card(feedback + others, outcomes), history)
    assert (report.n, report.score, report.failures) == (3, pytest.approx(1 / 3), (("harness_error", 1),))
    text = report.render(2000, words)
    assert r'returned: "\"word0\""' in text and 'right answer: "word0"' in text  # the quotes are seen
    assert "cut off" in text and "ZeroDivisionError at harness.py line 3" in text
    assert "try harder: score 0.333 -> 0.200, rejected" in text
    assert "word3" not in text and "word4" not in text and "nonsense" not in text


def test_failed_cases_are_chosen_by_variety_lowest_first() -> None:
    questions = TASK.questions(8, 0)
    outcomes: list[Outcome] = [Answered("same", 0.0)] * 5
    outcomes += [Answered("other", 0.5), Failed("memory", "m"), Answered("ok", 1.0)]
    report = build_report(TASK, questions, card(questions, outcomes), failed=3, solved=1)
    assert [c.answer or c.failure for c in report.cases] == ["same", "memory: m", "other", "ok"]


def test_infra_is_not_in_the_report_and_nothing_measured_is_not_zero() -> None:
    questions = TASK.questions(2, 0)
    report = build_report(TASK, questions, card(questions, [Infra("engine_error", "down"), Answered("word1", 1.0)]))
    assert (report.n, report.score) == (1, 1.0) and "down" not in report.render(500, words)
    assert math.isnan(build_report(TASK, questions, card(questions, [Infra("engine_error", "down")] * 2)).score)


LONG = st.text(max_size=3000)


@given(st.lists(st.tuples(LONG, LONG), min_size=1, max_size=6), st.integers(0, 3000))
def test_a_report_never_passes_its_budget(pairs: list[tuple[str, str]], budget: int) -> None:
    questions = [Question("echo", q, "gold" * 500) for q, _ in pairs]
    report = build_report(TASK, questions, card(questions, [Answered(a, 0.0, (LLM,)) for _, a in pairs]))
    text = report.render(budget, len)
    assert len(text) <= budget


def test_messages_keep_to_the_window_and_hold_harness_and_grammar() -> None:
    questions = TASK.questions(4, 0)
    report = build_report(TASK, questions, card(questions, [Answered("no " * 900, 0.0)] * 4))
    source = "def run(question, tools):\n    return 'no'\n"
    system, user = messages("echo", source, report, 700, words)
    assert words(system["content"]) + words(user["content"]) <= 700 + 2
    assert source in user["content"] and "<<<<<<< SEARCH" in system["content"] == SEARCH_REPLACE
    with pytest.raises(ConfigError, match="too long for a context of 700"):
        messages("echo", source * 60, report, 700, words)
