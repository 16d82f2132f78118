"""`evaluate` on real Reasoning Gym questions, in the real sandbox, with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from solving import with_solver

from reharness.envs.errors import EngineError, InfraLimitError
from reharness.envs.registry import get_task
from reharness.envs.types import Question, Task
from reharness.solver.evaluate import Solver, evaluate
from reharness.solver.harness import Harness
from reharness.solver.models.base import Message, PromptTooLong, Sampling
from reharness.solver.models.scripted import ScriptedEngine
from reharness.solver.outcomes import Answered, Failed, Infra, Scorecard
from reharness.solver.tools import Budgets

TASK = get_task("chain_sum", exact=True)
QUESTIONS = TASK.questions(6, 1)
ASK = "def run(question, tools):\n    return tools.llm(question, max_tokens=8, temperature={t})\n"
Reply = Callable[[Sequence[Message], Sampling], str]


def gold(messages: Sequence[Message], _: Sampling) -> str:
    return {q.text: TASK.reveal(q) or "" for q in QUESTIONS}[messages[-1]["content"]]


def score(
    source: str,
    reply: Reply = gold,
    task: Task = TASK,
    questions: Sequence[Question] = QUESTIONS,
    repeats: int = 1,
    **options: Any,
) -> Scorecard:

    async def body(solver: Solver) -> Scorecard:
        return await evaluate(Harness(source), questions, solver, task=task, repeats=repeats)

    return with_solver(ScriptedEngine(reply), body, **options)


def test_right_answers_score_one_and_the_trace_tells_what_was_asked() -> None:
    card = score(ASK.format(t=0))
    assert (card.mean, card.n, card.completed_share, card.infra) == (1.0, 6, 1.0, 0)
    first = card.outcomes[0]
    assert isinstance(first, Answered) and first.rung
    assert first.trace[0].data["reply"] == first.answer and first.trace[0].data["prompt"] == QUESTIONS[0].text
    assert first.usage.llm_calls == 1 and first.usage.prompt_tokens > 0


def test_three_outcomes_are_three_types() -> None:
    failing = score("def run(question, tools):\n    return 1 / 0\n")
    assert failing.mean == 0.0 and failing.completed_share == 0.0 and failing.failures == {"harness_error": 6}
    assert "harness.py" in failing.outcomes[0].detail  # type: ignore[union-attr]

    def down(messages: Sequence[Message], _: Sampling) -> str:
        raise EngineError("the endpoint is down; start it")

    broken = score(ASK.format(t=0), down, infra_retries=0)
    assert broken.n == 0 and broken.mean != broken.mean and broken.infra == 6
    assert all(isinstance(o, Infra) and o.kind == "engine_error" for o in broken.outcomes)


def test_an_engine_that_recovers_is_asked_again() -> None:
    state = {"down": 3}

    def flaky(messages: Sequence[Message], sampling: Sampling) -> str:
        if state["down"]:
            state["down"] -= 1
            raise EngineError("busy; wait")
        return gold(messages, sampling)

    assert score(ASK.format(t=0), flaky, infra_retries=3).mean == 1.0


def test_too_much_infra_stops_the_run_loudly() -> None:
    def down(messages: Sequence[Message], _: Sampling) -> str:
        raise EngineError("down; start it")

    with pytest.raises(InfraLimitError, match=r"engine_error.*down"):
        score(ASK.format(t=0), down, questions=TASK.questions(24, 1), infra_retries=0)


def test_a_scorer_that_raises_is_infra_not_zero() -> None:
    class Broken:
        name, interface, description, scorer_version = "broken", "search_replace", "d", "1"

        def questions(self, n: int, seed: int) -> Sequence[Question]:
            return QUESTIONS[:n]

        def score(self, question: Question, answer: str) -> float:
            raise RuntimeError("scorer bug")

        def reveal(self, question: Question) -> str | None:
            return None

    card = score(ASK.format(t=0), task=Broken())
    assert card.n == 0 and all(isinstance(o, Infra) and o.kind == "scorer_error" for o in card.outcomes)


def test_everything_is_in_the_ledger_and_nothing_is_asked_twice() -> None:
    engine = ScriptedEngine(gold)

    async def body(solver: Solver) -> None:
        first = await evaluate(Harness(ASK.format(t=0)), QUESTIONS, solver, task=TASK)
        calls = len(engine.calls)
        again = await evaluate(Harness(ASK.format(t=0)), QUESTIONS, solver, task=TASK)
        assert again == first and len(engine.calls) == calls == 6
        # A harness that only post-processes asks the same greedy prompts: its outcomes are new, its calls are not.
        tidied = Harness(ASK.format(t=0).replace("return", "return '7' or"))
        other = await evaluate(tidied, QUESTIONS, solver, task=TASK)
        assert other.harness != first.harness and len(engine.calls) == calls
        twins = await asyncio.gather(
            *(evaluate(Harness(ASK.format(t=1)), QUESTIONS, solver, task=TASK) for _ in range(3))
        )
        assert twins[0] == twins[1] == twins[2] and len(engine.calls) == calls + 6

    with_solver(engine, body)


def test_sampling_is_seeded_by_the_call_not_by_its_arrival() -> None:
    vote = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def run(question, tools):\n"
        "    with ThreadPoolExecutor(4) as pool:\n"
        "        return ' '.join(sorted(pool.map(lambda _: tools.llm(question, temperature=0.9), range(4))))\n"
    )

    def seeds(messages: Sequence[Message], sampling: Sampling) -> str:
        return str(sampling.seed)

    wide, narrow = score(vote, seeds, concurrency=16), score(vote, seeds, concurrency=1)
    assert wide.answers == narrow.answers
    assert len(set(wide.answers)) == 6 and all(len(set((a or "").split())) == 4 for a in wide.answers)
    repeated = score(vote, seeds, repeats=2)
    assert len(set(repeated.answers)) == 12  # repeats are sampled anew


def test_budgets_are_counted_by_the_host() -> None:
    loop = "def run(question, tools):\n    while True:\n        tools.llm(question + ' ', max_tokens=100)\n"
    stopped(score(loop, lambda m, s: "a", budgets=Budgets(llm_calls=5)), "llm_calls")
    many = "def run(q, tools):\n    return tools.llm(q, max_tokens=2000) + tools.llm(q, max_tokens=2001)\n"
    stopped(score(many, lambda m, s: " ".join(["w"] * 2000), budgets=Budgets(completion_tokens=3000)), "completion_tokens")


def stopped(card: Scorecard, budget: str) -> None:
    assert card.failures == {"budget": 6}
    assert all(isinstance(o, Failed) and budget in o.detail for o in card.outcomes)


@pytest.mark.parametrize(
    "call",
    ["tools.llm(7)", "tools.llm([])", "tools.llm([{'role': 'x', 'content': ''}])", "tools.llm(q, max_tokens=0)",
     "tools.llm(q, max_tokens=True)", "tools.llm(q, temperature=9)", "tools.python(3)", "tools.python('1', timeout=-1)"],
)  # fmt: skip
def test_a_bad_call_is_an_error_the_harness_can_catch(call: str) -> None:
    source = f"def run(q, tools):\n    try:\n        {call}\n    except ValueError as e:\n        return f'caught {{e}}'\n"
    (outcome, *_) = score(source, questions=QUESTIONS[:1]).outcomes
    assert isinstance(outcome, Answered) and outcome.answer.startswith("caught ")


def test_a_prompt_too_long_is_the_harness_s_own_error() -> None:
    def full(messages: Sequence[Message], _: Sampling) -> str:
        raise PromptTooLong("9000 tokens, 8192 fit")

    (outcome, *_) = score(ASK.format(t=0), full, questions=QUESTIONS[:1]).outcomes
    assert isinstance(outcome, Failed) and outcome.kind == "harness_error" and "8192" in outcome.detail


def test_python_runs_in_its_own_sandbox_and_is_on_the_trace() -> None:
    source = (
        "def run(q, tools):\n"
        "    r = tools.python('print(6 * 7)')\n"
        "    tools.note('got ' + r.stdout)\n"
        "    bad = tools.python('1 / 0')\n"
        "    return r.stdout.strip() + ' ' + bad.error.strip().splitlines()[-1]\n"
    )
    (outcome, *_) = score(source, questions=QUESTIONS[:1]).outcomes
    assert isinstance(outcome, Answered), outcome
    assert outcome.answer.startswith("42 ZeroDivisionError")
    assert [e.kind for e in outcome.trace] == ["python", "note", "python"]
    assert outcome.usage.python_calls == 2


def test_python_time_has_a_budget_of_its_own() -> None:
    burn = "import time\nwhile time.process_time() < 0.5:\n    pass\n"
    source = f"def run(q, tools):\n    return str([tools.python({burn!r}).error for _ in range(4)])\n"
    card = score(source, questions=QUESTIONS[:1], budgets=Budgets(python_total_s=0.9))
    assert card.failures == {"budget": 1}
    assert score(source, questions=QUESTIONS[:1]).completed_share == 1.0


def test_calls_left_behind_are_counted() -> None:
    source = (
        "import threading\n"
        "def run(q, tools):\n"
        "    for i in range(9):\n"
        "        threading.Thread(target=tools.llm, args=(f'{i}',), daemon=True).start()\n"
        "    import time; time.sleep(0.3)\n"
        "    return 'done'\n"
    )

    async def slow(solver: Solver) -> Scorecard:
        return await evaluate(Harness(source), QUESTIONS[:2], solver, task=TASK)

    engine = ScriptedEngine(lambda messages, sampling: "late", latency_s=5)
    card = with_solver(engine, slow, budgets=Budgets(llm_calls=5))
    assert card.failures == {"budget": 2}


@pytest.mark.parametrize("value", [True, "1.0", float("nan"), 1.5, None])
def test_a_score_that_is_none_is_infra(value: Any) -> None:
    class Odd:
        name, interface, description, scorer_version = "odd", "search_replace", "d", "1"

        def questions(self, n: int, seed: int) -> Sequence[Question]:
            return QUESTIONS[:n]

        def score(self, question: Question, answer: str) -> float:
            return value  # type: ignore[no-any-return]

        def reveal(self, question: Question) -> str | None:
            return None

    card = score(ASK.format(t=0), task=Odd(), questions=QUESTIONS[:1], infra_retries=0)
    assert [type(o) for o in card.outcomes] == [Infra]
