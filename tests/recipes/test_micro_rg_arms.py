"""How the arms of the experiment are measured: real items of the training families, in the real sandbox."""

from __future__ import annotations

from typing import Any

import pytest
from solving import edit, with_solver

from reharness.envs.errors import EngineError, InfraLimitError
from reharness.proposer.moves import MOVES
from reharness.proposer.policy import Context, Proposal, ScriptedProposer
from reharness.recipes.micro_rg import arms, chains
from reharness.recipes.micro_rg.arms import Bench, constant, moved, rank_moves
from reharness.recipes.micro_rg.items import DEV, Opened, load_items
from reharness.solver.evaluate import Solver
from reharness.solver.models.scripted import ScriptedEngine

ITEMS = [o for o in load_items("train") if o.item.track in "FR"]


def count(text: str) -> int:
    return len(text.split())


def bench_of(solver: Solver, items: list[Opened]) -> Bench:
    return Bench(items, solver, count)


def gold(o: Opened) -> str:
    """An edit after which every answer is that of the first dev question."""
    first = o.start.parent.source.splitlines()[next(i for i, t in enumerate(o.start.parent.source.splitlines()) if t.startswith("def run"))]
    return edit(first, f"{first}\n    return {o.task.reveal(o.sets.scoring[0])!r}", "Always the same.")


def test_a_shuffled_report_is_another_item_s_and_all_else_is_its_own() -> None:
    async def body(solver: Solver) -> None:
        bench = bench_of(solver, ITEMS)
        await bench.prepare()
        for i, o in enumerate(ITEMS):
            own, other = bench.context(i), bench.shuffled(i)
            assert (other.task, other.parent, other.scoring) == (own.task, own.parent, own.scoring)
            texts = [m["content"] for m in (own.messages[-1], other.messages[-1])]
            assert all(o.start.parent.source in text for text in texts)
            told = [[q.text[:40] in text.partition("Report:")[2] for q in o.sets.feedback] for text in texts]
            assert any(told[0]) and not any(told[1])
            donors = [
                p for p in ITEMS if any(q.text[:40] in texts[1].partition("Report:")[2] for q in p.sets.feedback) and p.item.track == o.item.track
            ]
            assert donors and all((p.item.format, p.item.defect) != (o.item.format, o.item.defect) for p in donors)

    with_solver(ScriptedEngine(lambda *_: "none"), body)


def test_a_row_has_a_score_per_proposal_and_counts_how_each_fared() -> None:
    o = next(o for o in ITEMS if o.item.track == "R")
    first = gold(o)
    proposals = [first, "no edit at all", edit("nowhere", "x"), first, edit("return", "retrun"), *["NO CHANGE\n"] * 3]

    async def body(solver: Solver) -> dict[str, Any]:
        bench = bench_of(solver, [o])
        await bench.prepare()
        (row,) = await bench.proposer_rows(ScriptedProposer(proposals))
        same = await bench.held_out(o, o.start.parent)
        return {**row, "parent": same, "constant": (await bench.fixed_rows(constant))[0]["scores"]}

    row = with_solver(ScriptedEngine(lambda *_: "none"), body)
    assert row["n"] == 8 and [s is None for s in row["scores"]] == [False, True, True, False, *[True] * 4]
    assert row["dev"][0] == row["dev"][3] >= 1 / DEV and row["scores"][0] == row["scores"][3]
    assert (row["parsed"], row["applied"], row["ran"], row["distinct"]) == (row["parsed"], row["applied"], 2, 1)
    assert row["errors"]["no_blocks" if "no_blocks" in row["errors"] else next(iter(row["errors"]))] >= 1
    assert sum(row["errors"].values()) == 6 and row["valid"] == 2
    assert row["picked"] == (row["scores"][0] if row["dev"][0] > 0 else row["parent"])


def test_a_run_that_could_not_be_measured_is_no_figure() -> None:
    def down(*_: Any) -> str:
        raise EngineError("the lights went out")

    o = next(o for o in load_items("train") if o.item.track == "S")
    async def body(solver: Solver) -> None:
        with pytest.raises(InfraLimitError, match="could not be measured; give the same command again"):
            await bench_of(solver, [o]).prepare()

    with_solver(ScriptedEngine(down), body, infra_retries=0, infra_limit=1.0)


def test_moves_are_ranked_by_their_mean_gain_over_a_track_s_items(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [next(o for o in load_items("train") if o.item.track == "F" and f"as_{o.item.format}" in MOVES) for _ in range(1)]
    form = f"as_{own[0].item.format}"
    other = next(name for name in MOVES if name.startswith("as_") and name != form)
    monkeypatch.setattr(arms, "MOVES", {name: MOVES[name] for name in (other, form)})

    async def body(solver: Solver) -> Any:
        bench = bench_of(solver, own)
        for track in ("S", "R"):  # of every track one, or there is no mean
            bench.items.append(next(o for o in ITEMS if o.item.track == "R") if track == "R" else next(
                o for o in load_items("train") if o.item.track == "S"))
        found = await rank_moves(bench)
        assert moved(form)(own[0]) is not None
        return found

    ranking = with_solver(ScriptedEngine(lambda *_: "none"), body)
    assert list(ranking["F"]) == [form, other] and ranking["F"][form] == 1.0 and ranking["F"][other] == 0.0


class FirstGoodInRoundThree:
    """Eight useless edits a call, but the third call of a chain (told by its history) has the right one."""

    name = "third"
    identity = "third/1"

    def __init__(self, good: dict[str, str]) -> None:
        self.good = good

    async def propose(self, contexts: Any, n: int) -> list[list[Proposal]]:
        return [[Proposal(c.key, i, self._text(c, i, n), "third") for i in range(n)] for c in contexts]

    def _text(self, c: Context, i: int, n: int) -> str:
        rounds = max((e.round for e in c.history), default=0)
        late = i == 2 * 8 + 5 if n > 8 else rounds == 2 and i == 0
        return self.good[c.task.name] if late else f"Nothing, {rounds} {i}.\nNO CHANGE\n"

    async def aclose(self) -> None:
        pass


def test_both_arms_of_a_chain_make_as_many_proposals_and_keep_what_selection_kept() -> None:
    fitting = chains.chosen(ITEMS)[:1]
    items = [o for o in ITEMS if o.item.family in fitting]
    good = {}
    for o in items:
        target = o.competent.source if o.item.track == "R" else None
        if target:  # the whole parent replaced by the competent one
            good[o.task.name] = edit(o.start.parent.source.rstrip("\n"), target.rstrip("\n"), "Repair.")
        else:
            good[o.task.name] = gold(o)

    async def body(solver: Solver) -> Any:
        bench = bench_of(solver, items)
        await bench.prepare()
        return await chains.chain_records(bench, FirstGoodInRoundThree(good), "sft")

    records = with_solver(ScriptedEngine(lambda *_: "none"), body)
    assert set(records) == {"F", "R"} and [r["arm"] for r in records["R"]] == ["sequential", "independent"]
    for record in records["R"]:
        assert record["proposals"] == 40 and len(record["rounds"]) == len(record["dev"]) == 6
        assert record["dev"][:3] == [record["dev"][0]] * 3 < [1.0] and record["dev"][3:] == [1.0] * 3
        assert record["rounds"][3:] == [1.0] * 3 and record["rounds"][0] < 1.0
