"""The steps of stage 1: each asks one arm about every item and writes its records; `assemble` joins them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Literal, get_args

from reharness.envs.cache import write_atomically
from reharness.envs.errors import ConfigError
from reharness.envs.splits import Part
from reharness.envs.types import content_hash
from reharness.eval.results import load_results
from reharness.proposer.move_search import RandomMove
from reharness.proposer.policy import ModelProposer
from reharness.recipes.micro_rg.arms import (
    PROPOSALS,
    WINDOW,
    Bench,
    constant,
    moved,
    rank_moves,
    tool_loop,
)
from reharness.recipes.micro_rg.chains import ROUNDS, chain_records
from reharness.recipes.micro_rg.items import DEV, HELD_OUT, HERE, load_items
from reharness.recipes.micro_rg.session import session
from reharness.solver.models.base import Sampling
from reharness.solver.models.factory import TransformersConfig, make_engine
from reharness.solver.models.weights import check_folders
from reharness.solver.recorded import RecordedEngine

Arm = Literal["parent", "constant", "best_single_move", "random_move", "untrained", "sft", "sft_shuffled_report",
              "tool_loop", "chains"]  # fmt: skip
ARMS: tuple[Arm, ...] = get_args(Arm)
MODEL_ARMS = ("untrained", "sft", "sft_shuffled_report", "chains")
ROWS = HERE / "rows"
SAMPLING = Sampling(max_tokens=384, temperature=0.6)
"""Of the proposer: the paper's temperature for Reasoning Gym; room for the longest edit of the moves."""

SETTINGS = {
    "dev": DEV, "held_out": HELD_OUT, "proposals": PROPOSALS, "window": WINDOW, "chain_rounds": ROUNDS,
    "temperature": SAMPLING.temperature, "max_tokens": SAMPLING.max_tokens,
}  # fmt: skip
"""What every arm must have been made with."""


async def run_arm(
    arm: Arm, adapter: Path | None, out: Path, part: Part = "unseen", rows: Path = ROWS
) -> dict[str, Any]:
    """Runs (or goes on with) one arm on the items of a part and writes ``rows/[part_]arm.json``. The same command goes
    on where it stopped; what is in the ledger of ``out`` is not paid for again. Raises ``ConfigError`` when an arm of a
    trained proposer is given no adapter, or the untrained one is given any."""
    if (arm in ("sft", "sft_shuffled_report", "chains")) != (adapter is not None):
        raise ConfigError(f"arm {arm!r} {'takes no' if adapter else 'needs an'} --adapter")
    check_folders(None, adapter)
    started = time.monotonic()
    items = load_items(part)
    async with session(out) as solver:
        bench = Bench(items, solver, solver.engine.count_tokens)
        extra: dict[str, Any] = {}
        if arm == "best_single_move":
            train = Bench(load_items("train"), solver, solver.engine.count_tokens)
            ranking = await rank_moves(train)
            best = {track: next(iter(moves)) for track, moves in ranking.items()}
            extra = {"best": best, "ranking": {t: dict(list(m.items())[:8]) for t, m in ranking.items()}}
            records: Any = await bench.fixed_rows(lambda o: moved(best[o.item.track])(o))
        elif arm in ("parent", "constant", "tool_loop"):
            fixed = {"parent": lambda o: o.start.parent, "constant": constant, "tool_loop": tool_loop}[arm]
            records = await bench.fixed_rows(fixed)
        else:
            await bench.prepare()
            if arm == "random_move":
                records = await bench.proposer_rows(RandomMove(0))
            else:
                engine = RecordedEngine(make_engine(TransformersConfig(adapter=adapter, batch=32)), solver.ledger)
                try:
                    await engine.probe()
                    extra = {"weights": engine.identity.weights}
                    proposer = ModelProposer(engine, SAMPLING)
                    if arm == "chains":
                        records = await chain_records(bench, proposer, "sft")
                    else:
                        records = await bench.proposer_rows(proposer, shuffled=arm == "sft_shuffled_report")
                finally:
                    await engine.stop()
                    await engine.aclose()
    if arm != "chains":
        keys = [f"{o.item.track} {o.item.family}" for o in items]
        records = dict(zip(keys, records, strict=True))
    result = {"arm": arm, "part": part, "items": _digest(part), "settings": SETTINGS, **extra, "records": records,
              "seconds": round(time.monotonic() - started)}  # fmt: skip
    path = rows / f"{arm if part == 'unseen' else f'{part}_{arm}'}.json"
    if path.is_file():  # made again from the ledger: the longest start says most about what it takes
        result["seconds"] = max(result["seconds"], json.loads(path.read_text(encoding="utf-8"))["seconds"])
    rows.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(result, sort_keys=True, indent=1) + "\n")
    return result


def assemble(path: Path = HERE / "results.json", rows: Path = ROWS) -> Path:
    """Joins the rows of all arms that are there into one results file. Raises ``ConfigError`` when a step's rows are of
    other items, settings or weights than the others', or `parent` is missing."""
    found = {arm: json.loads(f.read_text(encoding="utf-8")) for arm in ARMS if (f := rows / f"{arm}.json").is_file()}
    if "parent" not in found:
        raise ConfigError(f"{rows}: the rows of `parent` are missing: `reharness micro-rg table parent`")
    if other := [arm for arm, result in found.items() if result["items"] != _digest("unseen")]:
        raise ConfigError(f"{rows / other[0]}.json: is of other items than items.json; make it again")
    if other := [arm for arm, result in found.items() if result["settings"] != SETTINGS]:
        raise ConfigError(f"{rows / other[0]}.json: was made with other settings than {SETTINGS}; make it again")
    adapters = {arm: found[arm]["weights"] for arm in ("sft", "sft_shuffled_report", "chains") if arm in found}
    if len(set(adapters.values())) > 1:
        told = ", ".join(f"{arm} {weights[:12]}" for arm, weights in adapters.items())
        raise ConfigError(f"{rows}: rows of different adapters ({told}); make them again with one --adapter")
    tracks: dict[str, dict[str, Any]] = {}
    for o in load_items("unseen"):
        key = f"{o.item.track} {o.item.family}"
        parent = found["parent"]["records"][key]["scores"][0]
        entry = {
            "family": o.item.family, "task": o.start.task, "format": o.item.format, "defect": o.item.defect,
            "constant_pays": o.item.constant_pays, "parent_score": parent, "headroom": round(o.item.headroom, 4),
            "n_eval": HELD_OUT[o.item.track],
            "rows": {arm: result["records"][key] for arm, result in found.items() if arm != "chains"},
        }  # fmt: skip
        tracks.setdefault(o.item.track, {"families": []})["families"].append(entry)
    design = {
        **SETTINGS, "training_seeds": 1,
        "solver": "SmolLM2-135M-Instruct (embedded)", "proposer": "SmolLM2-135M-Instruct (embedded), LoRA",
        "best_single_move": found.get("best_single_move", {}).get("best"),
        "sft_weights": found.get("sft", {}).get("weights"),
        "seconds": {arm: result["seconds"] for arm, result in found.items()},
        "notes": {"F": [
            "The library of moves has train formats only: the best single move and a random one cannot write an unseen"
            " form, and are at the parent's score by construction."
        ]},
    }  # fmt: skip
    result = {"version": 1, "experiment": "micro_rg", "stage": 1, "design": design, "tracks": tracks}
    if "chains" in found:
        result["chains"] = found["chains"]["records"]
    write_atomically(path, json.dumps(result, sort_keys=True, indent=1) + "\n")
    load_results(path)
    return path


def _digest(part: Part) -> str:
    return content_hash([o.item.model_dump() for o in load_items(part)])[:16]
