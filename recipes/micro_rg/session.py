"""What every step of the experiment runs in: one solver, one ledger, closed in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from reharness.solver.evaluate import Solver
from reharness.solver.ledger import Ledger
from reharness.solver.models.factory import EmbeddedConfig, make_engine
from reharness.solver.sandbox import Sandbox


@asynccontextmanager
async def session(out: Path, concurrency: int = 32) -> AsyncIterator[Solver]:
    """The embedded solver with the ledger of the folder ``out``; what was paid for there is not paid for again."""
    ledger = Ledger(out / "ledger.sqlite")
    try:
        engine = make_engine(EmbeddedConfig())
        sandbox = await Sandbox.start()
        solver = Solver(engine, sandbox, ledger, concurrency=concurrency)
        try:
            yield solver
        finally:
            await solver.stop()
            await sandbox.aclose()
            await engine.aclose()
    finally:
        ledger.close()
