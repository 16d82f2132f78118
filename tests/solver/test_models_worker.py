"""The worker process: it answers, it dies with whoever started it, and its death is an error and not a hang."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from reharness.envs.errors import EngineError
from reharness.solver.models.worker import MAX_DEATHS, Worker

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))


def run(test, backend="Echo", call_s=20.0, **options):
    async def go():
        worker = Worker(f"worker_backends:{backend}", options, threads=1, call_s=call_s)
        try:
            return await test(worker)
        finally:
            await worker.aclose()

    return asyncio.run(go())


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] not in "ZX"
    except FileNotFoundError:
        return False


def gone(pid, within=5.0):
    end = time.monotonic() + within
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


def test_requests_are_batched_and_the_loop_stays_free():
    async def test(worker):
        info = await worker.info()
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticking = asyncio.create_task(tick())
        big = "x" * 100_000  # more than a pipe holds
        answers = await asyncio.gather(*(worker.call({"text": f"{i}{big}", "steps": 5}) for i in range(20)))
        ticking.cancel()
        return info, answers, ticks

    info, answers, ticks = run(test, greeting="hi")
    assert info["greeting"] == "hi" and info["omp"] == "1" and info["pid"] != os.getpid()
    assert [a["text"].rstrip("x") for a in answers] == [str(i) for i in range(20)]
    assert max(a["largest"] for a in answers) > 1
    assert ticks >= 5


def test_a_refused_request_fails_alone():
    async def test(worker):
        return await asyncio.gather(
            worker.call({"text": "refuse"}), worker.call({"text": "fine"}), return_exceptions=True
        )

    refused, fine = run(test)
    assert isinstance(refused, EngineError) and "refused" in str(refused)
    assert fine["text"] == "fine"


@pytest.mark.parametrize(("text", "said"), [("die", "code 7.*something about the end"), ("raise", "the backend broke")])
def test_a_dead_worker_fails_what_was_asked_and_is_started_again(text, said):
    async def test(worker):
        slow = asyncio.create_task(worker.call({"text": "slow", "steps": 10_000}))
        first = (await worker.info())["pid"]
        with pytest.raises(EngineError, match=said):
            await worker.call({"text": text})
        with pytest.raises(EngineError, match=said):
            await slow
        return first, (await worker.call({"text": "again"}))["pid"]

    first, second = run(test)
    assert first != second and not alive(first)


def test_a_worker_that_keeps_dying_is_not_started_for_ever():
    async def test(worker):
        for _ in range(MAX_DEATHS):
            with pytest.raises(EngineError, match="code 7"):
                await worker.call({"text": "die"})
        with pytest.raises(EngineError, match=f"died {MAX_DEATHS} times in a row.*code 7"):
            await worker.call({"text": "fine"})

    run(test)


def test_a_model_that_cannot_be_loaded_says_why():
    async def test(worker):
        with pytest.raises(EngineError, match=r"^worker_backends engine: .* code 1: RuntimeError: .* file is damaged$"):
            await worker.info()

    run(test, "Unloadable")


def test_a_caller_that_goes_away_cancels_its_request():
    async def test(worker):
        await worker.info()
        task = asyncio.create_task(worker.call({"text": "long", "steps": 100_000}))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.sleep(0.1)
        return await worker.call({"text": "after"})

    assert run(test)["cancelled"] == 1


def test_the_wait_is_bounded():
    async def test(worker):
        await worker.info()
        worker.call_s = 0.2
        with pytest.raises(EngineError, match=r"no answer to anybody within 0\.2 s"):
            await worker.call({"text": "long", "steps": 100_000})

    run(test)


def test_closing_ends_the_process_and_what_waits():
    async def test(worker):
        pid = (await worker.info())["pid"]
        waiting = asyncio.create_task(worker.call({"text": "long", "steps": 100_000}))
        await asyncio.sleep(0.05)
        await worker.aclose()
        with pytest.raises(EngineError, match="closed"):
            await waiting
        with pytest.raises(EngineError, match="closed"):
            await worker.call({"text": "x"})
        return pid

    assert gone(run(test), 0.5)


def test_one_worker_serves_several_event_loops():
    worker = Worker("worker_backends:Echo", {}, threads=1)
    pids = {asyncio.run(worker.call({"text": "x"}))["pid"] for _ in range(3)}
    asyncio.run(worker.aclose())
    assert len(pids) == 1


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_no_orphan_whatever_ends_the_host(end):
    """Killed, or ended without closing; the worker was started from a thread that is long over."""
    code = textwrap.dedent(
        f"""
        import asyncio, os, signal, sys, threading, time
        from reharness.solver.models.worker import Worker
        worker = Worker("worker_backends:Echo", {{}}, threads=1)
        first = threading.Thread(target=lambda: asyncio.run(worker.call({{"text": "x"}})))
        first.start(); first.join(); time.sleep(0.3)
        print(asyncio.run(worker.call({{"text": "x"}}))["pid"], flush=True)
        if {end!r} == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    host = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert host.returncode == (-signal.SIGKILL if end == "kill" else 0), host.stderr
    assert gone(int(host.stdout))


def test_a_request_may_queue_for_longer_than_the_wait_while_others_are_answered():
    async def test(worker):
        await worker.info()
        worker.call_s = 0.4
        last = asyncio.create_task(worker.call({"text": "last", "steps": 100}))
        for _ in range(8):
            await asyncio.sleep(0.1)
            await worker.call({"text": "another"})
        return (await last)["text"]

    assert run(test) == "last"
