"""A model in a process of its own, so that its threads starve neither the event loop nor the sandbox's callbacks.

The host sends requests as they come and the worker answers in any order: the backend decides how it batches them.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import itertools
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Protocol

from reharness.envs.errors import EngineError

MAX_DEATHS = 3
"""After so many deaths in a row, without one answer in between, a worker is not started again."""


class Backend(Protocol):
    """The model's side, built inside the worker from plain JSON options."""

    info: dict[str, Any]
    """Sent to the host once the model is loaded."""

    def submit(self, request: int, payload: dict[str, Any]) -> None: ...

    def cancel(self, request: int) -> None: ...

    def busy(self) -> bool:
        """Whether ``step`` has work."""
        ...

    def step(self) -> Iterable[tuple[int, dict[str, Any]]]:
        """Works for a moment, then returns the requests that are finished; ``{"error": text}`` fails one request."""
        ...


class Worker:
    """The host's side: starts the worker at the first call, again at the next call after it died.

    ``backend`` is ``"module:Class"``. ``threads`` caps the threads of every maths library in the worker. ``call_s``
    bounds the wait for a sign of life, the start of the worker included.
    """

    def __init__(self, backend: str, options: dict[str, Any], *, threads: int, call_s: float = 900.0) -> None:
        self.backend, self.options, self.threads, self.call_s = backend, options, threads, call_s
        self.name = f"{backend.partition(':')[0].rpartition('.')[2]} engine"
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._deaths = 0
        self._closed = False

    async def info(self) -> dict[str, Any]:
        """What the backend says of itself once it is loaded. Raises ``EngineError`` when it cannot be."""
        return await self.call(None)

    async def call(self, payload: dict[str, Any] | None) -> dict[str, Any]:
        """The backend's answer. Raises ``EngineError`` when the request fails, the worker dies or answers nobody for
        ``call_s`` (a request may well queue for longer); a caller that is cancelled cancels the request."""
        process = self._running()
        request, future = process.ask(payload)
        asked = time.monotonic()
        try:
            while not future.done():
                if (left := max(asked, process.heard) + self.call_s - time.monotonic()) <= 0:
                    process.send({"cancel": request})
                    raise EngineError(f"{self.name}: no answer to anybody within {self.call_s:g} s")
                await asyncio.wait([future], timeout=left)
            answer = future.result()
        except asyncio.CancelledError:
            process.send({"cancel": request})
            raise
        if "error" in answer:
            raise EngineError(f"{self.name}: {answer['error']}")
        self._deaths = 0
        return answer

    async def aclose(self) -> None:
        """Ends the worker; safe to call twice."""
        with self._lock:
            self._closed, process = True, self._process
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.owner.join, 10)

    def _running(self) -> _Process:
        with self._lock:
            if self._closed:
                raise EngineError(f"{self.name}: is closed")
            if self._process is not None and self._process.ended:
                self._deaths += 1
                if self._deaths >= MAX_DEATHS:
                    raise EngineError(f"{self.name}: died {self._deaths} times in a row; {self._process.end}")
                self._process = None
            if self._process is None:
                self._process = _Process(self.backend, self.options, self.threads)
            return self._process


class _Process:
    """One life of a worker. One thread starts it and reads its answers until it ends: the kernel kills the child when
    the thread that started it ends (PR_SET_PDEATHSIG), so starter and reader must be one, and outlive it."""

    def __init__(self, backend: str, options: dict[str, Any], threads: int) -> None:
        self.ended, self.end, self.heard = False, "", 0.0
        self._lock = threading.Lock()
        self._pending: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[dict[str, Any]]]] = {}
        self._ids = itertools.count()
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._popen: subprocess.Popen[bytes] | None = None
        self._killed = False
        self.owner = threading.Thread(target=self._own, args=(threads,), name="reharness-worker", daemon=True)
        self.owner.start()
        self.send({"backend": backend, "options": options})

    def ask(self, payload: dict[str, Any] | None) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[dict[str, Any]] = loop.create_future()
        with self._lock:
            request = next(self._ids)
            if self.ended:
                future.set_result({"error": self.end})
            else:
                self._pending[request] = (loop, future)
        self.send({"request": request, "payload": payload})
        return request, future

    def send(self, message: dict[str, Any]) -> None:
        self._outbox.put(json.dumps(message).encode())

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            if self._popen is not None:
                self._popen.kill()

    def _own(self, threads: int) -> None:
        here, there = Pipe()
        with tempfile.TemporaryFile() as log, here, there:
            try:
                self._start(there, threads, log)
                there.close()  # or the end of the worker would not be the end of the stream
                threading.Thread(target=self._write, args=(here,), daemon=True).start()
                while True:
                    message = json.loads(here.recv_bytes())
                    self.heard = time.monotonic()
                    self._resolve(message.pop("request"), message)
            except (EOFError, OSError) as error:
                cause = str(error)
            finally:
                self._outbox.put(None)
                code = _end_of(self._popen) if self._popen else None
                log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
                # Of a traceback only the error itself; of anything else its end.
                tail = re.split(r"\n(?=[\w.]+(?:Error|Exception)\b)", log.read().decode(errors="replace"))[-1]
                tail = tail.strip()[-500:]
        end = f"the worker ended with code {code}" + (f": {tail}" if tail else f" ({cause})" if cause else "")
        with self._lock:
            self.ended, self.end = True, "the worker was closed" if self._killed else end
        for request in list(self._pending):
            self._resolve(request, {"error": self.end})

    def _start(self, there: Connection, threads: int, log: Any) -> None:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        env = {**os.environ, **dict.fromkeys(names, str(threads)), "TOKENIZERS_PARALLELISM": "false"}
        code = "from reharness.solver.models.worker import main; main()"
        with self._lock:
            if self._killed:
                raise OSError("closed before it started")
            self._popen = subprocess.Popen(
                [sys.executable, "-c", code, str(there.fileno()), str(os.getpid())],
                pass_fds=[there.fileno()], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def _write(self, here: Connection) -> None:
        with suppress(OSError):  # the reader sees the same end, and reports it
            while (message := self._outbox.get()) is not None:
                here.send_bytes(message)

    def _resolve(self, request: int, answer: dict[str, Any]) -> None:
        with self._lock:
            loop, future = self._pending.pop(request, (None, None))
        if loop is None or future is None:
            return

        def settle() -> None:
            if not future.done():
                future.set_result(answer)

        with suppress(RuntimeError):  # the caller's loop is closed: nobody waits
            loop.call_soon_threadsafe(settle)


def _end_of(process: subprocess.Popen[bytes]) -> int:
    """The exit code; a worker that closed its stream has a moment to print why, then it is killed."""
    try:
        return process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def main() -> None:
    """The worker: loads the backend, then serves it until the host goes away."""
    _die_with(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to handle
    with Connection(int(sys.argv[1])) as host, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        spec = json.loads(host.recv_bytes())
        module, _, name = spec["backend"].partition(":")
        backend: Backend = getattr(importlib.import_module(module), name)(**spec["options"])

        def answer(request: int, result: dict[str, Any]) -> None:
            host.send_bytes(json.dumps({"request": request, **result}).encode())

        while True:
            while host.poll(0 if backend.busy() else None):
                message = json.loads(host.recv_bytes())
                if "cancel" in message:
                    backend.cancel(message["cancel"])
                elif message["payload"] is None:
                    answer(message["request"], backend.info)
                else:
                    backend.submit(message["request"], message["payload"])
            for request, result in backend.step():
                answer(request, result)


def _die_with(parent: int) -> None:
    """No orphan, whatever ends the host. Elsewhere than on Linux the end of the stream has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)
