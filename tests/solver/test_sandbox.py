"""The sandbox keeps its promises to honest harnesses: tools, limits, typed ends, many runs at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from solving import with_sandbox

from reharness.solver.sandbox import (
    BudgetExceeded,
    Limits,
    PythonResult,
    Returned,
    RunFailed,
    RunInfra,
    RunResult,
    Sandbox,
    ToolError,
)

QUICK = Limits(cpu_s=2, wall_s=10)


async def echo(method: str, params: dict[str, Any]) -> Any:
    return params["messages"][-1]["content"] if method == "llm" else None


def run(body: str, handler: Any = echo, limits: Limits = QUICK, question: str = "q", **options: Any) -> RunResult:
    """One run of a harness whose `run` has this body."""
    source = "def run(question, tools):\n" + "\n".join("    " + line for line in body.strip().splitlines())
    result: RunResult = with_sandbox(lambda sandbox: sandbox.run(source, question, handler, limits, **options))
    return result


def kind_of(result: RunResult) -> str:
    return "returned" if isinstance(result.end, Returned) else result.end.kind


def test_a_harness_gets_its_question_and_its_tools() -> None:
    heard: list[tuple[str, dict[str, Any]]] = []

    async def handler(method: str, params: dict[str, Any]) -> Any:
        heard.append((method, params))
        return {"llm": "four", "python": {"stdout": "4\n", "error": None}, "note": None}[method]

    result = run(
        """
tools.note("thinking é")
first = tools.llm(question, max_tokens=9)
second = tools.llm([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], 7, temperature=0.5)
done = tools.python("print(2 + 2)", timeout=3)
return f"{first} {second} {done.stdout.strip()} {done.error}"
""",
        handler,
        question="2 + 2 = ?",
    )
    assert result.end == Returned("four four 4 None")
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    asked = [{"role": "user", "content": "2 + 2 = ?"}]
    assert heard == [
        ("note", {"text": "thinking é"}),
        ("llm", {"messages": asked, "max_tokens": 9, "temperature": 0.0}),
        ("llm", {"messages": messages, "max_tokens": 7, "temperature": 0.5}),
        ("python", {"code": "print(2 + 2)", "timeout": 3.0}),
    ]
    assert 0 < result.cpu_s < 2 and 0 < result.wall_s < 10 and result.rung in (1, 2, 3)


def test_threads_may_call_tools_at_once() -> None:
    most = now = 0

    async def handler(method: str, params: dict[str, Any]) -> str:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1
        return "reply to " + params["messages"][0]["content"]

    result = run(
        """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(32) as pool:
    replies = list(pool.map(lambda n: tools.llm(str(n)), range(64)))
return str(replies == [f"reply to {n}" for n in range(64)])
""",
        handler,
    )
    assert result.end == Returned("True")
    assert most >= 16


def test_asyncio_and_late_imports_work_in_a_harness() -> None:
    result = run(
        """
import asyncio, csv, difflib, hashlib, statistics
async def ask(n):
    return await asyncio.to_thread(tools.llm, str(n))
async def main():
    return await asyncio.gather(*(ask(n) for n in range(5)))
replies = asyncio.run(main())
import plistlib, zipfile  # not among the modules loaded beforehand
return "".join(replies) + str(statistics.median([3, 1, 2])) + plistlib.__name__
"""
    )
    assert result.end == Returned("012342plistlib")


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("return 4", "protocol", "int"),
        ("return None", "protocol", "NoneType"),
        ("class S(str): pass\nreturn S('x')", "protocol", "S, not str"),
        ("return chr(0xD800)", "protocol", "surrogate"),
        ("return {}['key']", "harness_error", "harness.py:2 in run: return {}['key']\nKeyError: 'key'"),
        ("return tools.search('x')", "harness_error", "no tool 'search' here; the tools are llm, note, python"),
        ("import sys\nsys.exit(0)", "harness_error", "SystemExit"),
        ("return tools.llm(question, temperature=True)", "harness_error", "ValueError: temperature must be a number"),
        ("return tools.llm(question, max_tokens=0)", "harness_error", "max_tokens must be an int from 1"),
        ("return tools.llm(question, temperature=float('nan'))", "harness_error", "ValueError"),
        ("return tools.llm([{'role': 'robot', 'content': 'x'}])", "harness_error", "role is system, user or assistant"),
        ("return tools.llm()", "harness_error", "TypeError: llm needs messages_or_prompt"),
        ("return tools.llm('a', 1, 0.0, 'extra')", "harness_error", "TypeError: llm takes"),
        ("raise PermissionError('its own')", "denied", "its own"),
        ("return 'x' * 70_000", "output_limit", "65536"),
        ("import numpy", "harness_error", "No module named 'numpy'"),
        ("import reasoning_gym", "harness_error", "No module named 'reasoning_gym'"),
        ("import reharness.envs", "harness_error", "No module named 'reharness'"),
    ],
)
def test_ends_are_typed_and_say_why(body: str, kind: str, says: str) -> None:
    result = run(body)
    assert kind_of(result) == kind
    assert isinstance(result.end, RunFailed)
    assert says in result.end.detail


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def run(question, tools)\n    return ''", "harness.py:1 in the source: def run(question, tools)\nSyntaxError"),
        ("x = 1", "defines no function `run`"),
        ("1 / 0\ndef run(question, tools): return ''", "harness.py:1 in <module>: 1 / 0\nZeroDivisionError"),
    ],
)
def test_a_source_that_cannot_be_loaded(source: str, says: str) -> None:
    result = with_sandbox(lambda sandbox: sandbox.run(source, "q", echo, QUICK))
    assert isinstance(result.end, RunFailed) and result.end.kind == "harness_error"
    assert says in result.end.detail


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[1]",
        b"[" * 100_000,
        b'{"id": ' + b"9" * 100_000 + b"}",
        b'{"call": "llm", "id": true, "params": {}}',
        b'{"call": "note", "params": {"text": NaN}}',
        b'{"call": "note", "params": {"text": 1e999}}',
        b'{"call": "note", "params": {"text": "\\ud800"}}',
        b'{"call": "note", "params": {"text": "a", "text": "b"}}',
        b'{"call": "__class__", "params": {}}',
        b'{"call": "llm", "id": 1, "params": {"prompt": "x"}}',
        b'{"end": "returned", "text": 4}',
        b'{"end": "answered", "text": "4"}',
        b'{"end": "returned", "text": "4", "score": 1}',
        b"\xff\xfe",
    ],
    ids=lambda line: line[:40].decode("latin-1"),
)
def test_what_no_stub_would_send_is_a_protocol_failure(line: bytes) -> None:
    result = run(f"import os, time\nos.write(3, {line!r} + b'\\n')\ntime.sleep(9)")
    assert kind_of(result) == "protocol"


def test_the_first_end_counts() -> None:
    lines = b'{"end": "returned", "text": "first"}\n{"end": "returned", "text": "second"}\n'
    assert run(f"import os\nos.write(3, {lines!r})\nreturn 'third'").end == Returned("first")


def test_budgets() -> None:
    assert kind_of(run("for _ in range(9): tools.llm('x')\nreturn ''", limits=Limits(calls=8))) == "budget"
    assert kind_of(run("for _ in range(8): tools.llm('x')\nreturn ''", limits=Limits(calls=8))) == "returned"
    flood = "for _ in range(99): tools.note('x' * 100)\nreturn ''"
    assert kind_of(run(flood, limits=Limits(output_bytes=5_000))) == "output_limit"
    assert kind_of(run(flood, limits=Limits(calls=8))) == "returned"

    async def spent(method: str, params: dict[str, Any]) -> str:
        raise BudgetExceeded("no tokens left")

    assert run("try:\n    tools.llm('x')\nexcept BaseException:\n    return 'went on'", spent).end == RunFailed(
        "budget", "no tokens left"
    )


def test_a_tool_error_is_the_harness_s_to_catch() -> None:
    async def picky(method: str, params: dict[str, Any]) -> str:
        raise ToolError("the prompt is too long")

    assert run("try:\n    tools.llm('x')\nexcept ValueError as e:\n    return str(e)", picky).end == Returned(
        "the prompt is too long"
    )


def test_a_host_call_that_breaks_is_infra_and_never_a_score() -> None:
    class ScorerDied(Exception):
        infra_kind = "scorer_error"

    async def down(method: str, params: dict[str, Any]) -> str:
        raise ConnectionError("engine down") if params["messages"][0]["content"] == "x" else ScorerDied("died")

    catch = "try:\n    tools.llm({!r})\nexcept BaseException:\n    return 'went on'"
    assert run(catch.format("x"), down).end == RunInfra("engine_error", "ConnectionError: engine down")
    assert run(catch.format("y"), down).end == RunInfra("scorer_error", "ScorerDied: died")

    async def odd(method: str, params: dict[str, Any]) -> Any:
        return float("nan")

    assert kind_of(run("return str(tools.llm('x'))", odd)) == "engine_error"


def test_waiting_on_the_host_is_not_the_harness_s_time() -> None:
    async def slow(method: str, params: dict[str, Any]) -> str:
        await asyncio.sleep(0.8)
        return "late"

    patient = run("return tools.llm('x')", slow, Limits(wall_s=0.5))
    assert patient.end == Returned("late")
    assert patient.wall_s < 0.5
    assert kind_of(run("return tools.llm('x')", slow, Limits(wait_s=0.2))) == "timeout_wait"
    late = run("import time\ntools.llm('x')\ntime.sleep(9)", slow, Limits(wall_s=0.4))
    assert kind_of(late) == "timeout_wall"
    assert 0.3 < late.wall_s < 2


def test_limits_that_a_harness_may_notice_are_survivable() -> None:
    caught = "try:\n    bytearray(1 << 33)\nexcept MemoryError:\n    return 'caught'"
    assert run(caught).end == Returned("caught")
    assert kind_of(run("import signal, time\nsignal.alarm(1)\ntime.sleep(9)")) == "died"


def test_runs_are_deterministic_and_leave_no_state() -> None:
    body = """
import builtins, random
seen = getattr(builtins, "left_behind", "clean")
builtins.left_behind = "dirty"
return f"{seen} {random.random()} {list({'a', 'b', 'c', 'd', 'e', question})}"
"""
    first, again, other = run(body), run(body), run(body, question="r")
    assert isinstance(first.end, Returned) and first.end.answer.startswith("clean 0.")
    assert first.end == again.end != other.end


def test_many_runs_at_once_do_not_hear_each_other() -> None:
    async def slowly(method: str, params: dict[str, Any]) -> str:
        await asyncio.sleep(0.01)
        return "re " + params["messages"][0]["content"] if method == "llm" else ""

    source = "def run(question, tools):\n    return ' '.join(tools.llm(f'{question}.{i}') for i in range(4))"

    async def crowd(sandbox: Sandbox) -> list[RunResult]:
        hostile = sandbox.run("def run(q, t):\n    while True: t.note('x' * 999)", "h", slowly, QUICK)
        honest = (sandbox.run(source, f"q{n}", slowly, Limits(wall_s=60)) for n in range(64))
        return list(await asyncio.gather(hostile, *honest))

    for workers in (1, 2):
        loud, *results = with_sandbox(crowd, workers=workers)
        assert kind_of(loud) == "output_limit"
        assert [r.end for r in results] == [Returned(" ".join(f"re q{n}.{i}" for i in range(4))) for n in range(64)]


def test_python_runs_code_and_keeps_what_it_printed() -> None:
    async def work(sandbox: Sandbox) -> list[PythonResult]:
        quick = Limits(cpu_s=1, wall_s=0.5, answer_bytes=1000)
        codes = [
            "print(6 * 7)",
            "print('before')\n1 / 0",
            "print('before')\nimport time\ntime.sleep(9)",
            "import sys\nsys.exit()",
            "print('x' * 5000)",
            "print('x', end='')",
            "while True: pass",
            "import os\nos.fork()",
        ]
        return [await sandbox.python(code, Limits(cpu_s=1) if "while" in code else quick) for code in codes]

    results = with_sandbox(work)
    assert results[0] == PythonResult("42\n")
    assert results[1] == PythonResult(
        "before\n", "code.py:2 in <module>: 1 / 0\nZeroDivisionError: division by zero", "harness_error"
    )
    assert (results[2].stdout, results[2].kind) == ("before\n", "timeout_wall")
    assert results[3] == PythonResult("")
    assert results[4] == PythonResult("x" * 1000)
    assert results[5] == PythonResult("x")
    assert results[6].kind == "timeout_cpu"
    assert results[7].kind == "denied"


def test_a_run_that_works_on_a_busy_machine_is_not_late_but_one_that_sleeps_is() -> None:
    work = "import time\ndef run(q, tools):\n    while time.process_time() < 0.6:\n        pass\n    return 'done'\n"
    sleep = "import time\ndef run(q, tools):\n    time.sleep(30)\n"
    burst = "import time\ndef run(q, tools):\n    while time.process_time() < 0.3:\n        pass\n    time.sleep(30)\n"
    nap = "import time\ndef run(q, tools):\n    while True:\n        time.sleep(0.0005)\n"
    limits = Limits(cpu_s=5, wall_s=0.7)

    async def body(sandbox: Sandbox) -> None:
        worked = await asyncio.gather(*(sandbox.run(work, "q", echo, limits) for _ in range(12)))
        assert [w.end for w in worked] == [Returned("done")] * 12
        for sleeper in (sleep, burst, nap):
            started = asyncio.get_running_loop().time()
            slept = await sandbox.run(sleeper, "q", echo, limits)
            assert isinstance(slept.end, RunFailed) and slept.end.kind == "timeout_wall", slept.end
            assert asyncio.get_running_loop().time() - started < 5

    with_sandbox(body)


def test_a_harness_cannot_lower_its_limits_to_look_like_our_fault() -> None:
    source = (
        "import resource\ndef run(q, tools):\n    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\n    while True:\n        pass\n"
    )

    async def body(sandbox: Sandbox) -> None:
        done = await sandbox.run(source, "q", echo, Limits(cpu_s=3, wall_s=10))
        assert isinstance(done.end, RunFailed), done.end

    with_sandbox(body)
