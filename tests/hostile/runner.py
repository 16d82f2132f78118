"""Lets a hostile program loose and judges what came of it. Also a script: `runner.py SECRET_FILE RUNG` runs a few on one
rung and prints the complaints as JSON, so that a test can do it as another user.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import reharness.solver.sandbox as sandbox_package
from reharness.solver.sandbox import Limits, Returned, RunFailed, Sandbox

PROGRAMS: list[Any] = runpy.run_path(str(Path(__file__).with_name("programs.py")))["PROGRAMS"]
FEW = {"host-file", "abstract-unix", "fork-bomb", "kill-parent", "segfault", "exec-shell", "rwx-mmap", "endless-loop"}
LIMITS = Limits(cpu_s=1, wall_s=8, memory_mb=256, output_bytes=1 << 20, calls=16)
SLEEPY = Limits(cpu_s=1, wall_s=0.5, memory_mb=256)
NORMAL = """
import json, math, threading
def run(question, tools):
    heard = []
    worker = threading.Thread(target=lambda: heard.append(tools.llm(question)))
    worker.start()
    worker.join()
    return json.dumps([heard, math.comb(5, 2)])
"""


async def echo(method: str, params: dict[str, Any]) -> Any:
    """A handler that answers with the last message."""
    return params["messages"][-1]["content"]


async def complaint(sandbox: Sandbox, program: Any, secret: Path) -> str | None:
    """What is wrong with how the program ended, with what it brought home, or with the normal run after it."""
    limits = SLEEPY if program.name == "sleep" else LIMITS
    end = (await sandbox.run(program.source, str(secret), echo, limits)).end
    kind = "returned" if isinstance(end, Returned) else end.kind
    if kind not in program.ends:
        return f"{program.name} ended as {end}, not {sorted(program.ends)}"
    said = end.answer if isinstance(end, Returned) else end.detail
    if secret.read_text() in said or (kind == "returned" and said.startswith("BROKE")):
        return f"{program.name} did its harm: {said[:200]}"
    if isinstance(end, RunFailed) and str(Path(sandbox_package.__file__).parent) in said:
        return f"{program.name} was told a path of the host: {said}"
    after = (await sandbox.run(NORMAL, "still there?", echo, Limits())).end
    if after != Returned('[["still there?"], 10]'):
        return f"after {program.name} a normal run ended as {after}"
    return None


async def few_on(rung: int, secret: Path) -> list[str]:
    """The complaints of a few programs on one rung."""
    sandbox = await Sandbox.start(rung=rung)
    try:
        found = [await complaint(sandbox, program, secret) for program in PROGRAMS if program.name in FEW]
    finally:
        await sandbox.aclose()
    return [text for text in found if text]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(few_on(int(sys.argv[2]), Path(sys.argv[1])))))
