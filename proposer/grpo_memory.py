"""What a GRPO run will take and do, in numbers and words, told without weights: `--dry-run`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reharness.envs.errors import ConfigError
from reharness.proposer.base_model import GIB, training_memory, versions
from reharness.proposer.grpo_config import GrpoConfig
from reharness.proposer.grpo_plan import GrpoPlan, make_grpo_plan
from reharness.proposer.grpo_trainer import trl_config
from reharness.proposer.stream import Multistep


def memory_estimate(plan: GrpoPlan) -> dict[str, Any]:
    """About how many bytes the trainer takes, for one group of longest rows: with a shared prompt its prompt once and
    its completions, else a row each. A copy of the base that samples, or vLLM, is beside it."""
    c = plan.config
    prompt = max(plan.prompts)
    tokens = prompt + c.group_size * c.max_tokens if c.share_prompt else c.group_size * (prompt + c.max_tokens)
    found = training_memory(plan.base, c, plan.precision, tokens)
    found["sampler"] = found["weights"] if plan.precision == "fp32" else 0
    return found


def describe(config: GrpoConfig) -> list[tuple[str, str]]:
    """The plan of a run in words, with nothing loaded and nothing fetched: ``[(what, text)]``. What cannot be known on
    this machine is said under "not resolved". Raises ``ConfigError`` for what can be known and is wrong."""
    plan = make_grpo_plan(config, fetch=False)
    c, counts = plan.config, plan.counts()
    missing = []
    try:  # every class that training will use, and TRL's own check of the settings
        from trl.trainer.grpo_trainer import GRPOTrainer

        if plan.device == "cpu":
            trl_config(plan, Path("runs"))
        resolved = f"TRL {GRPOTrainer.__name__} with PEFT LoRA"
    except (ImportError, ValueError) as error:
        raise ConfigError(f"the trainer cannot be built: {error}") from error
    tracks = ", ".join(f"{n} {track}" for track, n in counts["contexts_per_track"].items())
    kl = f"KL {c.beta:g}" if c.beta else "no KL term"
    lines = [
        ("trainer", resolved + "; " + ", ".join(f"{name} {v}" for name, v in versions().items())),
        ("configuration", c.digest()),
        ("contexts", f"{counts['contexts']} of {counts['families']} families (tracks: {tracks}); {plan.data_hash}"),
        ("updates", f"{c.updates} of {c.groups} contexts x {c.group_size} proposals: {counts['epochs']:g} epochs,"
                    f" {counts['completions']:,} proposals, {plan.steps} optimiser steps"),
        ("multistep", _multistep(c.multistep)),
        ("loss", f"{c.loss_type}, rewards scaled by {c.scale_rewards}, {kl}, clip {c.epsilon:g} to"
                 f" {c.epsilon_high or c.epsilon:g}, {c.importance_sampling_level} level"),
        ("groups", f"at least {c.filter.min_size} measured, std of rewards at least {c.filter.min_std:g}, flat ones"
                   f" {'kept' if c.filter.flat == 'keep' else 'dropped'}; {c.oversample} further draws"),
        ("learning rate", f"{c.lr:g}, {c.schedule}, warm-up {c.warmup:g}"),
        ("sampling", f"temperature {c.temperature:g}, top-p {c.top_p:g}, at most {c.max_tokens} tokens, by"
                     f" {'vLLM' if c.vllm else 'transformers'}"),
        ("checkpoints", f"every {c.save_every} updates, the last {c.keep_last} kept"
                        + (f", every {c.keep_every}th for good" if c.keep_every else "")),
        ("device", f"{plan.device}, {plan.precision}, {plan.threads} CPU threads"),
    ]  # fmt: skip
    ranked = sorted(plan.prompts)
    middle = ranked[len(ranked) // 2]
    worst = c.updates * c.groups * (middle + c.group_size * c.max_tokens)
    by = "" if plan.base.here else " (by the embedded model's tokenizer)"
    lines += [
        ("prompt tokens", f"median {middle}, longest {ranked[-1]}{by}"),
        ("tokens in all", f"at most {worst:,} (median prompt once a group, longest proposals)"),
    ]
    fetched = "" if plan.base.here else ", from the hub when training starts"
    if plan.base.described:
        m = memory_estimate(plan)
        size = f"{m['parameters'] / 1e6:,.1f} M parameters, {m['trained'] / 1e6:,.2f} M trained"
        lines.append(("model", f"{plan.base.label}: {m['class']}, {size}{fetched}"))
        parts = {key: m[key] / GIB for key in ("weights", "adapter", "activations", "sampler") if m[key]}
        told = ", ".join(f"{key} {value:.2f}" for key, value in parts.items())
        beside = f"; beside it vLLM takes {c.vllm_memory:.0%} of the GPU" if c.vllm else ""
        lines.append(("memory (estimate)", f"at most {sum(parts.values()):.1f} GiB per device: {told}{beside}"))
    else:
        lines.append(("model", f"{plan.base.label}{fetched}"))
        missing.append("parameters and memory: the model's config.json is not here")
    if plan.device == "cuda" and not _gpu():
        missing.append("the GPU: torch sees none here, and training would refuse to start")
    if c.vllm:
        try:
            lines.append(("vLLM", version("vllm")))
        except PackageNotFoundError:
            missing.append("vLLM: is not installed here; pip install 'reharness[gpu]' on the GPU machine")
    return [*lines, *(("not resolved", text) for text in missing)]


def _multistep(m: Multistep | None) -> str:
    if m is None:
        return "no: every context stands alone"
    reset = f"emptied every {m.reset_every} updates" if m.reset_every else "never emptied"
    return f"{m.share:.0%} of the contexts follow on earlier ones, to depth {m.depth}; pool of {m.size}, {reset}"


def _gpu() -> bool:
    import torch

    return torch.cuda.is_available()
