"""`reharness demo`: the whole method on real questions with the embedded model, in about ten minutes on two cores.

    live search for demonstrations on one training family
    -> a few steps of SFT on those and on committed ones, from the committed adapter
    -> adaptation of three unseen families, one per track, by the trained and by the untrained proposer
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from reharness.eval.experiment import AdaptConfig, run_adapt
from reharness.eval.live import LiveTable
from reharness.eval.stats import Mean, bounded_mean
from reharness.proposer.demo_rows import load_demos
from reharness.proposer.demos import DemosConfig, run_demos
from reharness.proposer.factory import ProposerConfig
from reharness.proposer.rows import write_rows
from reharness.proposer.sft import SftConfig, run_sft
from reharness.recipes.cli_search import SearchProgress, cost
from reharness.recipes.cli_train import SftProgress
from reharness.recipes.micro_rg.arms import WINDOW
from reharness.recipes.micro_rg.items import DEV, HERE, PARENTS, load_items
from reharness.recipes.micro_rg.steps import SAMPLING
from reharness.solver.models.factory import TransformersConfig

TASKS = {"S": "decimal_chain_sum", "F": "products", "R": "bitwise_arithmetic"}
"""The first three unseen families of the split, one per track, with the format and defect of their committed items.
Named before any proposer was trained."""
STEPS, REPLAYED = 10, 24
HELD_OUT = 16


def live_config() -> DemosConfig:
    """One start of tracks F and R for every train format and defect, on one family, with questions of its own."""
    return DemosConfig(parents=PARENTS, families=("chain_sum",), per_family=0, per_format=1, per_defect=1, seed=1)


def sft_config(rows: Path) -> SftConfig:
    return SftConfig(
        demos=str(rows), adapter=HERE / "sft_adapter", lr=1e-4, warmup=0.0, max_steps=STEPS, batch=2, accumulation=2,
        window=1024, save_every=STEPS, device="cpu",
    )  # fmt: skip


def adapt_config(starts: Path, adapter: Path) -> AdaptConfig:
    """Two rounds of eight proposals; ``starts`` holds the harness that each task starts from."""
    tasks = {o.start.task: str(starts / f"{track}.py") for track, o in _chosen().items()}
    return AdaptConfig(
        tasks=tuple(tasks), harnesses=tasks, rounds=2, proposals=8, dev=DEV, held_out=HELD_OUT, window=WINDOW,
        proposers=tuple(
            ProposerConfig(
                name="model", label=label, max_tokens=256, temperature=SAMPLING.temperature,
                engine=TransformersConfig(adapter=folder, batch=32),
            )
            for label, folder in (("untrained", None), ("trained", adapter))
        ),
    )  # fmt: skip


def _chosen() -> dict[str, Any]:
    return {o.item.track: o for o in load_items("unseen") if TASKS[o.item.track] == o.item.family}


def run_demo(out: Path, console: Console, finish: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run) -> Path:
    """Runs (or goes on with) the demo in the folder ``out``; returns the path of its summary.json."""
    from reharness.eval.render.page import write_page

    seconds: dict[str, float] = {}
    path = out / "summary.json"
    earlier = json.loads(path.read_text(encoding="utf-8"))["seconds"] if path.is_file() else {}
    clock = time.monotonic()

    def phase(name: str) -> None:
        nonlocal clock
        # What was done in an earlier start is not done again: of a phase the longest start is kept.
        seconds[name] = max(earlier.get(name, 0.0), round(time.monotonic() - clock, 1))
        clock = time.monotonic()

    console.print("[bold]1[/] demonstrations, searched live: move search on one training family")
    with SearchProgress(console, "demonstrations") as watch:
        found = finish(run_demos(live_config(), out / "demos", out / "live.jsonl", watch))
    console.print(f"  {found['rows']} demonstrations kept; {cost(found['paid'])}", highlight=False)
    phase("demonstrations")

    committed = load_demos(HERE / "demos.jsonl")
    replayed = random.Random(0).sample(committed, REPLAYED)
    live = load_demos(out / "live.jsonl")
    live = random.Random(0).sample(live, min(len(live), 4 * STEPS - REPLAYED))
    rows = {row.id: row for row in [*live, *replayed]}
    write_rows(out / "rows.jsonl", rows.values())
    console.print(
        f"[bold]2[/] SFT: {STEPS} steps on {len(rows)} demonstrations, [bold]from the committed adapter[/]"
        " (recipes/micro_rg), which was trained on the committed ones"
    )
    with SftProgress(console) as progress:
        trained = run_sft(sft_config(out / "rows.jsonl"), out / "sft", progress)
    console.print(f"  loss {trained['loss_first']:.3f} -> {trained['loss_last']:.3f}", highlight=False)
    phase("sft")

    console.print("[bold]3[/] adaptation of three unseen families, one per track: two rounds of 8 proposals")
    (out / "starts").mkdir(parents=True, exist_ok=True)
    for track, o in _chosen().items():
        (out / "starts" / f"{track}.py").write_text(o.start.parent.source, encoding="utf-8", newline="\n")
    with LiveTable(console) as view:
        adapted = finish(run_adapt(adapt_config(out / "starts", out / "sft" / "adapter"), out / "adapt", view))
    page = write_page(out / "adapt", adapted)
    phase("adaptation")

    summary = {"tasks": _tasks(adapted), "seconds": {**seconds, "total": round(sum(seconds.values()), 1)},
               "started_from": "committed adapter", "demonstrations": len(rows), "live": found["rows"],
               "sft_steps": trained["steps"], "weights": trained["weights"]}  # fmt: skip
    path.write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    console.print(table(summary))
    console.print("Three tasks, one training run: an example, which shows no significance.", style="dim")
    total = ", ".join(f"{name} {s:.0f}" for name, s in summary["seconds"].items())
    console.print(f"seconds: {total}\nsummary: {path}\npage: {page}", highlight=False, soft_wrap=True)
    return path


def _tasks(adapted: dict[str, Any]) -> list[dict[str, Any]]:
    """Per task and track: held-out scores of the parent and of what each proposer's chain retained, and how its
    proposals fared."""
    rows = []
    for track, o in _chosen().items():
        arms = {a["proposer"]: a for a in adapted["arms"] if a["task"] == o.start.task}
        row: dict[str, Any] = {"track": track, "task": o.start.task, "defect": o.item.defect}
        for label, arm in arms.items():
            rounds = arm["rounds"]
            n = sum(r["proposals"] for r in rounds)
            rates = {
                kind: sum(r[f"{kind}_share"] * r["proposals"] for r in rounds) / n
                for kind in ("parsed", "applied", "ran", "valid")
            }
            row["parent"] = arm["held_out"]["seed"]
            row[label] = {"held_out": arm["held_out"]["final"], "proposals": n, **rates}
        rows.append(row)
    return rows


def table(summary: dict[str, Any]) -> Table:
    """The demo's result as a table."""
    shown = Table(title="Held-out exact score, mean [95 % interval over the questions of that task]", box=SIMPLE)
    for title in ("track, task", "n", "parent", "proposer", "retained", "parsed/applied/ran/valid"):
        shown.add_column(title, overflow="fold")
    names = {"S": "from the seed", "F": "format shift", "R": "repair"}
    for row in summary["tasks"]:
        for label in ("untrained", "trained"):
            arm = row[label]
            rates = "/".join(f"{arm[k]:.0%}" for k in ("parsed", "applied", "ran", "valid"))
            defect = f"\ndefect: {row['defect']}" if row["defect"] else ""
            shown.add_row(
                f"{row['track']} ({names[row['track']]})\n{row['task']}{defect}" if label == "untrained" else "",
                str(row["parent"]["n"]), _mean(row["parent"]) if label == "untrained" else "", label,
                _mean(arm["held_out"]), f"{rates} of {arm['proposals']}",
            )  # fmt: skip
    return shown


def _mean(record: dict[str, Any]) -> str:
    mean = Mean(**record) if record["n"] else bounded_mean([])
    return f"{mean.mean:.2f} [{mean.low:.2f}, {mean.high:.2f}]" if record["n"] else "not measured"
