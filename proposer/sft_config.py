"""The settings of supervised fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from reharness.proposer.train_config import TrainConfig, several


class SftConfig(TrainConfig):
    """Supervised fine-tuning of a proposer on demonstrations. Exactly one of ``epochs`` and ``max_steps`` is given."""

    FREE: ClassVar[frozenset[str]] = TrainConfig.FREE | {"demos"}

    demos: Annotated[tuple[Path, ...], BeforeValidator(several), Field(min_length=1)]
    """One or more JSONL files of demonstrations."""
    epochs: float | None = Field(None, gt=0)
    max_steps: int | None = Field(None, ge=1)
    track_repeats: dict[Literal["S", "F", "R"], Annotated[int, Field(ge=1)]] = {}
    """How often an epoch holds every row of a track (once where left out), for a track with few rows."""
    batch: int = Field(2, ge=1)
    accumulation: int = Field(1, ge=1)
    """Batches per optimiser step."""
    window: int = Field(4096, ge=1)
    """Longest row in tokens, prompt and completion together; a longer one is an error, never cut."""

    @model_validator(mode="after")
    def _one_length(self) -> SftConfig:
        if (self.epochs is None) == (self.max_steps is None):
            raise ValueError("give exactly one of epochs and max_steps")
        return self

    @property
    def effective_batch(self) -> int:
        """Rows per optimiser step."""
        return self.batch * self.accumulation

    def rows_in_all(self, rows: int) -> int:
        """How many rows are trained on, of an epoch of ``rows``, all epochs together."""
        return max(1, round(self.epochs * rows)) if self.epochs else (self.max_steps or 0) * self.effective_batch
