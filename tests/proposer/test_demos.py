"""Demonstrations are searched in the real sandbox, kept where the score rises, and are the same with the same command."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from demo_search import PARENTS, reply, searched, settings, unpaid
from endpoint import EndpointServer
from solving import with_solver

from reharness.envs.errors import LedgerError
from reharness.envs.registry import get_task
from reharness.envs.splits import question_sets
from reharness.proposer.demo_rows import DemoRow
from reharness.proposer.edits import apply_edit, check_harness
from reharness.proposer.moves import MOVES
from reharness.proposer.search import Searched
from reharness.proposer.tracks import Start
from reharness.solver.evaluate import Solver, evaluate, gather_all
from reharness.solver.harness import Harness
from reharness.solver.models.scripted import ScriptedEngine


class Watched:
    def __init__(self) -> None:
        self.starts, self.done = 0, list[Searched]()

    def started(self, starts: int, solver: Solver, teacher: Any) -> None:
        assert not self.done and teacher is None
        self.starts = starts

    def searched(self, done: Searched) -> None:
        self.done.append(done)


WHOLE = {
    "families": ("chain_sum", "word_sorting", "rotate_matrix"), "per_format": 1, "per_defect": 1, "score": 2,
    "proposals": 36, "chunk": 6, "teacher": "move_search", "with_history": 0.4, "seed": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EndpointServer, Path, dict[str, Any], list[DemoRow], Watched]]:
    out, watched = tmp_path_factory.mktemp("demos") / "run", Watched()
    with EndpointServer(ScriptedEngine(reply), "m") as server:
        yield server, out, *searched(settings(server, **WHOLE), out, watched), watched


def test_what_rises_by_the_margin_is_kept_and_all_is_accounted_for(whole: Any) -> None:
    server, _, summary, rows, watched = whole
    assert watched.starts == len(watched.done) == 3 + 18 + 13
    for track in "SFR":
        assert summary["starts"][track] == Counter(d.why for d in watched.done if d.start.track == track)
    assert {d.why for d in watched.done} == {"kept", "ceiling", "no_gain"}
    for row in rows:
        assert row.candidate_score >= row.parent_score + 0.15 and (row.n, row.repeats, row.teacher) == (2, 1, "move_search")
        assert MOVES[row.move or ""].propose(row.parent_source) == row.completion
    assert len(rows) == summary["rows"] == sum(d.why == "kept" for d in watched.done) == len({row.id for row in rows})
    for key in ("track", "family", "format", "defect", "move"):
        assert summary[f"by_{key}"] == Counter(str(getattr(row, key)) for row in rows)
    assert summary["not_kept"] == sorted(
        f"{d.start.task} {d.start.defect or d.start.track}: {d.why}" for d in watched.done if d.row is None
    )
    assert summary["paid"]["solver_calls"] == len(server.bodies) > 0 < summary["paid"]["runs"]


def test_rows_are_measured_again_with_the_same_scores(whole: Any) -> None:
    _, _, _, rows, watched = whole
    seeds = {(d.start.task, d.start.parent.fingerprint): d.start.seed for d in watched.done}
    assert len(seeds) == len(watched.done)

    async def again(row: DemoRow, solver: Solver) -> tuple[float, float]:
        source = check_harness(apply_edit(row.parent_source, row.completion)).source
        assert source is not None and Harness(source).fingerprint == row.candidate
        task = get_task(row.task)
        sets = question_sets(task, "train", 2, 2, 0, seeds[row.task, row.parent])
        told = row.messages[-1].content
        assert any(q.text in told for q in sets.feedback) and not any(q.text in told for q in sets.scoring)
        cards = [await evaluate(Harness(s), sets.scoring, solver, task=task) for s in (row.parent_source, source)]
        return cards[0].mean, cards[1].mean

    scores = with_solver(ScriptedEngine(reply), lambda solver: gather_all(again(row, solver) for row in rows))
    assert scores == [(row.parent_score, row.candidate_score) for row in rows]


def test_a_ceiling_is_a_parent_that_no_edit_could_raise_by_the_margin(whole: Any) -> None:
    starts = [d.start for d in whole[4].done if d.why == "ceiling"]

    async def score(start: Start, solver: Solver) -> float:
        task = get_task(start.task)
        sets = question_sets(task, "train", 2, 2, 0, start.seed)
        return (await evaluate(start.parent, sets.scoring, solver, task=task)).mean

    scores = with_solver(ScriptedEngine(reply), lambda solver: gather_all(score(s, solver) for s in starts))
    assert scores == [1.0] * len(starts) != []


def test_contexts_with_a_history_tell_of_edits_that_did_not_help(whole: Any) -> None:
    rows = whole[3]
    told = [row.messages[-1].content.partition("Earlier edits:\n")[2] for row in rows]
    assert 0 < sum(map(bool, told)) < len(rows) * 0.8
    for row, text in zip(rows, told, strict=True):
        for line in text.splitlines():
            before, after = re.fullmatch(r"- .*: score (\d\.\d+) -> (\d\.\d+), rejected", line).groups()  # type: ignore[union-attr]
            assert float(before) == row.parent_score and float(after) < row.parent_score + 0.15


def test_the_same_command_pays_nothing_and_gives_the_same_rows(whole: Any, tmp_path: Path) -> None:
    server, out, summary, _, _ = whole
    before, asked = (out / "rows.jsonl").read_bytes(), len(server.bodies)
    shutil.copytree(PARENTS, tmp_path / "elsewhere")
    for free in ({}, {"concurrency": 1, "in_flight": 7, "parents": tmp_path / "elsewhere"}):
        again, _ = searched(settings(server, **WHOLE, **free), out)
        assert set(again["paid"].values()) == {0} and len(server.bodies) == asked
        assert unpaid(again) == unpaid(summary) and (out / "rows.jsonl").read_bytes() == before


def test_a_folder_is_of_one_search(whole: Any, tmp_path: Path) -> None:
    server, out, _, _, _ = whole
    before = (out / "rows.jsonl").read_bytes()
    with pytest.raises(LedgerError, match=r"another config: margin was 0.15, is 0.2; .*choose a new run folder"):
        searched(settings(server, **WHOLE, margin=0.2), out)
    shutil.copytree(PARENTS, tmp_path / "parents")
    for file in (tmp_path / "parents" / "train").glob("chain_sum*.py"):
        file.write_text("# Sums.\n" + file.read_text())
    with pytest.raises(LedgerError, match="another starts"):
        searched(settings(server, **WHOLE, parents=tmp_path / "parents"), out)
    assert (out / "rows.jsonl").read_bytes() == before


def test_rows_do_not_depend_on_how_much_is_done_at_once(tmp_path: Path) -> None:
    few = {**WHOLE, "per_format": 0, "per_defect": 0, "per_family": 2}
    with EndpointServer(ScriptedEngine(reply), "m") as server:
        found = [searched(settings(server, **few, concurrency=n, in_flight=n), tmp_path / str(n))[1] for n in (1, 6)]
    assert found[0] == found[1] and len(found[0]) > 3
