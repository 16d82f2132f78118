"""Training contexts: parents with something to gain, shares and balance, and rows that open to the same context again."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from demo_search import EXACT, LINE, asking, reply, settings
from endpoint import EndpointServer
from solving import with_solver

from reharness.envs.errors import ConfigError, LedgerError
from reharness.proposer.contexts import ContextRow, ContextsConfig, evenly, load_contexts, run_contexts, shared_out
from reharness.proposer.policy import ScriptedProposer
from reharness.proposer.revise import revise
from reharness.solver.evaluate import Solver
from reharness.solver.models.scripted import ScriptedEngine

SMALL: dict[str, Any] = {
    "families": ("chain_sum", "word_sorting", "rotate_matrix"), "per_family": 2, "per_format": 1, "per_defect": 1, "score": 2,
    "teacher": "move_search", "proposals": 80,
}  # fmt: skip


def found(server: EndpointServer, out: Path, **changes: Any) -> tuple[dict[str, Any], list[ContextRow]]:
    base = settings(server).model_dump(exclude={"proposals", "seed"})
    config = ContextsConfig.model_validate({**base, **changes})
    summary = asyncio.run(run_contexts(config, out, out / "contexts.jsonl"))
    return summary, load_contexts(out / "contexts.jsonl")


@pytest.fixture(scope="module")
def server() -> Iterator[EndpointServer]:
    with EndpointServer(ScriptedEngine(reply), "m") as server:
        yield server


@pytest.fixture(scope="module")
def made(server: EndpointServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[ContextRow]]:
    out = tmp_path_factory.mktemp("contexts") / "run"
    return out, *found(server, out, **SMALL, seed_share=1 / 3, highest=0.4)


def test_a_context_has_something_to_gain_and_is_counted(made: Any) -> None:
    _, summary, rows = made
    assert sum(sum(c.values()) for c in summary["starts"].values()) == 2 * 3 + 18 + 13
    kept = sum(c.get("kept", 0) for c in summary["starts"].values())
    assert {"kept", "no_gain", "ceiling"} >= set().union(*summary["starts"].values())
    assert all(row.parent_score <= 0.4 for row in rows) and summary["rows"] == len(rows) == kept - summary["left_out"]
    tracks = Counter(row.track for row in rows)
    assert tracks["F"] and tracks["R"] and all(row.family in SMALL["families"] for row in rows)


def test_the_same_command_pays_nothing_and_gives_the_same_file(server: EndpointServer, made: Any) -> None:
    out, summary, _ = made
    before, asked = (out / "contexts.jsonl").read_bytes(), len(server.bodies)
    again, _ = found(server, out, **SMALL, seed_share=1 / 3, highest=0.4)
    assert (out / "contexts.jsonl").read_bytes() == before and len(server.bodies) == asked
    assert again["paid"]["runs"] == 0 and again["starts"] == summary["starts"]
    other, rows = found(server, out, **SMALL, seed_share=0.1, highest=0.4)  # of what was measured, another share
    assert other["paid"]["runs"] == 0 and 0 < sum(r.track == "S" for r in rows) <= 0.15 * len(rows)
    with pytest.raises(LedgerError, match=r"highest was 0\.4, is 0\.5"):
        found(server, out, **SMALL, seed_share=1 / 3, highest=0.5)


def test_a_row_opens_to_the_context_that_was_measured_and_an_edit_of_it_is_judged(server: EndpointServer, tmp_path: Path) -> None:
    _, (row,) = found(server, tmp_path, proposals=0)
    context = row.open()
    assert context.key == row.context and context.parent_card.mean == row.parent_score == 0.0
    assert [m["content"] for m in context.messages] == [m.content for m in row.messages]
    assert len(context.scoring) == 3 and all(q.text not in context.messages[-1]["content"] for q in context.scoring)

    async def work(solver: Solver) -> Any:
        good, same = asking(EXACT), asking("", "Ask as before.").replace("'' + question", "question + ''")
        return (await revise([context], ScriptedProposer([good, same]), 2, solver))[0]

    better, inert = with_solver(ScriptedEngine(reply), work)
    assert better.card.mean == 1.0 and not better.inert and better.valid
    assert inert.card.mean == 0.0 and inert.inert and not inert.valid and LINE in row.parent_source


def test_without_a_gain_to_be_found_no_context_is_kept(server: EndpointServer, tmp_path: Path) -> None:
    base = settings(server).model_dump(exclude={"proposals", "seed"})
    config = ContextsConfig.model_validate({**base, "proposals": 2})  # of a teacher that writes no edit
    summary = asyncio.run(run_contexts(config, tmp_path, tmp_path / "rows.jsonl"))
    assert summary["starts"]["S"] == {"no_gain": 1} and summary["rows"] == 0
    with pytest.raises(ConfigError, match=r"rows.jsonl: holds no contexts; make them again with `reharness contexts`"):
        load_contexts(tmp_path / "rows.jsonl")


def test_a_row_that_is_not_what_it_says_is_refused(server: EndpointServer, tmp_path: Path) -> None:
    _, (row,) = found(server, tmp_path, proposals=0)
    for change, why in (
        ({"seed": row.seed + 1}, "has other questions now"), ({"runs": row.runs[:1]}, "1 runs of 3"),
        ({"messages": row.messages[:1]}, "is not the context"), ({"parent_source": "def run(q, t):\n    return ''\n"}, "is not the context"),
    ):  # fmt: skip
        changed = row.model_copy(update=change)
        with pytest.raises(ConfigError, match=why):
            changed.model_copy(update={"id": changed.content_id}).open()
        (tmp_path / "bad.jsonl").write_text(json.dumps({**json.loads(changed.line())}) + "\n")
        with pytest.raises(ConfigError, match=r"bad.jsonl, line 1: its id is not the hash of the rest"):
            load_contexts(tmp_path / "bad.jsonl")
    (tmp_path / "bad.jsonl").write_text(row.line() + "\n" + row.line() + "\n")
    with pytest.raises(ConfigError, match="line 2: is the context of line 1 again"):
        load_contexts(tmp_path / "bad.jsonl")
    (tmp_path / "bad.jsonl").write_text(row.line().replace('"version": 1', '"version": 7') + "\n")
    with pytest.raises(ConfigError, match="contract version 7; this reharness reads 1"):
        load_contexts(tmp_path / "bad.jsonl")


def test_the_share_of_seed_parents_is_kept_evenly_over_families(made: Any) -> None:
    _, _, rows = made
    some = [r.model_copy(update={"track": t, "family": f, "id": f"{t}{f}{i}"}) for t in "SF" for f in "abc" for i in range(4) for r in rows[:1]]
    kept = Counter(r.track for r in shared_out(some, 0.25))
    assert kept == {"S": 4, "F": 12}
    assert Counter(r.family for r in shared_out(some, 0.25) if r.track == "S") == {"a": 2, "b": 1, "c": 1}
    assert {r.track for r in shared_out(some, 0.0)} == {"F"} and {r.track for r in shared_out(some, 1.0)} == {"S"}
    assert shared_out(some[:12], 0.25) == some[:12]
    assert [r.family for r in evenly(some[:12], 5)] == ["a", "b", "c", "a", "b"]
    both = [r.model_copy(update={"format": f}) for r, f in zip(some[12:18], "ppqpqr", strict=True)]  # families a a a a b b
    assert [(r.family, r.format) for r in evenly(both, 6)] == [("a", "p"), ("b", "q"), ("a", "p"), ("b", "r"), ("a", "q"), ("a", "p")]
