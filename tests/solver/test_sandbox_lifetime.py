"""No process of the sandbox outlives its owner, and none that dies takes more than its own runs with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from solving import hear_ctrl_c, with_sandbox

from reharness.solver.sandbox import Limits, Returned, RunResult, Sandbox, cage

QUICK = Limits(cpu_s=2, wall_s=10)


async def echo(method: str, params: dict[str, Any]) -> Any:
    return params["messages"][-1]["content"]


def kind_of(result: RunResult) -> str:
    return "returned" if isinstance(result.end, Returned) else result.end.kind


def _descendants(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            child = int(path.parent.name)
            found += [child, *_descendants(child)]
    return found


def test_nothing_remains_after_aclose_and_after_a_cancelled_run() -> None:
    before = set(_descendants(os.getpid()))

    async def work(sandbox: Sandbox) -> None:
        endless = "def run(q, t):\n    while True: t.llm('x')"
        runs = [asyncio.create_task(sandbox.run(endless, "q", echo, Limits(calls=10**6))) for _ in range(8)]
        await asyncio.sleep(0.3)
        assert len(set(_descendants(os.getpid())) - before) >= 9
        for task in runs[:4]:
            task.cancel()
        await asyncio.gather(*runs[:4], return_exceptions=True)
        assert all(task.cancelled() for task in runs[:4])
        await sandbox.aclose()
        assert [kind_of(result) for result in await asyncio.gather(*runs[4:])] == ["sandbox_error"] * 4

    with_sandbox(work)
    deadline = time.monotonic() + 5
    while (left := set(_descendants(os.getpid())) - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left


def test_a_zygote_that_dies_is_replaced_and_its_runs_are_infra() -> None:
    async def work(sandbox: Sandbox) -> None:
        hanging = asyncio.create_task(sandbox.run("def run(q, t):\n    return t.llm(q)", "q", never, QUICK))
        await called.wait()
        zygote = await sandbox._slots[0].zygote()
        assert zygote._handle is not None
        signal.pidfd_send_signal(zygote._handle, signal.SIGKILL)
        assert kind_of(await hanging) == "sandbox_error"
        assert (await sandbox.run("def run(q, t):\n    return t.llm(q)", "again", echo, QUICK)).end == Returned("again")

    called = asyncio.Event()

    async def never(method: str, params: dict[str, Any]) -> None:
        called.set()
        await asyncio.sleep(60)

    with_sandbox(work)


HOST = """
import asyncio, sys, threading
from reharness.solver.sandbox import Limits, Sandbox
async def hold(method, params):
    print("in flight", flush=True)
    await asyncio.sleep(60)
async def main():
    sandbox = await Sandbox.start()
    await sandbox.run("def run(q, t):\\n    return t.llm(q)", "q", hold, Limits())
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_when_the_host_is_killed_nothing_remains(number: signal.Signals) -> None:
    command = [sys.executable, "-c", HOST]
    quiet: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, preexec_fn=hear_ctrl_c, **quiet) as host:
        assert host.stdout is not None
        if not host.stdout.readline():
            pytest.skip("no sandbox here")
        family = _descendants(host.pid)
        assert len(family) >= 2
        host.send_signal(number)
        host.wait(20)
    deadline = time.monotonic() + 5
    while (left := [pid for pid in family if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left


def test_a_zygote_outlives_the_thread_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent-death signal is per thread: a zygote that relied on it would be gone by its first run."""
    popen = subprocess.Popen

    def popen_in_a_short_thread(*args: Any, **options: Any) -> Any:
        started: list[Any] = []
        thread = threading.Thread(target=lambda: started.append(popen(*args, **options)))
        thread.start()
        thread.join()
        return started[0]

    monkeypatch.setattr(cage.subprocess, "Popen", popen_in_a_short_thread)

    async def work(sandbox: Sandbox) -> RunResult:
        await asyncio.sleep(0.2)
        return await sandbox.run("def run(q, t):\n    return t.llm(q)", "q", echo, QUICK)

    assert with_sandbox(work).end == Returned("q")
