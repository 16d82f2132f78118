"""One run seen from the host: its channel, its clock, its budgets, its end. The first end counts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
from pathlib import Path
from typing import Any

from reharness.solver.sandbox.types import (
    BudgetExceeded,
    Handler,
    Limits,
    Returned,
    RunEnd,
    RunFailed,
    RunInfra,
    ToolError,
)
from reharness.solver.sandbox.wire import ProtocolError, Request, parse_line, parse_request

BOOT_S = 120.0
"""How long a child may take to report that its locks are shut (hundreds may be queued before it)."""
DETAIL_CHARS = 2000
_READ_BYTES = 1 << 16  # more would be mapped and unmapped at every read
_UCRED = struct.Struct("iII")
_encode = json.JSONEncoder(allow_nan=False).encode
_ENDS = {"harness_error", "memory", "denied", "protocol"}


class Session:
    """Talks to one child. ``end`` resolves once, to how the run ended, or to None if the child hung up without a word
    (its exit status then says why). ``ready`` tells whether the child reported that its locks were shut."""

    def __init__(self, channel: socket.socket, handler: Handler, limits: Limits, methods: frozenset[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self.end: asyncio.Future[RunEnd | None] = self._loop.create_future()
        self.ready = self._over = False
        self.wall_s = 0.0
        self._channel, self._handler, self._limits, self._methods = channel, handler, limits, methods
        self._buffer, self._unsent = bytearray(), bytearray()
        self._received = self._calls = 0
        self._pending: dict[int, asyncio.Task[None]] = {}
        self._notes: set[asyncio.Task[Any]] = set()
        self._running_since: float | None = None
        self._pid: int | None = None
        self._timer = self._loop.call_later(BOOT_S, self._finish, RunInfra("sandbox_error", "the child did not start"))

    def begin(self, start: dict[str, Any]) -> None:
        """Send the start line and listen."""
        self._loop.add_reader(self._channel.fileno(), self._read)
        self._send(start)

    # --- the channel ---

    def _read(self) -> None:
        try:
            if self._pid is None:  # the first to speak is the child's own code, before any harness
                data, notes, *_ = self._channel.recvmsg(_READ_BYTES, socket.CMSG_SPACE(_UCRED.size))
                self._pid = _UCRED.unpack(notes[0][2])[0] if notes else 0
            else:
                data = self._channel.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._channel.fileno())
            self._finish(None)
            return
        self._received += len(data)
        if self._received > self._limits.output_bytes:
            self._fail("output_limit", f"sent more than {self._limits.output_bytes} bytes to the host")
        self._buffer += data
        if b"\n" not in data:
            return
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            if self.end.done() or self._over:
                return
            try:
                self._take(parse_line(line))
            except ProtocolError as error:
                self._fail("protocol", str(error))

    def _send(self, message: dict[str, Any]) -> None:
        try:
            line = _encode(message).encode() + b"\n"
        except (TypeError, ValueError) as error:
            self._finish(RunInfra("engine_error", f"a reply that is not plain JSON: {error}"))
            return
        self._unsent += line
        if len(self._unsent) == len(line):
            self._flush()

    def _flush(self) -> None:
        """Send what the socket takes; a child that does not read keeps the rest waiting, never the event loop."""
        self._loop.remove_writer(self._channel.fileno())
        try:
            del self._unsent[: self._channel.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            return  # it has hung up, which the reader finds too
        if self._unsent:
            self._loop.add_writer(self._channel.fileno(), self._flush)

    # --- what the child says ---

    def _take(self, message: dict[str, Any]) -> None:
        if not self.ready:
            if message != {"ready": True}:
                raise ProtocolError("spoke before it was locked in")
            self.ready = True
            self._resume_clock()
        elif "end" in message:
            self._take_end(message)
        else:
            self._take_request(parse_request(message, self._methods))

    def _take_end(self, message: dict[str, Any]) -> None:
        kind, text = message["end"], message.get("text")
        if set(message) != {"end", "text"} or not isinstance(text, str):
            raise ProtocolError("a malformed end")
        if kind in _ENDS:
            self._fail(kind, text)
        elif kind != "returned":
            raise ProtocolError("an unknown end")
        elif len(text.encode()) > self._limits.answer_bytes:
            self._fail("output_limit", f"the answer is longer than {self._limits.answer_bytes} bytes")
        else:
            # The calls that came before it start first, and so are counted: a run over its budget did not complete.
            self._over = True
            self._loop.call_soon(self._finish, Returned(text))

    def _take_request(self, request: Request) -> None:
        if request.id is None:
            note = self._loop.create_task(self._call(request))
            self._notes.add(note)
            note.add_done_callback(self._notes.discard)
            return
        if request.id in self._pending:
            raise ProtocolError("a request id used twice at once")
        self._calls += 1
        if self._calls > self._limits.calls:
            self._fail("budget", f"made more than {self._limits.calls} calls")
        else:
            self._pause_clock()
            self._pending[request.id] = self._loop.create_task(self._serve(request.id, request))

    async def _serve(self, request_id: int, request: Request) -> None:
        late = RunInfra("timeout_wait", f"{request.method} kept the run waiting over {self._limits.wait_s:g} s")
        timer = self._loop.call_later(self._limits.wait_s, self._finish, late)
        try:
            reply = await self._call(request)
        finally:
            timer.cancel()
        del self._pending[request_id]
        if reply is not None and not self.end.done():
            self._send({"id": request_id} | reply)
            if not self._pending:
                self._resume_clock()

    async def _call(self, request: Request) -> dict[str, Any] | None:
        """The reply to send, or None if the run is over."""
        if request.refusal is not None:
            return {"error": request.refusal}
        try:
            return {"value": await self._handler(request.method, request.params)}
        except ToolError as error:
            return {"error": str(error)}
        except BudgetExceeded as error:
            self._fail("budget", str(error))
        except Exception as error:  # noqa: BLE001  recorded as infra: the run is not a measurement
            kind: Any = getattr(error, "infra_kind", "engine_error")
            self._finish(RunInfra(kind, f"{type(error).__name__}: {error}"[:DETAIL_CHARS]))
        return None

    # --- clock and end ---

    def _resume_clock(self) -> None:
        self._timer.cancel()
        self._running_since = self._loop.time()
        left = self._limits.wall_s - self.wall_s
        self._timer = self._loop.call_later(max(left, 0.0), self._late)

    def _late(self) -> None:
        """Past the wall limit a run may go on only for the time that it worked or waited for a processor: the limit is
        for runs that sleep, and how crowded the machine is must not decide what a harness scores."""
        ran = self.wall_s + self._loop.time() - (self._running_since or self._loop.time())
        cpu_s, queued_s, runnable = self.cpu_s() or 0.0, *self._queued()
        left = self._limits.wall_s - (ran - cpu_s - queued_s)
        if cpu_s > self._limits.cpu_s + 1:  # the kernel counts ticks, between which a run can nap
            self._fail("timeout_cpu", f"used {cpu_s:.1f} s of CPU; the limit is {self._limits.cpu_s:g} s")
        elif left <= 0 and not runnable:
            self._fail("timeout_wall", f"ran longer than {self._limits.wall_s:g} s beside its calls")
        else:
            self._timer = self._loop.call_later(max(left, 0.05), self._late)

    def _queued(self) -> tuple[float, bool]:
        """Seconds that the run's living threads waited for a processor, and whether one waits (or runs) now; nothing
        where the kernel does not tell."""
        queued_ns, runnable = 0, False
        with contextlib.suppress(OSError, ValueError, IndexError):
            for thread in Path(f"/proc/{self._pid}/task").iterdir() if self._pid else ():
                queued_ns += int((thread / "schedstat").read_text().split()[1])
                runnable |= (thread / "stat").read_text().rpartition(") ")[2].startswith("R")
        return queued_ns / 1e9, runnable

    def _pause_clock(self) -> None:
        self._timer.cancel()
        if self._running_since is not None:
            self.wall_s += self._loop.time() - self._running_since
            self._running_since = None

    def _fail(self, kind: Any, detail: str) -> None:
        self._finish(RunFailed(kind, detail[:DETAIL_CHARS]))

    def _finish(self, end: RunEnd | None) -> None:
        if not self.end.done():
            self._pause_clock()
            self.end.set_result(end)

    def cpu_s(self) -> float | None:
        """CPU seconds of the child so far by the kernel's count, or None once it is reaped (then its zygote knows)."""
        cpu_clock = (~(self._pid or 0) << 3) | 2  # of another process: see clock_getcpuclockid(3)
        try:
            return time.clock_gettime(cpu_clock) if self._pid else None
        except OSError:
            return None

    def unanswered(self) -> set[asyncio.Task[Any]]:
        """What was asked for before the end and is still to be answered: it is paid for, and belongs to this run's
        account. Nothing when the end was a fault of ours: the answers may never come."""
        return set() if isinstance(self.end.result(), RunInfra) else {*self._notes, *self._pending.values()}

    def close(self) -> None:
        """Stop serving and hang up; calls in flight are cancelled."""
        self._finish(None)
        for task in (*self._pending.values(), *self._notes):
            task.cancel()
        self._loop.remove_reader(self._channel.fileno())
        self._loop.remove_writer(self._channel.fileno())
        self._channel.close()
