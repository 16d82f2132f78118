"""SYNTHETIC results, made of random numbers for tests of tables and figures: nothing in them was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

GAINS = {"untrained": 0.02, "random_move": 0.1, "sft": 0.45, "sft_shuffled_report": 0.2, "grpo_single": 0.55}
"""Mean gain over the parent, of the rows with eight proposals."""


def synthetic_results(
    families: int = 14, seed: int = 0, rows: dict[str, float] | None = None, tracks: str = "FR", move: float = 0.3
) -> dict[str, Any]:
    """A results file's content. The last two families of every track are marked as paid for a constant."""
    rng = np.random.default_rng(seed)
    gains = GAINS if rows is None else rows
    return {
        "version": 1,
        "experiment": "micro_rg",
        "stage": 1,
        "design": {"note": "SYNTHETIC"},
        "tracks": {
            t: {"families": [_entry(rng, f"family_{i:02d}", i >= families - 2, gains, move) for i in range(families)]}
            for t in tracks
        },
    }


def _entry(rng: np.random.Generator, family: str, pays: bool, gains: dict[str, float], move: float) -> dict[str, Any]:
    parent = round(float(rng.choice([0.0, 0.125, 0.25])), 4)
    ease = float(rng.uniform(-0.25, 0.25))
    single = {
        "parent": [parent],
        "constant": [0.375 if pays else 0.0],
        "best_single_move": [_score(rng, parent + move + ease)],
        "tool_loop": [_score(rng, 0.5 + ease)],
    }
    rows: dict[str, Any] = {name: {"scores": scores, "n": 1, "picked": scores[0]} for name, scores in single.items()}
    for name, gain in gains.items():
        scores = [None if rng.random() < 0.2 else _score(rng, parent + gain + ease) for _ in range(8)]
        ok = sum(s is not None for s in scores)
        rows[name] = {
            "scores": scores, "dev": scores, "parsed": min(8, ok + 1), "applied": ok, "ran": ok, "valid": ok,
            "distinct": max(1, ok - 2), "n": 8, "errors": {"no_match": 8 - ok},
            "picked": max([parent, *(s for s in scores if s is not None)]), "tokens": 900,
        }  # fmt: skip
    return {
        "family": family, "task": f"{family}?exact=true&format=tag", "format": "tag", "defect": None,
        "constant_pays": pays, "parent_score": parent, "headroom": 1 - parent, "n_eval": 16, "rows": rows,
    }  # fmt: skip


def _score(rng: np.random.Generator, around: float) -> float:
    return round(float(np.clip(around + rng.normal(0, 0.12), 0, 1) * 16)) / 16


def write_results(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "synthetic_results.json"
    path.write_text(json.dumps(content))
    return path
