"""What every training of a proposer's adapter is configured by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from reharness.envs.config import Config


def several(value: Any) -> Any:
    """One string or path where a tuple of them is meant."""
    return (value,) if isinstance(value, str | Path) else value


class LoraSettings(Config):
    """The adapter that is trained. ``targets``: "all-linear" (every linear layer but the output head), or names."""

    r: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: str | tuple[str, ...] = "all-linear"


class TrainConfig(Config):
    """Model, adapter, optimiser and how the run is kept."""

    model: str = "embedded"
    """``embedded``, a folder, or a name on the Hugging Face hub."""
    adapter: Path | None = None
    """A LoRA adapter of the same model to go on from; it brings its own rank, so ``lora`` is then left out."""
    lora: LoraSettings = LoraSettings()
    lr: float = Field(1e-4, gt=0)
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = Field(0.0, ge=0)
    """Steps, or below 1 the share of all steps, over which the learning rate rises."""
    max_grad_norm: float = Field(1.0, gt=0)
    weight_decay: float = Field(0.0, ge=0)
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
    report_to: Annotated[tuple[str, ...], BeforeValidator(several)] = ("none",)
    """Trackers beside metrics.jsonl: ``trackio``, ``tensorboard``, ``wandb``, …"""

    FREE: ClassVar[frozenset[str]] = frozenset({"model", "adapter", "save_every", "keep_last", "report_to"})
    """Keys that do not determine the result: paths (what they hold is bound by content), and how a run is kept and
    watched."""

    @model_validator(mode="after")
    def _one_rank(self) -> TrainConfig:
        if self.adapter is not None and "lora" in self.model_fields_set:
            raise ValueError("the adapter to go on from brings its own rank and targets: leave out `lora`")
        return self

    def settings(self) -> dict[str, Any]:
        """What determines the result beside the content of the files that are named (an adapter to go on from brings
        its own rank and targets)."""
        brought = {"lora"} if self.adapter else set()
        return {k: v for k, v in self.resolved().items() if k not in self.FREE | brought}
