"""Shared by tests: a solver with the real sandbox around any engine, closed afterwards."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from reharness.envs.errors import SandboxUnavailable
from reharness.solver.evaluate import Solver
from reharness.solver.ledger import Ledger
from reharness.solver.models.base import Engine
from reharness.solver.sandbox import Sandbox


def with_solver(engine: Engine, body: Callable[[Solver], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    """``await body(solver)`` in a loop of its own."""

    async def go() -> Any:
        sandbox = await Sandbox.start()
        solver = Solver(engine, sandbox, **{"ledger": Ledger(), **options})
        try:
            return await body(solver)
        finally:
            await solver.stop()
            await sandbox.aclose()

    return asyncio.run(go())


def with_sandbox(work: Callable[[Sandbox], Awaitable[Any]], **options: Any) -> Any:
    """``await work(sandbox)`` in a loop of its own; skips the test, with the reason, where no rung is to be had."""

    async def main() -> Any:
        try:
            sandbox = await Sandbox.start(**options)
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        try:
            return await work(sandbox)
        finally:
            await sandbox.aclose()

    return asyncio.run(main())


def hear_ctrl_c() -> None:
    """For ``preexec_fn``: a child hears SIGINT even where these tests were started with it ignored (in the background
    of a shell, say)."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def edit(search: str, replace: str, description: str = "A change.") -> str:
    """A completion with one SEARCH/REPLACE block."""
    return f"{description}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"
