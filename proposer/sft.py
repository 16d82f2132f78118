"""Supervised fine-tuning of a proposer: LoRA by TRL's SFTTrainer, on demonstrations, with an exact resume.

    demonstrations -> tokens (prompt as an engine sends it, completion + end of turn; loss on the completion only)
                   -> one fixed order over all epochs -> optimiser steps -> adapter/

A run folder holds config.json, ledger.sqlite (which ties it to its configuration and inputs, and keeps a second process
out), checkpoints/, metrics.jsonl (a line per step), and at the end adapter/ and summary.json. After a kill the same
command goes on from the last whole checkpoint and ends with the same adapter, byte for byte, on the same CPU threads.
"""

from __future__ import annotations

import json
import math
from contextlib import closing
from pathlib import Path
from typing import Any

from reharness.proposer.base_model import versions
from reharness.proposer.checkpoints import Checkpoints, save_adapter, write_json
from reharness.proposer.sft_config import SftConfig
from reharness.proposer.sft_plan import SftPlan, make_plan
from reharness.proposer.sft_trainer import train
from reharness.proposer.train_config import LoraSettings
from reharness.proposer.training import Watch, finished, named_errors, quiet
from reharness.solver.ledger import Ledger

__all__ = ["LoraSettings", "SftConfig", "Watch", "run_sft"]

def run_sft(config: SftConfig, out: Path, watch: Watch | None = None) -> dict[str, Any]:
    """Trains an adapter in the run folder ``out`` and returns the summary; a finished folder returns it at once.

    Raises ``ConfigError`` for input that cannot be used (before any step is made) and for a loss that is no number,
    ``LedgerError`` when the folder belongs to another configuration or other data, is in use, or cannot be written.
    """
    plan = make_plan(config)
    with closing(Ledger(out / "ledger.sqlite")) as ledger, named_errors(out):
        ledger.bind("config", json.dumps(plan.settings(), sort_keys=True))
        ledger.bind("inputs", json.dumps(plan.inputs(), sort_keys=True))
        if (summary := finished(out, plan.base)) is not None:
            return summary
        write_json(out / "config.json", {"hash": config.digest(), "config": config.resolved()})
        checkpoints = Checkpoints(out / "checkpoints", config.keep_last)
        with quiet(plan.threads):
            model = train(plan, out, checkpoints, watch)
            save_adapter(model, out / "adapter", config.save_dtype, plan.base.label, _note(plan))
        write_json(out / "summary.json", summary := _summary(plan, out))
        return summary


def _note(plan: SftPlan) -> dict[str, Any]:
    """What the adapter says about itself; no times and no paths, so that equal runs leave equal notes."""
    return {
        "base": {"name": plan.base.label, "weights": plan.base.weights},
        "data": plan.data_hash,
        "from": plan.inputs()["adapter"],
        "settings": plan.settings(),
        "steps": plan.steps,
        "dtype": plan.config.save_dtype,
        "versions": versions(),
    }


def _summary(plan: SftPlan, out: Path) -> dict[str, Any]:
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = [json.loads(line) for line in lines]
    seconds = math.fsum(row["seconds"] for row in metrics)
    counts = plan.counts()
    return {
        **counts,
        "weights": plan.base.weights_with(out / "adapter"),
        "base": plan.base.label,
        "loss_first": metrics[0]["loss"],
        "loss_last": metrics[-1]["loss"],
        "seconds": round(seconds, 1),
        "tokens_per_second": round(counts["tokens"] / seconds, 1),
        "device": plan.device,
        "precision": plan.precision,
        "threads": plan.threads,
    }
