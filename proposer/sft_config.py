"""The settings of supervised fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from reharness.envs.config import Config


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str | Path) else value


class LoraSettings(Config):
    """The adapter that is trained. ``targets``: "all-linear" (every linear layer but the output head), or names."""

    r: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: str | tuple[str, ...] = "all-linear"


class SftConfig(Config):
    """Supervised fine-tuning of a proposer on demonstrations. Exactly one of ``epochs`` and ``max_steps`` is given."""

    demos: Annotated[tuple[Path, ...], BeforeValidator(_several), Field(min_length=1)]
    """One or more JSONL files of demonstrations."""
    model: str = "embedded"
    """``embedded``, a folder, or a name on the Hugging Face hub."""
    adapter: Path | None = None
    """A LoRA adapter of the same model to go on from; it brings its own rank, so ``lora`` is then left out."""
    lora: LoraSettings = LoraSettings()
    lr: float = Field(1e-4, gt=0)
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = Field(0.0, ge=0)
    """Steps, or below 1 the share of all steps, over which the learning rate rises."""
    epochs: float | None = Field(None, gt=0)
    max_steps: int | None = Field(None, ge=1)
    track_repeats: dict[Literal["S", "F", "R"], Annotated[int, Field(ge=1)]] = {}
    """How often an epoch holds every row of a track (once where left out), for a track with few rows."""
    batch: int = Field(2, ge=1)
    accumulation: int = Field(1, ge=1)
    """Batches per optimiser step."""
    max_grad_norm: float = Field(1.0, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    window: int = Field(4096, ge=1)
    """Longest row in tokens, prompt and completion together; a longer one is an error, never cut."""
    seed: int = Field(0, ge=0, lt=2**31)
    save_every: int = Field(50, ge=1)
    """Steps between checkpoints."""
    keep_last: int = Field(2, ge=1)
    save_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the finished adapter; training and checkpoints keep it in fp32."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of the base model. ``auto``: bf16 on a GPU, fp32 on a CPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = Field(None, ge=1)
    """CPU threads; every core when left out. Equal results need equal threads."""
    gradient_checkpointing: bool = False
    report_to: Annotated[tuple[str, ...], BeforeValidator(_several)] = ("none",)
    """Trackers beside metrics.jsonl: ``trackio``, ``tensorboard``, ``wandb``, …"""

    @model_validator(mode="after")
    def _one_length(self) -> SftConfig:
        if (self.epochs is None) == (self.max_steps is None):
            raise ValueError("give exactly one of epochs and max_steps")
        if self.adapter is not None and "lora" in self.model_fields_set:
            raise ValueError("the adapter to go on from brings its own rank and targets: leave out `lora`")
        return self

    @property
    def effective_batch(self) -> int:
        """Rows per optimiser step."""
        return self.batch * self.accumulation

    def rows_in_all(self, rows: int) -> int:
        """How many rows are trained on, of an epoch of ``rows``, all epochs together."""
        return max(1, round(self.epochs * rows)) if self.epochs else (self.max_steps or 0) * self.effective_batch

    def settings(self) -> dict[str, Any]:
        """What determines the result. Paths are not in it (what they hold is bound by content), nor what changes only
        how the run is kept and watched."""
        free = {"demos", "model", "adapter", "save_every", "keep_last", "report_to"}
        return {k: v for k, v in self.resolved().items() if k not in free}
