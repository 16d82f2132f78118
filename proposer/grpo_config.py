"""The settings of GRPO."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from reharness.proposer.groups import StdGroupFilter
from reharness.proposer.stream import Multistep
from reharness.proposer.train_config import TrainConfig, several
from reharness.solver.models.factory import EmbeddedConfig, EngineField
from reharness.solver.sandbox.types import Limits
from reharness.solver.tools import Budgets


class GrpoConfig(TrainConfig):
    """Group-relative policy optimisation of a proposer (2402.03300, as 2609.35738 uses it). An update reads ``groups``
    contexts and samples ``group_size`` proposals for each; names are TRL's where it has one."""

    FREE: ClassVar[frozenset[str]] = TrainConfig.FREE | {
        "contexts", "keep_every", "concurrency", "max_empty", "infra_limit", "clipped_warning",
    }  # fmt: skip

    contexts: Annotated[tuple[Path, ...], BeforeValidator(several), Field(min_length=1)]
    """One or more JSONL files of `reharness contexts`."""
    updates: int = Field(ge=1)
    groups: int = Field(8, ge=1)
    group_size: int = Field(8, ge=2)
    iterations: int = Field(1, ge=1)
    """Optimiser steps on the samples of an update (TRL's ``num_iterations``)."""
    lr: float = Field(1e-6, gt=0)
    schedule: Literal["cosine", "linear", "constant"] = "constant"
    temperature: float = Field(0.6, gt=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(512, ge=1)
    """Of a proposal; TRL's ``max_completion_length``."""
    window: int = Field(600, ge=256)
    """Tokens of a context that follows on another, in multistep training."""
    beta: float = Field(0.0, ge=0)
    """Weight of the KL term to where training started."""
    epsilon: float = Field(0.2, gt=0)
    epsilon_high: float | None = Field(None, gt=0)
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"] = "grpo"
    scale_rewards: Literal["group", "batch", "none"] = "group"
    importance_sampling_level: Literal["token", "sequence"] = "token"
    mask_truncated: bool = False
    """Leaves completions that were cut off out of the loss (their rewards stay in the baseline)."""
    filter: StdGroupFilter = StdGroupFilter()
    oversample: int = Field(0, ge=0)
    """How many times more contexts are drawn in place of groups that are not trained on."""
    multistep: Multistep | None = None
    clipped_warning: float = Field(0.05, ge=0, le=1)
    """Share of completions cut off at ``max_tokens`` above which an update is warned of."""
    infra_limit: float = Field(0.2, ge=0, le=1)
    """Share of an update's completions without a measurement above which the run stops."""
    max_empty: int = Field(4, ge=1)
    """Updates in a row without a group to train on after which the run stops."""
    solver: EngineField = EmbeddedConfig()
    concurrency: int = Field(32, ge=1, le=1000)
    limits: Limits = Limits()
    budgets: Budgets = Budgets()
    share_prompt: bool = True
    """One pass over the prompt and all completions of a group, in place of one pass per completion. The loss is the
    same; off, it is TRL's stock path."""
    pack_tokens: int = Field(16_384, ge=1)
    """Tokens of such a pass, whose attention mask has the square of it; a longer group takes several."""
    vllm: bool = False
    """Samples with vLLM on the training GPU (extra ``gpu``)."""
    vllm_memory: float = Field(0.35, gt=0, lt=1)
    """Share of the GPU that vLLM may take."""
    save_every: int = Field(5, ge=1)
    """Updates between checkpoints."""
    keep_every: int = Field(0, ge=0)
    """Updates of which a checkpoint stays for good; 0: none."""

    @model_validator(mode="after")
    def _fits(self) -> GrpoConfig:
        if self.filter.flat == "keep" and self.beta == 0:
            raise ValueError('filter.flat = "keep": a flat group has no advantage; it teaches only with beta > 0')
        if self.vllm and self.device == "cpu":
            raise ValueError("vllm = true needs a GPU: leave out `vllm`, or `device`")
        return self
