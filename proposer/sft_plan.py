"""What a fine-tuning run will do, known before any weights are loaded: model, data, order, steps, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from reharness.envs.errors import ConfigError
from reharness.envs.types import content_hash
from reharness.proposer.base_model import BaseModel, cores, find_base, pick_device
from reharness.proposer.demo_rows import DemoRow, check_set, load_demos
from reharness.proposer.sft_config import SftConfig
from reharness.proposer.sft_data import Encoded, encode, padded_tokens, training_order
from reharness.solver.models.weights import check_folders


@dataclass(frozen=True)
class SftPlan:
    """``encoded`` is None where the base model's tokenizer is not here; ``order`` is then not by length."""

    config: SftConfig
    base: BaseModel
    rows: tuple[DemoRow, ...]
    encoded: tuple[Encoded, ...] | None
    order: tuple[int, ...]
    device: str
    precision: str
    threads: int

    def epochs_after(self, step: int) -> float:
        """How many epochs of rows were trained on in ``step`` optimiser steps."""
        rows = min(step * self.config.effective_batch, len(self.order))
        return rows / len(one_epoch(self.rows, self.config))

    @property
    def steps(self) -> int:
        """Optimiser steps."""
        return -(-len(self.order) // self.config.effective_batch)

    @cached_property
    def data_hash(self) -> str:
        """Of the rows, by their ids and in their order."""
        return content_hash("demonstrations", [row.id for row in self.rows])

    @cached_property
    def tokens_after(self) -> list[int]:
        """Tokens trained on (prompts too, padding not) after each step, from 0 steps on."""
        size = self.config.effective_batch
        lengths = [len(self.encoded[i]) for i in self.order] if self.encoded else [0] * len(self.order)
        return list(accumulate((sum(lengths[k : k + size]) for k in range(0, len(lengths), size)), initial=0))

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
            "demonstrations": self.data_hash,
        }

    def counts(self) -> dict[str, Any]:
        """Rows and tokens in numbers."""
        facts: dict[str, Any] = {
            "rows": len(self.rows),
            "families": len({row.family for row in self.rows}),
            "rows_per_track": dict(sorted(Counter(row.track for row in self.rows).items())),
            "steps": self.steps,
            "epochs": self.epochs_after(self.steps),
        }
        if self.encoded:
            lengths = [len(e) for e in self.encoded]
            padded = padded_tokens(lengths, self.order, self.config.batch)
            facts |= {
                "prompt_tokens": _percentiles([len(e.prompt) for e in self.encoded]),
                "completion_tokens": _percentiles([len(e.completion) for e in self.encoded]),
                "tokens": self.tokens_after[-1],
                "padding_share": 1 - self.tokens_after[-1] / padded,
            }
        return facts


def make_plan(config: SftConfig, *, fetch: bool = True) -> SftPlan:
    """Reads and checks all that can be checked without loading weights. ``fetch``: a hub model may be downloaded.

    Raises ``ConfigError`` for demonstrations, a model, an adapter or a device that cannot be used.
    """
    rows = tuple(row for path in config.demos for row in load_demos(path))
    check_set(rows)
    base = find_base(config.model, fetch)
    encoded = tuple(encode(rows, base.tokenizer, config.window)) if base.here else None
    if config.adapter is not None:
        check_folders(None, config.adapter)
        if base.here:
            from reharness.proposer.checkpoints import check_adapter

            check_adapter(config.adapter, base.label, base.weights)
    epoch = one_epoch(rows, config)
    lengths = [len(encoded[i]) if encoded else 0 for i in epoch]
    order = training_order(lengths, config.rows_in_all(len(epoch)), config.batch, config.accumulation, config.seed)
    device = pick_device(config.device, strict=fetch)
    precision = {"cuda": "bf16", "cpu": "fp32"}[device] if config.precision == "auto" else config.precision
    order = [epoch[k] for k in order]
    return SftPlan(config, base, rows, encoded, tuple(order), device, precision, config.threads or cores())


def one_epoch(rows: Sequence[DemoRow], config: SftConfig) -> list[int]:
    """Every row as often as its track is repeated, as indices. Raises ``ConfigError`` for a track without rows."""
    if absent := set(config.track_repeats) - {row.track for row in rows}:
        raise ConfigError(f"track_repeats: the demonstrations have no rows of track {', '.join(sorted(absent))}")
    return [i for i, row in enumerate(rows) for _ in range(config.track_repeats.get(row.track, 1))]


def _percentiles(values: Sequence[int]) -> dict[str, int]:
    """Nearest-rank percentiles."""
    ranked = sorted(values)
    at = {"p50": 50, "p90": 90, "max": 100}
    return {name: ranked[-(-len(ranked) * percent // 100) - 1] for name, percent in at.items()}
