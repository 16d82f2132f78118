"""What contexts and chains start from: parents by family, balanced plans, and starts that tell nothing of themselves."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from solving import with_solver

from reharness.envs.audit_rows import format_fits
from reharness.envs.errors import ConfigError, HarnessError, UnknownNameError
from reharness.envs.formats import FORMATS
from reharness.envs.registry import get_task
from reharness.envs.splits import load_split, question_sets
from reharness.proposer.demos import DemosConfig, DemoSearch
from reharness.proposer.move_search import MoveSearch
from reharness.proposer.policy import Context, make_context
from reharness.proposer.tracks import TRACKS, Start, defective, from_seed, load_parents, plan, shifted
from reharness.solver.evaluate import Solver, evaluate
from reharness.solver.harness import seed_harness
from reharness.solver.models.scripted import ScriptedEngine

FOLDER = Path(__file__).resolve().parents[2] / "recipes" / "micro_rg" / "parents"
SPLIT = load_split()
PARENTS = load_parents(FOLDER, "train")
PARTS = ("train", "validation", "unseen")
SOURCE = "def run(question, tools):\n    answer = question.strip().upper()\n    return answer\n"


def returned(start: Start, question: str = "seven") -> str:
    namespace: dict[str, Any] = {}
    exec(start.parent.source, namespace)
    return namespace["run"](question, None)


# Parents


@pytest.mark.parametrize("part", PARTS)
def test_every_family_of_a_part_has_its_parents(part: Any) -> None:
    parents = load_parents(FOLDER, part)
    assert tuple(parents) == SPLIT.families[part]
    files = {file.read_text() for file in (FOLDER / part).glob("*.py")}
    assert sorted(source for sources in parents.values() for source in sources) == sorted(files)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(FOLDER / "validation", tmp_path / "validation")
    return tmp_path


def test_more_parents_of_a_family_are_its_variants(folder: Path) -> None:
    for number in (2, 3):
        (folder / "validation" / f"power_function_{number}.py").write_text(SOURCE.replace("upper", f"ljust({number}).upper"))
    before, after = load_parents(FOLDER, "validation"), load_parents(folder, "validation")
    assert len(after["power_function"]) == 3 and after["power_function"][0] == before["power_function"][0]
    assert "ljust(2)" in after["power_function"][1] and "ljust(3)" in after["power_function"][2]
    assert {**after, "power_function": before["power_function"]} == before


@pytest.mark.parametrize("name", ["sudoku", "power_functions", "chain_sum", "chain_sum_2", "lcm"])
def test_a_file_of_no_family_of_the_part_is_named(folder: Path, name: str) -> None:
    (folder / "validation" / f"{name}.py").write_text(SOURCE)
    with pytest.raises(ConfigError, match=rf"validation/{name}.py: '{name.removesuffix('_2')}' is no validation family"):
        load_parents(folder, "validation")


def test_a_family_without_a_parent_is_named(folder: Path) -> None:
    (folder / "validation" / "simple_geometry.py").unlink()
    with pytest.raises(ConfigError, match=r"no competent parent of simple_geometry; add simple_geometry.py"):
        load_parents(folder, "validation")
    with pytest.raises(ConfigError, match=r"nowhere/validation: has no competent parent of power_function, simple_geo"):
        load_parents(folder / "nowhere", "validation")


def test_a_parent_that_is_no_harness_is_named(folder: Path) -> None:
    (folder / "validation" / "power_function_2.py").write_text("def run(question, tools):\n    return (\n")
    with pytest.raises(HarnessError, match=r"power_function_2.py: line 2"):
        load_parents(folder, "validation")


# Starts


def test_a_task_is_scored_exactly_and_named_with_its_format() -> None:
    assert from_seed("lcm", 3) == Start("S", "lcm", "plain", None, seed_harness(), 3)
    assert from_seed("lcm", 3).task == "lcm?exact=true"
    assert defective("lcm", SOURCE, "prefix", 3).task == "lcm?exact=true"
    start = shifted("lcm", SOURCE, "tag", 3)
    assert (start.track, start.parent.source, start.task) == ("F", SOURCE, "lcm?exact=true&format=tag")
    assert "<answer>" in get_task(start.task).questions(1, 0)[0].text


def test_a_defect_stands_beside_a_form_that_is_answered_in() -> None:
    assert returned(shifted("lcm", SOURCE, "tag", 0)) == "SEVEN"
    for seed in range(8):
        start = defective("lcm", SOURCE, "reversed", seed, form="tag", harmless=seed % 2 == 0)
        assert (start.track, start.format, start.defect, start.seed) == ("R", "tag", "reversed", seed)
        assert returned(start) == "<answer>NEVES</answer>"
        assert returned(defective("lcm", SOURCE, "reversed", seed)) == "NEVES"
        assert start == defective("lcm", SOURCE, "reversed", seed, form="tag", harmless=seed % 2 == 0)


def test_what_cannot_be_started_from_is_named() -> None:
    with pytest.raises(UnknownNameError, match="unknown defect 'reverse'; did you mean 'reversed'"):
        defective("lcm", SOURCE, "reverse", 0)
    with pytest.raises(HarnessError, match=r"'reversed' cannot be planted: `run` must end in a return"):
        defective("lcm", "def run(question, tools):\n    raise ValueError\n", "reversed", 0)
    with pytest.raises(ConfigError, match="lcm: its parent cannot be given the form 'tag'"):  # a form's function takes two
        defective("lcm", SOURCE.replace("tools", "tools, more=None"), "reversed", 0, form="tag")
    with pytest.raises(HarnessError, match="'reversed' cannot be planted: line 2"):
        defective("lcm", "def run(question, tools):\n    return (\n", "reversed", 0)
    with pytest.raises(UnknownNameError, match="unknown format of a repair 'lstbracket'"):
        defective("lcm", SOURCE, "reversed", 0, form="lstbracket")
    with pytest.raises(HarnessError, match="line 2"):
        shifted("lcm", "def run(question, tools):\n    return (\n", "tag", 0)
    with pytest.raises(UnknownNameError, match="'tagg'"):
        get_task(shifted("lcm", SOURCE, "tagg", 0).task)


# Plans


def planned(part: Any = "train", seed: int = 0, families: Any = None, counts: tuple[int, int, int] = (2, 3, 4)) -> list[Start]:
    per_family, per_format, per_defect = counts
    parents = load_parents(FOLDER, part)
    return plan(part, parents, seed=seed, per_family=per_family, per_format=per_format, per_defect=per_defect, families=families)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_plan_is_balanced_and_names_only_its_part(part: Any, seed: int) -> None:
    starts = planned(part, seed)
    own = {track: [s for s in starts if s.track == track] for track in TRACKS}
    forms = set(SPLIT.formats[part]) - {"plain"}
    assert Counter(s.family for s in own["S"]) == dict.fromkeys(SPLIT.families[part], 2)
    assert Counter(s.format for s in own["F"]) == dict.fromkeys(forms, 3)
    assert Counter(s.defect for s in own["R"]) == dict.fromkeys(SPLIT.defects[part], 4)
    assert {s.defect for s in own["S"] + own["F"]} == {None} and {s.format for s in own["S"]} == {"plain"}
    assert {s.format for s in own["R"]} <= forms | {"plain"}
    assert {s.family for s in starts} == set(SPLIT.families[part])
    assert all(format_fits(s.family, s.format) for s in starts)
    assert len({s.seed for s in starts}) == len(starts)
    sources = {source for sources in load_parents(FOLDER, part).values() for source in sources}
    assert {s.parent.source for s in own["F"]} <= sources and {s.parent for s in own["S"]} == {seed_harness()}


def test_the_families_take_turns() -> None:
    fitting = [f for f in SPLIT.families["train"] if all(format_fits(f, form) for form in SPLIT.formats["train"])]
    for seed in range(5):
        starts = planned(seed=seed, families=fitting, counts=(0, 3, 4))
        for own in ([s for s in starts if s.track == "F"], starts):
            per_family = Counter(s.family for s in own)
            assert set(per_family) == set(fitting) and max(per_family.values()) - min(per_family.values()) <= 1
        used = {s.parent.source for s in starts if s.track == "F"}
        assert any(len(used & set(PARENTS[f])) == 2 for f in fitting)


def test_some_repairs_answer_in_a_form_already_and_only_in_training() -> None:
    repairs = [s for s in planned(counts=(0, 0, 12)) if s.track == "R"]
    formed = [s for s in repairs if s.format != "plain"]
    assert 0.2 < len(formed) / len(repairs) < 0.5
    for start in formed:  # the form's wrapper is in the parent, in the spelling of a move
        prefix = FORMATS[start.format].render("\0").split("\0")[0].split("\\u0000")[0]
        assert prefix in start.parent.source.replace('\\"', '"').replace("\\n", "\n")
    for part in ("validation", "unseen"):
        assert {s.format for s in planned(part, counts=(0, 0, 12))} == {"plain"}


def test_a_plan_follows_from_its_seed() -> None:
    first = planned(seed=1)
    assert first == planned(seed=1)
    other = planned(seed=2)
    assert not {s.seed for s in first} & {s.seed for s in other}
    assert [s.family for s in first if s.track == "F"] != [s.family for s in other if s.track == "F"]
    assert {s.parent.source for s in first if s.track == "R"} != {s.parent.source for s in other if s.track == "R"}


def test_a_plan_of_some_families() -> None:
    starts = planned(families=["caesar_cipher", "chain_sum"], counts=(1, 1, 1))
    assert {s.family for s in starts} == {"caesar_cipher", "chain_sum"} and len(starts) == 2 + 18 + 13
    assert planned(counts=(0, 0, 0)) == []
    for seed in range(20):  # a repair is given only a form that one of the families can hold
        assert len(planned(seed=seed, families=["rotate_matrix"], counts=(0, 0, 1))) == 13
    with pytest.raises(ConfigError, match="'lcm' is no train family of the split: basic_arithmetic, "):
        planned(families=["chain_sum", "lcm"])
    with pytest.raises(ConfigError, match="'last_line' can hold the answers of none of rotate_matrix; add families"):
        planned(families=["rotate_matrix"], counts=(0, 1, 0))


# Contexts


ENGINE = ScriptedEngine(lambda messages, sampling: "It is seven.")


def context(start: Start) -> Context:
    task = get_task(start.task)
    sets = question_sets(task, "train", 3, 2, 0, start.seed)

    async def body(solver: Solver) -> Context:
        cards = [await evaluate(start.parent, qs, solver, task=task) for qs in (sets.feedback, sets.scoring)]
        return make_context(
            task, start.parent, feedback=sets.feedback, feedback_card=cards[0], scoring=sets.scoring,
            parent_card=cards[1], count_tokens=ENGINE.count_tokens,
        )  # fmt: skip

    return with_solver(ENGINE, body)


def test_a_context_words_neither_track_nor_format_nor_defect() -> None:
    starts = planned(families=["chain_sum"], counts=(1, 1, 1))
    chosen = [next(s for s in starts if s.track == track) for track in TRACKS]
    chosen += [s for s in starts if s.track == "R"][1::3]
    for start in chosen:
        made = context(start)
        told = "\n".join(m["content"] for m in made.messages).replace(start.parent.source, "")
        assert re.search(r"\n\nReport:\nScore 0\.\d+ over 3 questions", told) and "right answer: " in told
        names = {*SPLIT.defects["train"], "track", "defect", "planted", "repair", "shift", "format", "exact"}
        names |= {*SPLIT.formats["train"]} - {"plain", "tag", "label", "equals"}  # words of English, of code and of keys
        assert not names & {*re.findall(r"\w+", told.lower())}, start
        assert start.task not in told


def test_what_a_start_is_called_changes_nothing_that_is_read() -> None:
    start = next(s for s in planned(families=["chain_sum"], counts=(0, 0, 1)) if s.defect == "quoted")
    other = replace(start, track="F", defect=None)
    config = DemosConfig(feedback=3, score=2, repeats=1, proposals=13, chunk=13)

    async def body(solver: Solver) -> list[Any]:
        search = DemoSearch(config, solver, MoveSearch(), ENGINE.count_tokens)
        return await asyncio.gather(search(start), search(other))

    first, second = (found.row for found in with_solver(ENGINE, body))
    assert first and second and (first.track, first.defect, first.move) == ("R", "quoted", "undo_quoted")
    assert (second.track, second.defect) == ("F", None)
    assert (first.messages, first.context, first.completion) == (second.messages, second.context, second.completion)
