"""The sandbox as the rest of reharness sees it: many runs in flight over warm zygotes in the strongest cage here."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from reharness.solver.sandbox.cage import Zygote
from reharness.solver.sandbox.ladder import climb, start_zygote
from reharness.solver.sandbox.runs import run_in
from reharness.solver.sandbox.types import (
    Handler,
    Limits,
    PythonResult,
    Returned,
    RunFailed,
    Rung,
    RunInfra,
    RunResult,
    SandboxBroke,
)
from reharness.solver.sandbox.wire import METHODS


class _Slot:
    """A place for one zygote, which is started when first needed and again after it died."""

    def __init__(self, rung: Rung) -> None:
        self._rung = rung
        self._zygote: Zygote | None = None
        self._lock = asyncio.Lock()

    async def zygote(self) -> Zygote:
        async with self._lock:
            if self._zygote is None or not self._zygote.alive:
                await self._close()
                self._zygote = await start_zygote(self._rung.number)
            return self._zygote

    async def close(self) -> None:
        async with self._lock:
            await self._close()

    async def _close(self) -> None:
        if self._zygote is not None:
            await self._zygote.close()
            self._zygote = None


class Sandbox:
    """Runs harnesses, and code of `tools.python`, each in a fresh process behind the locks of one rung.

    The two kinds have zygotes of their own: code that a harness sends to `tools.python` is no child or sibling of it.
    An instance belongs to the event loop it was started in; start it with `await Sandbox.start()`.
    """

    def __init__(self, rung: Rung, workers: int) -> None:
        self.rung = rung
        self._slots = [_Slot(rung) for _ in range(workers)]
        self._turn = itertools.cycle(self._slots)
        self._python_slot = _Slot(rung)

    @classmethod
    async def start(cls, *, rung: int | None = None, workers: int = 1) -> Sandbox:
        """The strongest rung whose self-test passes here; with `rung`, that one or SandboxUnavailable.

        ``workers`` is the number of warm processes among which harness runs are dealt out.
        """
        if workers < 1:
            raise ValueError(f"a sandbox needs at least one worker, not {workers}")
        sandbox = cls(await climb(rung), workers)
        try:
            await asyncio.gather(*(slot.zygote() for slot in sandbox._slots))
        except BaseException:
            await sandbox.aclose()
            raise
        return sandbox

    async def run(
        self,
        source: str,
        question: str,
        handler: Handler,
        limits: Limits,
        methods: frozenset[str] = frozenset({"llm", "python", "note"}),
        seed: str = "",
    ) -> RunResult:
        """Run ``run(question, tools)`` of a harness source. Never raises for what the harness does: see RunResult.

        ``handler`` serves the tools named in ``methods``; ``seed`` seeds the harness's `random`.
        Raises ValueError for a method that there is none of.
        """
        if unknown := methods - METHODS.keys():
            raise ValueError(f"no tools are named {sorted(unknown)}; there are {sorted(METHODS)}")
        start = {"kind": "harness", "file": "harness.py", "source": source, "question": question}
        start["seed"] = seed or question
        return await self._run_on(next(self._turn), start, handler, limits, methods)

    async def python(self, code: str, limits: Limits) -> PythonResult:
        """Run a piece of code and return what it printed. Raises SandboxBroke (infra) if the sandbox failed it."""
        printed: list[str] = []

        async def keep(method: str, params: dict[str, Any]) -> None:
            printed.append(params["text"])

        start = {"kind": "code", "file": "code.py", "source": code, "question": "", "seed": "",
                 "stdout_chars": limits.answer_bytes}  # fmt: skip
        result = await self._run_on(self._python_slot, start, keep, limits, frozenset({"note"}))
        stdout = "".join(printed)[: limits.answer_bytes]
        match result.end:
            case Returned():
                return PythonResult(stdout, cpu_s=result.cpu_s)
            case RunFailed(kind, detail):
                return PythonResult(stdout, detail, kind, result.cpu_s)
            case RunInfra(_, detail):
                raise SandboxBroke(detail)

    async def _run_on(
        self, slot: _Slot, start: dict[str, Any], handler: Handler, limits: Limits, methods: frozenset[str]
    ) -> RunResult:
        try:
            zygote = await slot.zygote()
        except (SandboxBroke, OSError) as error:
            broke = RunInfra("sandbox_error", f"the sandbox did not start: {error}")
            return RunResult(broke, 0.0, 0.0, self.rung.number)
        return await run_in(zygote, self.rung.number, start, handler, limits, methods)

    async def aclose(self) -> None:
        """End every zygote and whatever runs in it; no process remains."""
        await asyncio.gather(*(slot.close() for slot in (*self._slots, self._python_slot)))
