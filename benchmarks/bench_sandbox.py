"""A warm sandboxed run (fork, lock, run, 8 callbacks, result) against `bwrap` + a fresh Python doing the same.

The two take turns in short blocks, so that a busy machine burdens both alike, with a rest between so that neither pays
for what the other leaves to the kernel to tear down. Within a block runs follow at once upon each other: a warm run's
fork, which happens while the run before it is served, is part of what is measured. As root and as an ordinary user.

    python benchmarks/bench_sandbox.py
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from reharness.solver.sandbox import Limits, Returned, Sandbox
from reharness.solver.sandbox.cage import bwrap_command, find_bwrap, find_interpreter

TURNS, WARM_RUNS, FRESH_RUNS = 15, 10, 4
REST_S = 0.05
CALLS = 8
ORDINARY_UID = 65534
HARNESS = f"def run(question, tools):\n    return '|'.join(tools.llm(question + str(i)) for i in range({CALLS}))\n"
# What a run costs without a zygote: the least program that does the same over standard input as its socket.
FRESH = """
import json, re, math, socket
channel = socket.socket(fileno=0).makefile("rw")
start = json.loads(channel.readline())
class Tools:
    def llm(self, prompt):
        channel.write(json.dumps({"call": "llm", "prompt": prompt}) + "\\n")
        channel.flush()
        return json.loads(channel.readline())["value"]
home = {}
exec(compile(start["source"], "harness.py", "exec"), home)
channel.write(json.dumps({"end": home["run"](start["question"], Tools())}) + "\\n")
channel.flush()
"""


def _fresh_run(command: list[str]) -> str:
    here, there = socket.socketpair()
    with here, there, here.makefile("rw") as channel:
        process = subprocess.Popen(command, stdin=there.fileno())
        there.close()
        print(json.dumps({"source": HARNESS, "question": "q"}), file=channel, flush=True)
        while "end" not in (message := json.loads(channel.readline())):
            print(json.dumps({"value": message["prompt"]}), file=channel, flush=True)
        process.wait()
    answer: str = message["end"]
    return answer


async def _measure() -> dict[str, Any]:
    bwrap, python = find_bwrap(), find_interpreter()
    if bwrap is None or python is None:
        return {"skipped": "bwrap or a Python that this user can read is not installed"}
    fresh = [*bwrap_command(bwrap, python), python.path, "-I", "-S", "-c", FRESH]

    async def echo(method: str, params: dict[str, Any]) -> str:
        text: str = params["messages"][0]["content"]
        return text

    expected = "|".join(f"q{i}" for i in range(CALLS))
    warm_s: list[float] = []
    fresh_s: list[float] = []
    sandbox = await Sandbox.start()
    try:
        for turn in range(TURNS + 1):
            if turn == 1:  # the first turn fills the machine's caches
                warm_s, fresh_s = [], []
            await asyncio.sleep(REST_S)
            for _ in range(WARM_RUNS):
                began = time.perf_counter()
                result = await sandbox.run(HARNESS, "q", echo, Limits())
                warm_s.append(time.perf_counter() - began)
                if result.end != Returned(expected):
                    raise RuntimeError(f"the warm run ended as {result.end}")
            await asyncio.sleep(REST_S)
            for _ in range(FRESH_RUNS):
                began = time.perf_counter()
                answer = _fresh_run(fresh)
                fresh_s.append(time.perf_counter() - began)
                if answer != expected:
                    raise RuntimeError(f"the fresh run answered {answer!r}")
    finally:
        await sandbox.aclose()
    warm, cold = statistics.median(warm_s) * 1e3, statistics.median(fresh_s) * 1e3
    figures = {"warm_ms": round(warm, 2), "bwrap_ms": round(cold, 2), "ratio": round(cold / warm, 1)}
    return figures | {"n": len(warm_s), "bwrap_n": len(fresh_s), "rung": sandbox.rung.number}


def _as_ordinary_user() -> dict[str, Any]:
    """The same in a subprocess under another uid, with a copy of the code and a Python that it can read."""
    python = find_interpreter()
    if python is None:
        return {"skipped": "no Python 3.11+ that an ordinary user can read"}
    import reharness.envs
    import reharness.solver

    with tempfile.TemporaryDirectory() as folder:
        for package in (reharness.envs, reharness.solver):
            room = Path(package.__path__[0])
            shutil.copytree(room, Path(folder, "reharness", room.name), ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(__file__, folder)
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o755)
        command = [python.path, str(Path(folder, Path(__file__).name)), "--json"]
        environment = {"PATH": os.environ["PATH"]}
        as_user: dict[str, Any] = {"user": ORDINARY_UID, "group": ORDINARY_UID, "extra_groups": []}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300, **as_user
        )
    if done.returncode:
        return {"skipped": f"it failed as uid {ORDINARY_UID}: {done.stderr.strip().splitlines()[-1:]}"}
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def sandbox_vs_bwrap() -> dict[str, Any]:
    """Medians in ms and their ratio, for root and for an ordinary user: {"root": {...}, "user": {...}}; whichever
    cannot be tried here is {"skipped": reason}."""
    here = asyncio.run(_measure())
    if os.getuid() != 0:
        return {"root": {"skipped": "not started as root"}, "user": here}
    return {"root": here, "user": _as_ordinary_user()}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measure()) if "--json" in sys.argv else sandbox_vs_bwrap()))
