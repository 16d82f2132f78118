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
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from reharness.envs.errors import ConfigError, LedgerError
from reharness.proposer.checkpoints import Checkpoints, save_adapter, write_json
from reharness.proposer.sft_config import LoraSettings, SftConfig
from reharness.proposer.sft_plan import SftPlan, make_plan, versions
from reharness.proposer.sft_trainer import Watch, train
from reharness.solver.ledger import Ledger

__all__ = ["LoraSettings", "SftConfig", "Watch", "run_sft"]

def run_sft(config: SftConfig, out: Path, watch: Watch | None = None) -> dict[str, Any]:
    """Trains an adapter in the run folder ``out`` and returns the summary; a finished folder returns it at once.

    Raises ``ConfigError`` for input that cannot be used (before any step is made) and for a loss that is no number,
    ``LedgerError`` when the folder belongs to another configuration or other data, is in use, or cannot be written.
    """
    plan = make_plan(config)
    with closing(Ledger(out / "ledger.sqlite")) as ledger, _named_errors(out):
        ledger.bind("config", json.dumps(plan.settings(), sort_keys=True))
        ledger.bind("inputs", json.dumps(plan.inputs(), sort_keys=True))
        if (summary := _finished(out, plan)) is not None:
            return summary
        write_json(out / "config.json", {"hash": config.digest(), "config": config.resolved()})
        checkpoints = Checkpoints(out / "checkpoints", config.keep_last)
        with _quiet(plan.threads):
            model = train(plan, out, checkpoints, watch)
            save_adapter(model, out / "adapter", config.save_dtype, plan.base.label, _note(plan))
        write_json(out / "summary.json", summary := _summary(plan, out))
        return summary


def _note(plan: SftPlan) -> dict[str, Any]:
    """What the adapter says about itself; no times and no paths, so that equal runs leave equal notes."""
    return {
        "base": {"name": plan.base.label, "weights": plan.base.weights},
        "data": plan.data_hash,
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


def _finished(out: Path, plan: SftPlan) -> dict[str, Any] | None:
    """The summary of a finished run, if its adapter is still the one that it tells of."""
    path = out / "summary.json"
    if not path.is_file():
        return None
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        if summary["weights"] == plan.base.weights_with(out / "adapter"):
            return summary
    except (ConfigError, OSError, ValueError, KeyError, TypeError):
        pass
    raise LedgerError(
        f"{out}: is finished, but adapter/ is not the one that summary.json tells of; remove summary.json to make it"
        " again from the last checkpoint"
    )


@contextmanager
def _named_errors(out: Path) -> Iterator[None]:
    """What goes wrong while the folder is written, as a named error."""
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"{out}: cannot be written ({error.strerror or error}); make room or mend the folder's rights and give the"
            " same command again: it goes on from the last checkpoint"
        ) from error


@contextmanager
def _quiet(threads: int) -> Iterator[None]:
    """Torch on ``threads`` threads, and the libraries silent but for errors; all as before afterwards."""
    import datasets
    import torch
    import transformers

    log, bars, before = transformers.logging, datasets.are_progress_bars_disabled(), torch.get_num_threads()
    verbosity = log.get_verbosity()
    torch.set_num_threads(threads)
    log.set_verbosity_error()
    log.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(before)
        log.set_verbosity(verbosity)
        log.enable_progress_bar()
        if not bars:
            datasets.enable_progress_bars()
