"""What a fine-tuning run will take and do, in numbers and words, told without weights: `--dry-run`."""

from __future__ import annotations

from typing import Any

from reharness.proposer.base_model import GIB, training_memory, versions
from reharness.proposer.sft_config import SftConfig
from reharness.proposer.sft_plan import SftPlan, make_plan


def memory_estimate(plan: SftPlan) -> dict[str, Any]:
    """About how many bytes training takes on its device, for one batch of longest rows; see ``training_memory``."""
    longest = max(len(e) for e in plan.encoded) if plan.encoded else plan.config.window
    return training_memory(plan.base, plan.config, plan.precision, longest * plan.config.batch)


def describe(config: SftConfig) -> list[tuple[str, str]]:
    """The plan of a run in words, with nothing loaded and nothing fetched: ``[(what, text)]``. What cannot be known on
    this machine is said under "not resolved". Raises ``ConfigError`` for what can be known and is wrong."""
    plan = make_plan(config, fetch=False)
    counts, tracks = plan.counts(), ", ".join(f"{n} {track}" for track, n in plan.counts()["rows_per_track"].items())
    every = f"a checkpoint every {config.save_every}, the last {config.keep_last} kept"
    lines = [
        ("trainer", "TRL SFTTrainer with PEFT LoRA; " + ", ".join(f"{name} {v}" for name, v in versions().items())),
        ("configuration", config.digest()),
        ("demonstrations", f"{len(plan.rows)} of {counts['families']} families (tracks: {tracks}); {plan.data_hash}"),
        ("steps", f"{plan.steps} of {config.batch} x {config.accumulation} rows: {counts['epochs']:g} epochs; {every}"),
        ("learning rate", f"{config.lr:g}, {config.schedule}, warm-up {config.warmup:g}"),
        ("device", f"{plan.device}, {plan.precision}, {plan.threads} CPU threads"),
    ]
    missing = []
    if plan.encoded:
        for kind in ("prompt", "completion"):
            p = counts[f"{kind}_tokens"]
            lines.append((f"{kind} tokens", f"median {p['p50']}, 90 % {p['p90']}, longest {p['max']}"))
        padding = f"{counts['padding_share']:.1%} of what is computed is padding"
        lines.append(("tokens in all", f"{counts['tokens']:,}; {padding}; window {config.window}"))
    else:
        missing.append("tokens: the model's tokenizer is not here")
    fetched = "" if plan.base.here else ", from the hub when training starts"
    if plan.base.described:
        m = memory_estimate(plan)
        size = f"{m['parameters'] / 1e6:,.1f} M parameters, {m['trained'] / 1e6:,.2f} M trained"
        lines.append(("model", f"{plan.base.label}: {m['class']}, {size}{fetched}"))
        parts = {key: m[key] / GIB for key in ("weights", "adapter", "activations")}
        told = ", ".join(f"{key} {value:.2f}" for key, value in parts.items())
        lines.append(("memory (estimate)", f"{sum(parts.values()):.1f} GiB per device: {told}"))
    else:
        lines.append(("model", f"{plan.base.label}{fetched}"))
        missing.append("parameters and memory: the model's config.json is not here")
    if plan.device == "cuda" and not _gpu():
        missing.append("the GPU: torch sees none here, and training would refuse to start")
    return [*lines, *(("not resolved", text) for text in missing)]


def _gpu() -> bool:
    import torch

    return torch.cuda.is_available()
