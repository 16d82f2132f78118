"""The contract between the sandbox and the rest: limits in, a typed result out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from reharness.solver.outcomes import FailureKind


@dataclass(frozen=True)
class Limits:
    """Limits of one sandboxed run. Wall seconds count only while no host call is pending."""

    cpu_s: float = 10.0
    wall_s: float = 20.0
    memory_mb: int = 512
    output_bytes: int = 1 << 20
    """All bytes that the run may send to the host: requests, notes and the result."""
    answer_bytes: int = 64 << 10
    calls: int = 256
    """Host calls of any kind."""
    wait_s: float = 600.0
    """The longest one host call may keep a run waiting; beyond it the run is infra (timeout_wait), not failed."""


@dataclass(frozen=True)
class Returned:
    """`run` returned a string."""

    answer: str


@dataclass(frozen=True)
class RunFailed:
    """The harness's own doing."""

    kind: FailureKind
    detail: str


@dataclass(frozen=True)
class RunInfra:
    """The sandbox broke, a host call raised, or a host call kept the run waiting beyond ``wait_s``."""

    kind: str
    detail: str


@dataclass(frozen=True)
class RunResult:
    """How one sandboxed run ended. ``cpu_s`` is the child's own; ``wall_s`` leaves out waiting on the host."""

    end: Returned | RunFailed | RunInfra
    cpu_s: float
    wall_s: float


class BudgetExceeded(Exception):
    """A handler raises this when a run asks for more than its budget: the run is stopped as failed(budget)."""


Handler = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""``await handler(method, params) -> plain JSON``. The method was checked against the allow-list before. An exception
other than BudgetExceeded or ToolError is infra and stops the run."""


class ToolError(Exception):
    """A handler raises this for a bad call (wrong argument type, prompt too long): it is raised again inside the
    harness as a ValueError with this text, and the run goes on."""
