"""`reharness doctor`: what works on this machine, what does not, and the cure of each."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from reharness.envs.errors import ReharnessError


@dataclass(frozen=True)
class Check:
    """One finding: ``ok`` is None where it is neither good nor bad (an optional part that is not there)."""

    ok: bool | None
    what: str
    found: str
    cure: str = ""


def diagnose(endpoint: str = "", model: str = "") -> list[Check]:
    """Every check in turn; a check that breaks is itself a finding."""
    checks = [_python(), _torch(), *_packages(), *_sandbox(), _disk()]
    checks.append(_engine("embedded solver (openvino-genai)", {"kind": "embedded"}))
    if endpoint:
        spec = {"kind": "endpoint", "url": endpoint, **({"model": model} if model else {})}
        checks.append(_engine(f"endpoint {endpoint}", spec))
    else:
        checks.append(Check(None, "endpoint", "none asked for", "give --endpoint URL --model NAME to probe one"))
    return checks


def _python() -> Check:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    good = (3, 11) <= sys.version_info[:2] < (3, 13)
    cure = "" if good else "use Python 3.11 or 3.12: make clean; make setup PYTHON=python3.11"
    return Check(good, "Python", found, cure)


def _torch() -> Check:
    try:
        import torch
    except ImportError as error:
        return Check(False, "torch", str(error), "make setup")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    found = f"{torch.__version__}, {', '.join(gpus) or 'no GPU'}, {torch.get_num_threads()} threads"
    return Check(True, "torch", found)


_CORE = ("transformers", "trl", "peft", "accelerate", "datasets", "reasoning-gym", "faiss-cpu", "openvino-genai")


def _packages() -> list[Check]:
    checks = []
    for name in _CORE:
        try:
            checks.append(Check(True, name, version(name)))
        except PackageNotFoundError:
            checks.append(Check(False, name, "not installed", "make setup"))
    there = importlib.util.find_spec("vllm") is not None
    checks.append(Check(True if there else None, "vllm", version("vllm") if there else "not installed",
                        "" if there else "only for GPU machines: pip install 'reharness[gpu]'"))  # fmt: skip
    return checks


def _sandbox() -> list[Check]:
    from reharness.solver.sandbox import probe_rungs

    rungs = probe_rungs()
    usable = any(r.ok for r in rungs)
    checks = []
    for r in rungs:
        ok = True if r.ok else (None if usable else False)
        found, cure = ("proven by self-test", "") if r.ok else (r.why or "", r.cure or "")
        checks.append(Check(ok, f"sandbox rung {r.number} ({r.name})", found, cure))
    if not usable:
        checks.append(Check(False, "sandbox", "no rung proves itself: nothing will be run", "mend one of the above"))
    return checks


def _disk() -> Check:
    from reharness.envs.cache import cache_dir

    folder = Path(cache_dir())
    probe = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(probe).free
    good = free > 2 << 30 and os.access(probe, os.W_OK)
    cure = "" if good else "free at least 2 GiB, or set REHARNESS_CACHE to a folder you can write to"
    return Check(good, "disk (cache folder)", f"{folder}: {free >> 30} GiB free", cure)


def _engine(what: str, spec: dict[str, str]) -> Check:
    from reharness.solver.models.factory import make_engine

    async def probe() -> str:
        engine = make_engine(spec)
        try:
            await engine.probe()
            return f"answers; weights {engine.identity.weights[:20]}"
        finally:
            await engine.aclose()

    try:
        return Check(True, what, asyncio.run(probe()))
    except ReharnessError as error:
        text, _, cure = str(error).partition("; ")
        return Check(False, what, text, cure)
