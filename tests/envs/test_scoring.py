"""Scores: the worker can be stalled, killed and attacked, and says so; an answer is never run as code."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from reharness.envs import scoring
from reharness.envs.errors import TaskError
from reharness.envs.reasoning_gym import ReasoningGymTask, catalog
from reharness.envs.rg_guard import check_expression
from reharness.envs.rg_host import SCORER, Worker, WorkerDied
from reharness.envs.rg_worker import decode, encode

SLOW_TO_MAKE = {"knight_swap", "zebra_puzzles", "arc_agi", "rearc", "futoshiki", "sudoku"}


def test_an_answer_is_never_run_as_code_in_any_family(tmp_path: Path) -> None:
    mark = tmp_path / "was_here"
    hostile = [
        f"__import__('os').system('touch {mark}')",
        f"[open({str(mark)!r}, 'w') for _ in [1]]",
        f"__import__('pathlib').Path({str(mark)!r}).touch()",
        f"(lambda: exec('import os; os.mkdir({str(mark)!r})'))()",
        f"Symbol('x').__class__.__init__.__globals__['__builtins__']['open']({str(mark)!r}, 'w')",
        f"sympify('__import__(\"os\").system(\"touch {mark}\")')",
        "().__class__.__base__.__subclasses__()",
        "exit()",
    ]
    for family in sorted(set(catalog()) - SLOW_TO_MAKE - {"composite"}):
        task = ReasoningGymTask(family)
        question = task.questions(1, 0)[0]
        scores = task.score_many([(question, answer) for answer in hostile])
        assert not mark.exists(), family
        assert all(isinstance(s, float) for s in scores), (family, scores)


def test_without_the_guard_the_attack_would_succeed(tmp_path: Path) -> None:
    entry = ReasoningGymTask("countdown").questions(1, 0)[0].gold
    worker = Worker(scoring=False)
    items = [[entry, f"__import__('os').system('touch {tmp_path / 'was_here'}')"]]
    worker.ask({"op": "score", "family": "countdown", "params": "{}", "strict": False, "items": items}, 60.0)
    worker.close()
    assert (tmp_path / "was_here").exists()


@pytest.mark.parametrize(
    "text", ["2*x**3 + C", "-3*exp(6*x - 8)/2 + C", "log(x)*sin(2*x)", "8*(5*1 - 2)", "x**(3/2)", "sqrt(x**2 + 1)"]
)
def test_arithmetic_passes_the_guard(text: str) -> None:
    check_expression(text)


@pytest.mark.parametrize(
    "text",
    ["9**9**9", "x.diff", "f(x)", "Integral(x, x)", "[1]", "x if x else x", "lambda: 1", "'a'*9", "x := 1", "__name__",
     "2**(10**6)", "(((9**99)**99)**99)", "gamma(10**9)", "exp(x, evaluate=False)", "x" * 5000, "1 +", "(" * 300, True],
)  # fmt: skip
def test_everything_else_does_not(text: str) -> None:
    with pytest.raises(ValueError, match="not "):
        check_expression(text)


def test_restating_the_integral_does_not_solve_it() -> None:
    task = ReasoningGymTask("simple_integration")
    question = task.questions(1, 0)[0]
    integrand, x = (decode(question.gold)["metadata"][k] for k in ("integrand", "variable"))
    assert task.score(question, f"Integral({integrand}, {x})") == 0.0


def test_non_finite_answers_score_nothing() -> None:
    for family in ("complex_arithmetic", "polynomial_equations", "chain_sum", "decimal_arithmetic"):
        task = ReasoningGymTask(family)
        question = task.questions(1, 0)[0]
        answers = ["nan", "inf", "-inf", "nan+nanj", "nanj", "1e999", "infinity", "NaN i"]
        assert all(isinstance(s, float) and s < 0.01 for s in task.score_many([(question, a) for a in answers]))


def test_an_answer_that_the_scorer_cannot_read_is_wrong_and_not_an_infrastructure_failure() -> None:
    task = ReasoningGymTask("prime_factorization")
    question = task.questions(1, 0)[0]
    assert task.score(question, "no idea") == 0.0
    (strict,) = scoring.score_many("prime_factorization", "{}", [(question.gold, "no idea")], strict=True)
    assert isinstance(strict, TaskError)


def test_a_scorer_that_fails_on_its_own_gold_is_an_error_in_place() -> None:
    task = ReasoningGymTask("prime_factorization")
    good, broken = (dict(q.gold) for q in task.questions(2, 0))
    broken["answer"] = "x × y"
    a, b, c = scoring.score_many("prime_factorization", "{}", [(good, good["answer"]), (broken, "2"), (good, "junk")])
    assert (a, c) == (1.0, 0.0)
    assert isinstance(b, TaskError) and "prime_factorization" in str(b)


def test_an_answer_that_takes_the_scorer_too_long_scores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ReasoningGymTask("rush_hour")
    question = task.questions(1, 0)[0]
    start = time.monotonic()
    assert task.score(question, "A+99999999999999") == 0.0
    assert time.monotonic() - start < 15
    assert task.score(question, "junk") <= 0.01  # the worker lives on


def test_a_worker_that_stalls_or_dies_costs_one_answer_only() -> None:
    task = ReasoningGymTask("chain_sum")
    pairs = [(q.gold, q.gold["answer"]) for q in task.questions(6, 0)]
    assert scoring.score_many("chain_sum", "{}", pairs) == [1.0] * 6
    process = SCORER._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    patch = pytest.MonkeyPatch()
    patch.setattr(scoring, "SCORE_WALL_S", 1.0)
    try:
        first, *rest = scoring.score_many("chain_sum", "{}", pairs)
    finally:
        patch.undo()
    assert isinstance(first, WorkerDied) and rest == [1.0] * 5
    assert process.poll() is not None
    assert SCORER._process is not None
    SCORER._process.kill()
    SCORER._process.wait()
    assert scoring.score_many("chain_sum", "{}", pairs) == [1.0] * 6


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_a_score_that_the_worker_s_death_cost_can_be_asked_again(how: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    task = ReasoningGymTask("rush_hour")
    question = task.questions(1, 0)[0]
    task.score(question, "junk")
    assert SCORER._process is not None
    dying = SCORER._process
    monkeypatch.setattr(scoring, "SCORE_WALL_S", 1.0 if how == signal.SIGSTOP else 30.0)
    if how == signal.SIGSTOP:
        os.kill(dying.pid, how)
    else:
        threading.Timer(0.5, dying.kill).start()  # while it is at work: this answer takes 5 CPU seconds
    with pytest.raises(WorkerDied, match="was killed" if how == signal.SIGSTOP else "ended"):
        task.score(question, "A+99999999999999")
    monkeypatch.undo()
    assert dying.poll() is not None
    assert task.score(question, "junk") <= 0.01
    easy = ReasoningGymTask("chain_sum")
    other = easy.questions(1, 0)[0]
    assert easy.score(other, easy.reveal(other) or "") == 1.0


def test_refused_parameters_are_an_error_for_every_answer() -> None:
    entry = ReasoningGymTask("chain_sum").questions(1, 0)[0].gold
    results = scoring.score_many("chain_sum", '{"min_terms": 9, "max_terms": 2}', [(entry, "1")] * 3)
    assert len(results) == 3 and all(isinstance(r, TaskError) for r in results)


def test_scores_are_fast_and_safe_from_many_threads() -> None:
    task = ReasoningGymTask("chain_sum")
    questions = task.questions(32, 0)
    pairs = [(q, q.gold["answer"]) for q in questions] * 32
    task.score_many(pairs[:1])
    start = time.monotonic()
    assert task.score_many(pairs) == [1.0] * 1024
    assert time.monotonic() - start < 2.0
    wrong: list[object] = []

    def work(offset: int) -> None:
        for i, question in enumerate(questions):
            answer = question.gold["answer"] if (i + offset) % 2 else "zq"
            if task.score(question, answer) != float((i + offset) % 2):
                wrong.append((offset, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_long_answers_are_not_sent() -> None:
    task = ReasoningGymTask("chain_sum")
    assert task.score(task.questions(1, 0)[0], "1 " * 1_000_000) == 0.0


def test_the_worker_has_no_secret_of_the_host_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    worker = Worker(scoring=True)
    assert worker.ask({"op": "check", "family": "gcd", "params": "{}"}, 60.0) == [True]
    process = worker._process
    assert process is not None and process.stdin is not None
    assert b"OPENAI_API_KEY" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    process.stdin.close()  # what the host's end looks like from there
    assert process.wait(timeout=10) == 0
    worker.close()


def test_a_killed_host_leaves_no_worker_behind() -> None:
    code = (
        "import time\nfrom reharness.envs.rg_host import SCORER\n"
        "SCORER.ask({'op': 'check', 'family': 'gcd', 'params': '{}'}, 60.0)\n"
        "print(SCORER._process.pid, flush=True)\ntime.sleep(60)"
    )
    host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    worker = Path("/proc", host.stdout.readline().strip())
    assert worker.exists()
    host.kill()
    host.wait()
    deadline = time.monotonic() + 10
    while worker.exists() and "\nState:\tZ" not in (worker / "status").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    host.stdout.close()
    assert time.monotonic() < deadline


def test_entries_keep_their_types() -> None:
    value = {"a": (1, [2.5, None, True]), "b": {1: "x", (2, 3): {"$tuple": "odd"}}, "c": {"$d": 1}}
    assert decode(encode(value)) == value
    assert isinstance(decode(encode(value))["a"], tuple)
    assert math.isclose(decode(encode(0.1)), 0.1)
    with pytest.raises(TypeError, match="cannot freeze a value of type set"):
        encode({"a": {1}})
