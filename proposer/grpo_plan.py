"""What a GRPO run will do, known before any weights are loaded."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reharness.envs.errors import ConfigError
from reharness.envs.types import content_hash
from reharness.proposer.base_model import BaseModel, cores, find_base, pick_device
from reharness.proposer.contexts import ContextRow, load_contexts
from reharness.proposer.grpo_config import GrpoConfig
from reharness.solver.models.factory import EMBEDDED
from reharness.solver.models.weights import check_folders


@dataclass(frozen=True)
class GrpoPlan:
    """``prompts`` are the tokens of every row's prompt: by the embedded model's tokenizer, so about, where the model's
    own is not here."""

    config: GrpoConfig
    base: BaseModel
    rows: tuple[ContextRow, ...]
    prompts: tuple[int, ...]
    device: str
    precision: str
    threads: int

    @property
    def steps(self) -> int:
        """Optimiser steps."""
        return self.config.updates * self.config.iterations

    @cached_property
    def data_hash(self) -> str:
        return content_hash("contexts", [row.id for row in self.rows])

    def settings(self) -> dict[str, Any]:
        """What the run folder is tied to beside its inputs; ``auto`` and left-out values as they were resolved."""
        resolved = {"device": self.device, "precision": self.precision, "threads": self.threads}
        return {**self.config.settings(), **resolved}

    def inputs(self) -> dict[str, Any]:
        """What the configuration names, by content."""
        adapter = self.config.adapter
        return {
            "base": self.base.weights,
            "adapter": self.base.weights_with(adapter) if adapter else None,
            "contexts": self.data_hash,
        }

    def counts(self) -> dict[str, Any]:
        c = self.config
        return {
            "contexts": len(self.rows),
            "families": len({row.family for row in self.rows}),
            "contexts_per_track": dict(sorted(Counter(row.track for row in self.rows).items())),
            "updates": c.updates,
            "steps": self.steps,
            "completions": c.updates * c.groups * c.group_size,
            "epochs": c.updates * c.groups / len(self.rows),
        }


def make_grpo_plan(config: GrpoConfig, *, fetch: bool = True) -> GrpoPlan:
    """Reads and checks all that can be checked without loading weights. ``fetch``: a hub model may be downloaded.

    Raises ``ConfigError`` for contexts, a model, an adapter or a device that cannot be used, and for a context that
    with the longest proposal is over the model's window.
    """
    rows = tuple(row for path in config.contexts for row in load_contexts(path))
    context, times = Counter(row.context for row in rows).most_common(1)[0]
    if times > 1:
        raise ConfigError(f"context {context[:12]} is there {times} times; list each file and row once")
    if config.groups > len(rows):
        raise ConfigError(f"groups = {config.groups}, but there are {len(rows)} contexts; lower it, or make more")
    base = find_base(config.model, fetch)
    prompts = _prompts(rows, base, config)
    if config.adapter is not None:
        check_folders(None, config.adapter)
        if base.here:
            from reharness.proposer.checkpoints import check_adapter

            check_adapter(config.adapter, base.label, base.weights)
    device = pick_device(config.device, strict=fetch)
    if config.vllm and device == "cpu" and fetch:
        raise ConfigError("vllm = true needs a GPU, and torch sees none here; leave it out")
    precision = {"cuda": "bf16", "cpu": "fp32"}[device] if config.precision == "auto" else config.precision
    return GrpoPlan(config, base, rows, prompts, device, precision, config.threads or cores())


def _prompts(rows: tuple[ContextRow, ...], base: BaseModel, config: GrpoConfig) -> tuple[int, ...]:
    chat = base.tokenizer if base.here else BaseModel(EMBEDDED, None).tokenizer
    window = chat.window if base.here else base.architecture().max_position_embeddings if base.described else math.inf
    lengths = []
    for row in rows:
        length = len(chat.encode(chat.render([m.model_dump() for m in row.messages])))
        if length + config.max_tokens > window:
            raise ConfigError(
                f"context {row.id[:12]} ({row.task}) has {length} tokens; with max_tokens = {config.max_tokens} that is"
                f" over the {window} that the model holds; lower max_tokens, or make shorter contexts"
            )
        lengths.append(length)
    return tuple(lengths)


