"""One run from fork to verdict, in a given zygote."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from typing import Any

from reharness.solver.sandbox.cage import Exit, Zygote
from reharness.solver.sandbox.session import Session
from reharness.solver.sandbox.types import Handler, Limits, RunEnd, RunFailed, RunInfra, RunResult
from reharness.solver.sandbox.wire import METHODS

_HANGUP_GRACE_S = 1.0
_KILL_S = 30.0


async def run_in(
    zygote: Zygote, rung: int, start: dict[str, Any], handler: Handler, limits: Limits, methods: frozenset[str]
) -> RunResult:
    """Fork a child, serve it until it ends or must be ended, kill what is left of it, and say what happened.

    ``start`` holds ``kind`` ("harness" or "code"), ``file``, ``source``, ``question`` and what the kind needs beside.
    """
    try:
        job = zygote.take()
    except OSError as error:
        return RunResult(RunInfra("sandbox_error", f"no channel for the run: {error}"), 0.0, 0.0, rung)
    start = start | {
        "tools": [METHODS[name].spec(name) for name in sorted(methods)],
        "cpu_s": max(1, math.ceil(limits.cpu_s)),
        "memory_mb": limits.memory_mb,
    }
    session = Session(job.channel, handler, limits, methods)
    try:
        session.begin(start)
        zygote.replenish()
        end = await session.end
        if end is None:  # it hung up: its exit says why, and comes at once unless only the channel was closed
            await asyncio.wait([job.exited], timeout=_HANGUP_GRACE_S)
        ended_itself = job.exited.done()
        cpu_s = session.cpu_s()
        if asked := session.unanswered():
            zygote.kill(job)
            await asyncio.wait(asked, timeout=limits.wait_s)
    finally:
        zygote.kill(job)
        session.close()
    if end is None or cpu_s is None:
        guard = asyncio.get_running_loop().call_later(_KILL_S, zygote.give_up, "a child could not be killed")
        try:
            await asyncio.wait([job.exited])  # not `await job.exited`: were this run cancelled, so would be the future
        finally:
            guard.cancel()
        left = job.exited.result()
        cpu_s = left.cpu_s
        end = end or _verdict(left, session.ready, ended_itself, limits)
    return RunResult(end, cpu_s, session.wall_s, rung)


def _verdict(left: Exit, ready: bool, ended_itself: bool, limits: Limits) -> RunEnd:
    """Why a child hung up without an end."""
    if left.status is None:
        return RunInfra("sandbox_error", left.why)
    code = os.waitstatus_to_exitcode(left.status)
    if not ended_itself and code == -signal.SIGKILL:  # it lived on, and that was our own kill
        return RunFailed("protocol", "closed its channel without a result")
    if not ready:
        return RunInfra("sandbox_error", f"the child ended before it was locked in (status {code})")
    if code >= 0:
        return RunFailed("died", f"exited with status {code} without a result")
    name = signal.Signals(-code).name
    # The limit counts clock ticks, which may run ahead of the time that the kernel reports afterwards.
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and left.cpu_s > limits.cpu_s / 2):
        return RunFailed("timeout_cpu", f"used {left.cpu_s:.1f} s of CPU; the limit is {limits.cpu_s:g} s")
    if code == -signal.SIGSYS:
        return RunFailed("denied", "a system call that is never allowed")
    if code == -signal.SIGKILL:  # the cage lets no harness send signals
        return RunInfra("sandbox_error", "the child was killed from outside (is the machine out of memory?)")
    return RunFailed("died", f"killed by {name}")
