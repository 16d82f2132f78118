"""The warm process inside the cage: locks itself in, then forks one child per run. Standard library only.

It is told nothing: limits, source and question go from the host to the child over the child's own channel. The child's
exit status and CPU time go back over the control socket, which the child does not hold.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from . import child, hardening  # noqa: TID251  in the cage this package is `cage`, not reharness

CHANNEL_FD = 3
THREAD_STACK = 2 << 20  # harnesses fan out over dozens of threads within their address-space limit

# What harnesses usually import. Everything else of the standard library is imported late, from disk; each module loaded
# here makes each fork dearer.
PRELOAD = """
ast bisect collections concurrent.futures.thread copy csv dataclasses datetime decimal enum fractions functools
heapq itertools json math operator random re statistics string textwrap threading time typing
"""
# Heavy libraries behind these, and no use for them in a cage.
NOT_MAPPED = ("_ssl", "_hashlib", "_sqlite3", "_curses", "_tkinter", "readline", "_dbm", "_gdbm", "_test", "nis")


def map_extensions(library: list[Path]) -> None:
    """Map the library's compiled modules. The filter forbids new executable mappings, so that a late `import` of one
    would fail; the loader finds these mapped already."""
    for directory in library:
        for path in directory.glob("*.so"):
            if not path.name.startswith(NOT_MAPPED):
                with contextlib.suppress(OSError):  # a library that it needs is not installed
                    ctypes.CDLL(str(path))


def main(control: socket.socket, config: dict[str, Any]) -> None:
    """Lock in, say hello (with a handle by which the host can end this process), serve until the host is gone."""
    host = config["host_pidfd"]
    library = hardening.library_dirs(sys.path)
    map_extensions(library)
    for name in PRELOAD.split():
        importlib.import_module(name)
    child.warm_up()
    devnull = os.open(os.devnull, os.O_RDWR)
    if config["unshare"]:
        hardening.enter_namespaces(map(str, library))
    hardening.drop_privileges()
    hardening.restrict_files(library)
    hardening.limit_for_all()
    threading.stack_size(THREAD_STACK)
    for fd in (1, 2):
        os.dup2(devnull, fd)
    gc.collect()
    gc.freeze()
    me = os.pidfd_open(os.getpid())
    socket.send_fds(control, [json.dumps({"hello": sys.version.split()[0]}).encode()], [me])
    os.close(me)
    _serve(control, host, devnull)


def _serve(control: socket.socket, host: int, devnull: int) -> None:
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    poll = select.poll()
    for fd in (control.fileno(), woken, host):
        poll.register(fd, select.POLLIN)
    running: dict[int, int] = {}  # pid -> run id
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if host in ready:
            break
        if woken in ready:
            os.read(woken, 4096)
            _reap(control, running)
        if control.fileno() in ready:
            data, fds, *_ = socket.recv_fds(control, 4096, 1)
            if not data:
                break
            order = json.loads(data)
            if "kill" in order:
                for pid in [pid for pid, run in running.items() if run == order["kill"]]:
                    _kill(pid)
            else:
                _fork(control, running, order["fork"], fds[0], devnull)
    for pid in running:
        _kill(pid)


def _report(control: socket.socket, run: int, status: int | None, cpu_s: float, why: str = "") -> None:
    control.send(json.dumps({"exit": run, "status": status, "cpu_s": cpu_s, "why": why}).encode())


def _kill(pid: int) -> None:
    """SIGKILL to a child and its group. It is not yet reaped, so its id cannot have passed to another process."""
    os.kill(pid, signal.SIGKILL)  # before it called setsid there is no group
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _reap(control: socket.socket, running: dict[int, int]) -> None:
    while running:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid in running:
            _report(control, running.pop(pid), status, usage.ru_utime + usage.ru_stime)


def _fork(control: socket.socket, running: dict[int, int], run: int, channel: int, devnull: int) -> None:
    zygote = os.getpid()
    try:
        pid = hardening.fork()
    except OSError as error:
        _report(control, run, None, 0.0, str(error.strerror))
        os.close(channel)
        return
    if pid:
        running[pid] = run
        os.close(channel)
        return
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(devnull, 0)
        os.dup2(channel, CHANNEL_FD)
        os.closerange(CHANNEL_FD + 1, 1 << 20)
        hardening.lock_child(zygote)
        os.write(CHANNEL_FD, b'{"ready": true}\n')
        child.serve(CHANNEL_FD)
    finally:
        os._exit(0)
