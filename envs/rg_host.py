"""The host's side of the Reasoning Gym worker: start it, talk to it, kill it when it stalls, leave none behind."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any

from reharness.envs.errors import TaskError

START_S = 180.0
"""Longest wait for a starting worker (it imports SymPy and NumPy)."""
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""Environment that the worker gets: no key of the host is in the process that reads hostile answers."""


class WorkerDied(TaskError):
    """The worker stalled and was killed, or ended by itself, while it worked on an item."""


class Worker:
    """One child process, started at the first request and again after it died. Safe to use from several threads.

    ``scoring`` locks evaluation in the child (see `rg_guard`); ``hash_seed`` is its PYTHONHASHSEED.
    """

    def __init__(self, *, scoring: bool, hash_seed: int = 0) -> None:
        self._scoring, self._hash_seed = scoring, hash_seed
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._unread = b""
        self._stderr: IO[bytes] | None = None

    def ask(self, request: dict[str, Any], wall_s: float) -> list[Any]:
        """The items that the worker gives for ``request``, in order; a failed item is a TaskError in its place.

        ``wall_s`` is the longest wait for one item. A stall or the worker's end leaves a WorkerDied as the last item;
        a request that failed as a whole leaves a TaskError as the last one. Neither is raised.
        """
        items: list[Any] = []
        with self._lock:
            try:
                self._ready()
                self._send(json.dumps(request).encode() + b"\n", wall_s)
                while True:
                    reply = json.loads(self._line(wall_s))
                    if "end" in reply:
                        if reply["end"] is not None:
                            items.append(TaskError(reply["end"]))
                        return items
                    items.append(reply["v"] if "v" in reply else TaskError(reply["e"]))
            except WorkerDied as e:
                self._kill()
                items.append(e)
                return items
            except BaseException:  # Ctrl-C between two lines: what is still unread must not answer the next request
                self._kill()
                raise

    def close(self) -> None:
        """End the worker; a later request starts another."""
        with self._lock:
            self._kill()

    def _ready(self) -> None:
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return
        self._kill()
        env = {k: os.environ[k] for k in _KEPT if k in os.environ}
        env |= {"PYTHONHASHSEED": str(self._hash_seed), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-W", "ignore", "-m", "reharness.envs.rg_worker"]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (closed in _kill)
        self._process = subprocess.Popen(
            command + ["--score"] * self._scoring,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=env,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is the host's to handle
        )
        self._owner, self._unread = os.getpid(), b""
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        _workers.add(self)
        self._line(START_S)  # the worker says that it is ready

    def _send(self, data: bytes, wall_s: float) -> None:
        assert self._process is not None and self._process.stdin is not None
        fd, view = self._process.stdin.fileno(), memoryview(data)
        while view:
            if not select.select([], [fd], [], wall_s)[1]:
                raise WorkerDied(f"the Reasoning Gym worker took no request for {wall_s:g} s and was killed")
            try:
                view = view[os.write(fd, view) :]
            except BrokenPipeError:
                raise WorkerDied(self._obituary()) from None

    def _line(self, wall_s: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        fd, parts, deadline = self._process.stdout.fileno(), [self._unread], time.monotonic() + wall_s
        while b"\n" not in parts[-1]:
            ready = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                raise WorkerDied(f"the Reasoning Gym worker gave no answer for {wall_s:g} s and was killed")
            data = os.read(fd, 1 << 16)
            if not data:
                raise WorkerDied(self._obituary())
            parts.append(data)
        line, _, rest = b"".join(parts).partition(b"\n")
        self._unread = rest
        return line

    def _obituary(self) -> str:
        assert self._process is not None and self._stderr is not None
        code = self._process.wait(timeout=10)
        self._stderr.seek(0)
        tail = self._stderr.read()[-1500:].decode(errors="replace").strip()
        return f"the Reasoning Gym worker ended (exit code {code}){': ' + tail if tail else ''}"

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._owner == os.getpid():
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout, self._stderr):
            if stream is not None:
                stream.close()
        _workers.discard(self)


_workers: set[Worker] = set()


@atexit.register
def _end_all() -> None:
    for worker in list(_workers):
        worker._kill()


GENERATOR = Worker(scoring=False)
"""Describes families, checks parameters, makes items. Apart from the scorer: what an answer does there cannot
reach the questions."""
SCORER = Worker(scoring=True)
