"""`make bench`: every figure of the limits, measured side by side in one run, printed and written to bench.json.

    python -m benchmarks [NAME…]
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.bench_batch import batch_dependence
from benchmarks.bench_edits import edits_per_second
from benchmarks.bench_evaluate import evaluate_vs_engine
from benchmarks.bench_grpo import grpo_overhead_share, grpo_step_vs_trl, reward_parallel_speedup
from benchmarks.bench_ledger import ledger_replay_speedup
from benchmarks.bench_sandbox import sandbox_vs_bwrap

FIGURES: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "sandbox_vs_bwrap": (sandbox_vs_bwrap, "warm run at least 8x faster than bwrap + fresh Python, root and user"),
    "evaluate_vs_engine": (evaluate_vs_engine, "at most 1.10x the bare engine's time, embedded and endpoint"),
    "edits_per_second": (edits_per_second, "at least 5,000/s parse + apply, 100/s with all Python checks"),
    "batch_dependence": (batch_dependence, "no limit: why the fast setting is not repeatable and the exact one is"),
    "grpo_step_vs_trl": (grpo_step_vs_trl, "at least 2x faster than TRL's stock path on the same work; 3x is the aim"),
    "reward_parallel_speedup": (reward_parallel_speedup, "at least 20x faster than one after another"),
    "grpo_overhead_share": (grpo_overhead_share, "at most 10 % of a step is neither sampling, solver nor update"),
    "ledger_replay_speedup": (ledger_replay_speedup, "at least 50x faster from a full ledger, zero solver calls"),
}


def main() -> None:
    names = sys.argv[1:] or list(FIGURES)
    if unknown := [name for name in names if name not in FIGURES]:
        sys.exit(f"unknown figure {unknown[0]!r}; valid: {', '.join(FIGURES)}")
    path = Path("bench.json")
    found = json.loads(path.read_text()) if path.exists() else {}
    python, kernel = platform.python_version(), platform.release()
    machine = {"cpu": _cpu(), "cores": os.cpu_count(), "kernel": kernel, "python": python}
    for name in names:
        measure, limit = FIGURES[name]
        start = time.monotonic()
        print(f"{name}: {limit}", flush=True)
        found[name] = {**measure(), "limit": limit, "machine": machine, "date": time.strftime("%Y-%m-%d")}
        print(json.dumps({k: v for k, v in found[name].items() if k not in ("limit", "machine", "date")}, indent=1))
        print(f"({time.monotonic() - start:.0f} s)\n", flush=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written: {path}")


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
