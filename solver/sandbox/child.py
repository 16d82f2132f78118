"""One run, inside the cage: load the source, call `run(question, tools)`, send the end. Standard library only.

The channel is one stream socket. Down come one start line and the replies, up go requests, notes and one end, each a
JSON line. Nothing here is trusted by the host: a harness can reach every object in this process.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import random
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any

from . import hardening  # noqa: TID251  in the cage this package is `cage`, not reharness

FRAMES_SHOWN, LINE_SHOWN, TEXT_SHOWN = 5, 160, 800
RESERVE_BYTES = 4 << 20
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class Channel:
    """Requests and replies over one descriptor; threads may call at once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""
        self._send_lock = threading.Lock()
        self._arrived = threading.Condition()
        self._replies: dict[int, dict[str, Any]] = {}
        self._reading = False
        self._next_id = 0

    def send(self, message: dict[str, Any]) -> None:
        data = memoryview(_encode(message).encode() + b"\n")
        with self._send_lock:
            while data:
                data = data[os.write(self._fd, data) :]

    def read_line(self) -> dict[str, Any]:
        chunks = [self._buffer]
        while b"\n" not in chunks[-1]:
            chunks.append(os.read(self._fd, 1 << 16))
            if not chunks[-1]:
                os._exit(1)  # the host hung up
        line, _, self._buffer = b"".join(chunks).partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and wait for its reply. Whoever waits without a reader becomes the reader for all."""
        with self._arrived:
            self._next_id += 1
            mine = self._next_id
        self.send({"id": mine, "call": method, "params": params})
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: mine in self._replies or not self._reading)
                if mine in self._replies:
                    reply = self._replies.pop(mine)
                    break
                self._reading = True
            line = self.read_line()
            with self._arrived:
                self._replies[line["id"]] = line
                self._reading = False
                self._arrived.notify_all()
        if "error" in reply:
            raise ValueError(reply["error"])
        value = reply["value"]
        return types.SimpleNamespace(**value) if isinstance(value, dict) else value


class Tools:
    """What a harness gets as `tools`: one method for each tool that the host offers."""

    def __init__(self, channel: Channel, specs: list[dict[str, Any]]) -> None:
        for spec in specs:
            setattr(self, spec["name"], _stub(channel, spec))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no tool {name!r} here; the tools are {', '.join(sorted(vars(self)))}")


def _stub(channel: Channel, spec: dict[str, Any]) -> Callable[..., Any]:
    name: str = spec["name"]
    names = [p["name"] for p in spec["params"]]
    defaults = {p["name"]: p["default"] for p in spec["params"] if "default" in p}

    def tool(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False))
        if len(args) > len(names) or given.keys() & kwargs.keys() or not kwargs.keys() <= set(names):
            raise TypeError(f"{name} takes {', '.join(names)}, each once")
        params = defaults | given | kwargs
        if missing := set(names) - params.keys():
            raise TypeError(f"{name} needs {', '.join(sorted(missing))}")
        if spec["waits"]:
            return channel.call(name, params)
        return channel.send({"call": name, "params": params})

    tool.__name__ = tool.__qualname__ = name
    return tool


class _Stdout(io.TextIOBase):
    """Standard output of `tools.python` code, sent line by line so that what was printed before a time-out is kept."""

    def __init__(self, channel: Channel, limit: int) -> None:
        self._channel, self._left, self._line = channel, limit, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._line += text[: self._left]
        if "\n" in text or len(self._line) > 4096:
            self.flush()
        return len(text)

    def flush(self) -> None:
        line, self._line = self._line[: self._left], ""
        self._left -= len(line)
        if line:
            text = line.encode("utf-8", "replace").decode()
            self._channel.send({"call": "note", "params": {"text": text}})


def _load(source: str, file: str, module: str) -> dict[str, Any]:
    home = sys.modules[module] = types.ModuleType(module)  # dataclasses and pickle look their module up
    exec(compile(source, file, "exec", dont_inherit=True), home.__dict__)
    return home.__dict__


def _run_harness(start: dict[str, Any], channel: Channel) -> tuple[str, str]:
    run = _load(start["source"], start["file"], "harness").get("run")
    if not callable(run):
        return "harness_error", "the harness defines no function `run`"
    answer = run(start["question"], Tools(channel, start["tools"]))
    if type(answer) is not str:
        return "protocol", f"`run` returned {type(answer).__name__}, not str"
    try:
        answer.encode()
    except UnicodeEncodeError:
        return "protocol", "`run` returned text with a lone surrogate"
    return "returned", answer


def _run_code(start: dict[str, Any], channel: Channel) -> tuple[str, str]:
    sys.stdout = _Stdout(channel, start["stdout_chars"])
    try:
        _load(start["source"], start["file"], "__main__")
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise
    finally:
        sys.stdout.flush()
    return "returned", ""


def _describe(error: BaseException, file: str, source: str) -> str:
    """The last frames in the harness and the message; never a path or frame of the cage."""
    places = [
        (number, frame.f_code.co_name)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == file
    ]
    message = str(error)
    if isinstance(error, SyntaxError) and error.filename == file:
        places, message = [(error.lineno or 1, "the source")], str(error.msg)
    text = source.splitlines()
    lines = [
        f"{file}:{number} in {where}: {''.join(text[number - 1 : number]).strip()[:LINE_SHOWN]}"
        for number, where in places[-FRAMES_SHOWN:]
    ]
    return "\n".join([*lines, f"{type(error).__name__}: {message[:TEXT_SHOWN]}"])


def warm_up() -> None:
    """One small run against a ready-made reply, while nobody waits: a forked process copies each page that it writes
    to when it first does, which would otherwise fall into the run."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'{"id": 1, "value": "text"}\n')
        spec = {"name": "tool", "params": [{"name": "text"}, {"name": "number", "default": 0.5}], "waits": True}
        source = "def run(question, tools):\n    return tools.tool(question)\n"
        start = {"source": source, "file": "warm-up.py", "question": "", "tools": [spec]}
        random.seed("")
        _run_harness(start, Channel(ours.fileno()))


def serve(fd: int) -> None:
    """Wait for the start line, run what it says, send the end. The caller ends the process."""
    channel = Channel(fd)
    warm_up()
    start = channel.read_line()
    hardening.limit_run(start["cpu_s"], start["memory_mb"])
    random.seed(start["seed"])  # else every run of one zygote would draw alike, and every zygote differently
    reserve = mmap.mmap(-1, RESERVE_BYTES)  # address space to speak with once the limit is reached
    short_of_memory = False
    try:
        kind, text = (_run_harness if start["kind"] == "harness" else _run_code)(start, channel)
    except MemoryError:
        short_of_memory = True
    except BaseException as error:  # noqa: BLE001  whatever the harness raised becomes its typed end
        try:
            kind = "denied" if isinstance(error, PermissionError) else "harness_error"
            text = _describe(error, start["file"], start["source"])
        except BaseException:  # noqa: BLE001  a hostile __str__
            kind, text = "harness_error", "an exception that cannot be printed"
    reserve.close()
    if short_of_memory:
        kind, text = "memory", "the harness ran out of memory"
    text = text if kind == "returned" else text.encode("utf-8", "replace").decode()
    try:
        channel.send({"end": kind, "text": text})
    except MemoryError:
        channel.send({"end": "memory", "text": "no memory left to send the result"})
