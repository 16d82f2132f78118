"""A cage for code that a language model wrote: harnesses, and what they hand to `tools.python`."""

from reharness.solver.sandbox.host import Sandbox
from reharness.solver.sandbox.ladder import probe_rungs
from reharness.solver.sandbox.types import (
    BudgetExceeded,
    Handler,
    Limits,
    PythonResult,
    Returned,
    RunFailed,
    Rung,
    RungReport,
    RunInfra,
    RunResult,
    SandboxBroke,
    ToolError,
)

__all__ = [
    "BudgetExceeded",
    "Handler",
    "Limits",
    "PythonResult",
    "Returned",
    "RunFailed",
    "RunInfra",
    "RunResult",
    "Rung",
    "RungReport",
    "Sandbox",
    "SandboxBroke",
    "ToolError",
    "probe_rungs",
]
