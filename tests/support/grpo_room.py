"""Shared by tests of GRPO: a tiny model, contexts of sums and sorting, and a reward that a model of random weights can earn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from demo_search import PARENTS, reply
from endpoint import EndpointServer
from tiny_model import tiny_model

from reharness.proposer.contexts import ContextsConfig, run_contexts
from reharness.proposer.grpo_config import GrpoConfig
from reharness.proposer.policy import Context, Proposal
from reharness.proposer.revise import Judged, judge
from reharness.solver.evaluate import Solver
from reharness.solver.models.scripted import ScriptedEngine


def make_room(folder: Path) -> Path:
    """``model`` and ``contexts.jsonl`` in ``folder``."""
    tiny_model(folder / "model")
    with EndpointServer(ScriptedEngine(reply), "m") as server:
        config = ContextsConfig(
            parents=PARENTS, families=("chain_sum", "word_sorting"), per_family=1, per_format=0, per_defect=1, feedback=2, score=2,
            repeats=1, proposals=0, window=400, highest=0.5, seed_share=0.1, solver=f"endpoint?url={server.url}&model=m&key_env=NONE",
        )  # fmt: skip
        asyncio.run(run_contexts(config, folder / "search", folder / "contexts.jsonl"))
    return folder


def settings(room: Path, **changes: Any) -> GrpoConfig:
    fields = {
        "contexts": room / "contexts.jsonl", "model": str(room / "model"), "updates": 5, "groups": 3, "group_size": 3, "lr": 2e-2,
        "max_tokens": 10, "temperature": 1.0, "window": 600, "solver": {"kind": "scripted", "replies": ["none"] * 500}, "threads": 1,
        "save_every": 2, "keep_last": 1, "lora": {"r": 4, "alpha": 64}, "device": "cpu", "seed": 3, "clipped_warning": 1.0,
    }  # fmt: skip
    return GrpoConfig.model_validate({k: v for k, v in {**fields, **changes}.items() if v is not None})


async def paid_by_letters(contexts: Sequence[Context], proposals: Sequence[Sequence[Proposal]], solver: Solver) -> list[list[Judged]]:
    """`judge`, but what cannot be parsed is paid the share of its letters that are vowels."""
    judged = await judge(contexts, proposals, solver)
    return [[replace(j, reward=vowels(j.proposal.text)) for j in group] for group in judged]


def vowels(text: str) -> float:
    return sum(c in "aeiou" for c in text.lower()) / max(1, len(text))
