"""The contract between the sandbox and the rest: limits in, a typed result out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from reharness.envs.errors import ReharnessError
from reharness.solver.outcomes import FailureKind, InfraKind


@dataclass(frozen=True)
class Limits:
    """Limits of one sandboxed run. Wall seconds count only while no host call is pending; CPU seconds are rounded up
    to whole ones, ``memory_mb`` bounds the address space (an idle Python takes some 60 MB of it)."""

    cpu_s: float = 10.0
    wall_s: float = 20.0
    memory_mb: int = 512
    output_bytes: int = 1 << 20
    """All bytes that the run may send to the host: requests, notes and the result."""
    answer_bytes: int = 64 << 10
    """Bytes of the answer as UTF-8, and characters of standard output that ``Sandbox.python`` keeps."""
    calls: int = 256
    """Host calls that wait for a reply; notes do not, they count as output."""
    wait_s: float = 600.0
    """The longest one host call may keep a run waiting; beyond it the run is infra (timeout_wait), not failed."""

    def __post_init__(self) -> None:
        for name in ("cpu_s", "wall_s", "output_bytes", "answer_bytes", "calls", "wait_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.memory_mb < 128:
            raise ValueError(f"memory_mb must be at least 128 (Python itself needs some), not {self.memory_mb}")


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

    kind: InfraKind
    detail: str


RunEnd = Returned | RunFailed | RunInfra


@dataclass(frozen=True)
class Rung:
    """How strong a cage is: 1 bwrap + Landlock + seccomp, 2 own namespaces + both, 3 both without namespaces."""

    number: int
    name: str
    why_not_higher: tuple[str, ...] = ()
    """One line for each stronger rung that did not pass its self-test here."""


@dataclass(frozen=True)
class RungReport:
    """What the self-test of one rung found on this machine: ``why`` it is not to be had, and the ``cure``."""

    number: int
    name: str
    ok: bool
    why: str | None = None
    cure: str | None = None


@dataclass(frozen=True)
class RunResult:
    """How one sandboxed run ended. ``cpu_s`` is the child's own; ``wall_s`` leaves out waiting on the host."""

    end: RunEnd
    cpu_s: float
    wall_s: float
    rung: int
    """The rung that held it."""


@dataclass(frozen=True)
class PythonResult:
    """What ``tools.python`` code printed (cut to ``answer_bytes`` characters), and how it failed, if it did."""

    stdout: str
    error: str | None = None
    kind: FailureKind | None = None
    cpu_s: float = field(default=0.0, compare=False)


class SandboxBroke(ReharnessError):
    """The sandbox itself failed under a run; nothing was learnt about the code in it."""

    infra_kind: InfraKind = "sandbox_error"


class BudgetExceeded(Exception):
    """A handler raises this when a run asks for more than its budget: the run is stopped as failed(budget)."""


Handler = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""``await handler(method, params) -> plain JSON``. The method was checked against the allow-list before. An exception
other than BudgetExceeded or ToolError is infra and stops the run."""


class ToolError(Exception):
    """A handler raises this for a bad call (wrong argument type, prompt too long): it is raised again inside the
    harness as a ValueError with this text, and the run goes on."""
