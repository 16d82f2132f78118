"""The steps of the experiment: each asks one arm about every item and writes its records; `assemble` joins them."""

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
              "grpo_single", "grpo_multistep", "tool_loop", "sft_chains", "grpo_single_chains",
              "grpo_multistep_chains"]  # fmt: skip
ARMS: tuple[Arm, ...] = get_args(Arm)
TRAINED = tuple(arm for arm in ARMS if arm.startswith(("sft", "grpo")))
"""Arms of a trained proposer: they need its adapter."""
SEEDED = ("grpo_single", "grpo_multistep")
"""Arms with a record per training seed."""
PRIMARY = "grpo_single - sft"
"""The one comparison that is not corrected for the others; named before the first GRPO run. Unit: the family, with the
mean of its tracks F and R."""
ROWS = HERE / "rows"
SAMPLING = Sampling(max_tokens=384, temperature=0.6)
"""Of the proposer: the paper's temperature for Reasoning Gym; room for the longest edit of the moves."""

SETTINGS = {
    "dev": DEV, "held_out": HELD_OUT, "proposals": PROPOSALS, "window": WINDOW, "chain_rounds": ROUNDS,
    "temperature": SAMPLING.temperature, "max_tokens": SAMPLING.max_tokens,
}  # fmt: skip
"""What every arm must have been made with."""


async def run_arm(
    arm: Arm, adapter: Path | None, out: Path, part: Part = "unseen", rows: Path = ROWS, seed: int | None = None
) -> dict[str, Any]:
    """Runs (or goes on with) one arm on the items of a part and writes ``rows/[part_]arm[.seed].json``. The same
    command goes on where it stopped; what is in the ledger of ``out`` is not paid for again. Raises ``ConfigError``
    when an arm of a trained proposer is given no adapter (or one of GRPO no training seed), or another is given any."""
    for option, given, wanted in (("adapter", adapter, arm in TRAINED), ("seed", seed, arm in SEEDED)):
        if wanted != (given is not None):
            raise ConfigError(f"arm {arm!r} {'needs' if wanted else 'takes no'} --{option}")
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
                    if arm.endswith("_chains"):
                        records = await chain_records(bench, proposer, arm.removesuffix("_chains"))
                    else:
                        records = await bench.proposer_rows(proposer, shuffled=arm == "sft_shuffled_report")
                finally:
                    await engine.stop()
                    await engine.aclose()
    if not arm.endswith("_chains"):
        keys = [f"{o.item.track} {o.item.family}" for o in items]
        records = dict(zip(keys, records, strict=True))
    result = {"arm": arm, "part": part, "items": _digest(part), "settings": SETTINGS, **extra, "records": records,
              "seconds": round(time.monotonic() - started)}  # fmt: skip
    path = rows / f"{'' if part == 'unseen' else f'{part}_'}{arm}{'' if seed is None else f'.{seed}'}.json"
    if path.is_file():  # made again from the ledger: the longest start says most about what it takes
        result["seconds"] = max(result["seconds"], json.loads(path.read_text(encoding="utf-8"))["seconds"])
    rows.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(result, sort_keys=True, indent=1) + "\n")
    return result


def assemble(path: Path = HERE / "results.json", rows: Path = ROWS) -> Path:
    """Joins the rows of all arms that are there into one results file. Raises ``ConfigError`` when a step's rows are of
    other items, settings or weights than the others', or `parent` is missing."""
    found = _load(rows)
    tracks: dict[str, dict[str, Any]] = {}
    for o in load_items("unseen"):
        key = f"{o.item.track} {o.item.family}"
        entry = {
            "family": o.item.family, "task": o.start.task, "format": o.item.format, "defect": o.item.defect,
            "constant_pays": o.item.constant_pays, "parent_score": found["parent"][""]["records"][key]["scores"][0],
            "headroom": round(o.item.headroom, 4), "n_eval": HELD_OUT[o.item.track],
            "rows": {arm: _row({s: r["records"][key] for s, r in seeds.items()})
                     for arm, seeds in found.items() if not arm.endswith("_chains")},
        }  # fmt: skip
        tracks.setdefault(o.item.track, {"families": []})["families"].append(entry)
    every = {arm + (seed and f".{seed}"): r for arm, seeds in found.items() for seed, r in seeds.items()}
    design = {
        **SETTINGS, "primary": PRIMARY,
        "training_seeds": {arm: len(found[arm]) for arm in ("sft", *SEEDED) if arm in found},
        "solver": "SmolLM2-135M-Instruct (embedded)", "proposer": "SmolLM2-135M-Instruct (embedded), LoRA",
        "best_single_move": every.get("best_single_move", {}).get("best"),
        "weights": {name: r["weights"] for name, r in every.items() if name.split(".")[0] in ("sft", *SEEDED)},
        "seconds": {name: r["seconds"] for name, r in every.items()},
        "notes": {"F": [
            "The library of moves has train formats only: the best single move and a random one cannot write an unseen"
            " form, and are at the parent's score by construction."
        ]},
    }  # fmt: skip
    stage = 2 if any(arm in found for arm in SEEDED) else 1
    result = {"version": 1, "experiment": "micro_rg", "stage": stage, "design": design, "tracks": tracks}
    chains = [r["records"] for name, r in every.items() if name.endswith("_chains")]
    if chains:
        result["chains"] = {track: [c for records in chains for c in records[track]] for track in "FR"}
    write_atomically(path, json.dumps(result, sort_keys=True, indent=1) + "\n")
    load_results(path)
    return path


def _load(rows: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """``{arm: {training seed: result}}`` of the unseen items; the seed is empty where an arm has none."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in ARMS:
        files = {f.name[len(name) + 1 : -len(".json")]: f for f in rows.glob(f"{name}.*json")}
        if read := {seed: json.loads(f.read_text(encoding="utf-8")) for seed, f in sorted(files.items())}:
            found[name] = read
    if "parent" not in found:
        raise ConfigError(f"{rows}: the rows of `parent` are missing: `reharness micro-rg table parent`")
    every = {arm + (seed and f".{seed}"): r for arm, seeds in found.items() for seed, r in seeds.items()}
    if other := [name for name, result in every.items() if result["items"] != _digest("unseen")]:
        raise ConfigError(f"{rows / other[0]}.json: is of other items than items.json; make it again")
    if other := [name for name, result in every.items() if result["settings"] != SETTINGS]:
        raise ConfigError(f"{rows / other[0]}.json: was made with other settings than {SETTINGS}; make it again")
    for arm, seeds in found.items():
        base = arm.removesuffix("_shuffled_report").removesuffix("_chains")
        if arm != base and base in found:
            own = {base + (seed and f" {seed}"): r["weights"] for seed, r in found[base].items()}
            if (weights := seeds[""]["weights"]) not in own.values():
                told = ", ".join(f"{name} {w[:12]}" for name, w in {**own, arm: weights}.items())
                raise ConfigError(f"{rows}: rows of different adapters ({told}); make them again with one --adapter")
        if len(seeds) > 1 and len({r["weights"] for r in seeds.values()}) < len(seeds):
            raise ConfigError(f"{rows}: two training seeds of {arm} are one adapter; give each its own --adapter")
    return found


def _row(seeds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The record of one arm on one item, of one training run or with each of several."""
    first = next(iter(seeds.values()))
    return first if "" in seeds else {**first, "seeds": seeds}


def _digest(part: Part) -> str:
    return content_hash([o.item.model_dump() for o in load_items(part)])[:16]
