"""One adaptation run, three ways to the same embedded model: in process at concurrency 16 and 1, and over HTTP.

The engine's ``exact`` setting makes a greedy completion independent of what else is in the batch (in the fast setting
about half of the completions of SmolLM2 vary with it), so all three must agree in everything but identities and times.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from endpoint import EndpointServer

from reharness.eval.experiment import AdaptConfig, run_adapt
from reharness.proposer.factory import ProposerConfig
from reharness.solver.models.factory import engine_config, make_engine
from reharness.solver.outcomes import from_record

HARNESS = "def run(question, tools):\n    reply = tools.llm(question, max_tokens=24, temperature=0.0)\n    return reply\n"


def run(folder: Path, solver: dict[str, Any], concurrency: int) -> dict[str, Any]:
    (folder.parent / "short.py").write_text(HARNESS)
    config = AdaptConfig(
        tasks=("chain_sum?min_terms=2&max_terms=2&exact=true", "spell_backward?exact=true"),
        proposers=(ProposerConfig(name="move_search"),), solver=engine_config(solver), rounds=1, proposals=13,
        dev=4, held_out=4, concurrency=concurrency, harness=str(folder.parent / "short.py"),
    )  # fmt: skip
    summary = asyncio.run(run_adapt(config, folder))
    arms = [{k: v for k, v in arm.items() if k not in ("seconds", "rounds")} for arm in summary["arms"]]
    rounds = [[{k: v for k, v in r.items() if k != "seconds"} for r in arm["rounds"]] for arm in summary["arms"]]
    return {"arms": arms, "rounds": rounds, "answers": answers(folder), "calls": summary["paid"]["solver"]["calls"]}


def answers(folder: Path) -> list[Any]:
    import json

    rows = sqlite3.connect(folder / "ledger.sqlite").execute("SELECT body FROM records WHERE kind = 'outcome'").fetchall()
    outcomes = [from_record(json.loads(body)) for (body,) in rows]
    return sorted((str(getattr(o, "answer", o)), getattr(o, "score", None)) for o in outcomes)


@pytest.mark.model
def test_in_process_over_http_and_at_any_concurrency_are_the_same_run(tmp_path: Path) -> None:
    embedded = {"kind": "embedded", "exact": True}
    wide = run(tmp_path / "wide", embedded, 16)
    narrow = run(tmp_path / "narrow", embedded, 1)
    engine = make_engine(embedded)
    try:
        with EndpointServer(engine, "smol") as server:
            endpoint = {"kind": "endpoint", "url": server.url, "model": "smol", "mode": "templated", "tokenizer": "embedded", "key_env": "NONE"}
            http = run(tmp_path / "http", endpoint, 16)
    finally:
        asyncio.run(engine.aclose())
    assert wide["calls"] > 20 and len({a for a, _ in wide["answers"]}) > 20
    assert wide == narrow
    assert wide == http
