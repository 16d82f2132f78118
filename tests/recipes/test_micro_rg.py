"""The frozen experiment: its items are what was frozen, its parts are apart, and its steps refuse what does not fit."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from reharness.envs.errors import ConfigError
from reharness.envs.formats import FORMATS
from reharness.envs.splits import Part, load_split
from reharness.envs.types import content_hash
from reharness.eval.compare import compare_all
from reharness.eval.results import load_results
from reharness.proposer.demo_rows import check_set, load_demos
from reharness.recipes.cli import main
from reharness.recipes.micro_rg.items import DEV, HELD_OUT, HERE, ITEMS, NEEDED, PARENTS, Opened, load_items
from reharness.recipes.micro_rg.steps import ARMS, SETTINGS, assemble, run_arm
from reharness.solver.harness import seed_harness

PARTS: tuple[Part, ...] = get_args(Part)
SPLIT = load_split()
DATA = json.loads(ITEMS.read_text(encoding="utf-8"))
DEMOS = load_demos(HERE / "demos.jsonl")


@pytest.fixture(scope="module", autouse=True)
def fresh_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Questions are made anew, not taken from the user's cache: their frozen digests say that they are the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REHARNESS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def opened(fresh_cache: None) -> dict[Part, list[Opened]]:
    return {part: load_items(part) for part in PARTS}


# Items


def test_the_committed_items_are_what_was_frozen(opened: dict[Part, list[Opened]]) -> None:
    assert sum(map(len, opened.values())) == len(DATA["items"])
    for part, own in opened.items():
        assert [o.item.family for o in own if o.item.track == "S"] == list(SPLIT.families[part])
        for o in own:
            item = o.item
            assert (o.start.track, o.start.family, o.start.format, o.start.defect) == (item.track, item.family, item.format, item.defect)
            assert (o.sets.protocol, len(o.sets.scoring), o.sets.n_eval) == ("adapt_rg", DEV, HELD_OUT[item.track])
            assert item.headroom >= NEEDED and item.constant_pays == (item.family in SPLIT.constant_pays)
            assert (item.format == "plain") == (item.track != "F") and (item.defect is None) == (item.track != "R")
            assert (o.start.parent == seed_harness()) == (item.track == "S")
            assert (o.start.parent == o.competent) == (item.track == "F")


def test_an_item_s_headroom_is_the_one_that_was_measured(opened: dict[Part, list[Opened]]) -> None:
    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[k] for k in ("part", "track", "family", "format", "defect", "competent", "start_score", "n"))

    measured = [key(row) for row in DATA["measured"]]
    assert len(set(measured)) == len(measured) and {key(item) for item in DATA["items"]} <= set(measured)


def test_parts_are_apart(opened: dict[Part, list[Opened]]) -> None:
    used = {
        part: [{o.item.family for o in own}, {o.item.format for o in own} - {"plain"}, {o.item.defect for o in own} - {None}]
        for part, own in opened.items()
    }
    for i, names in enumerate((SPLIT.families, SPLIT.formats, SPLIT.defects)):
        assert used["unseen"][i] and not used["unseen"][i] & {*names["train"], *names["validation"]}
        assert used["train"][i] <= set(names["train"]) and used["validation"][i] <= set(names["validation"])
    parents = {part: {o.competent.source for o in own} for part, own in opened.items()}
    assert not parents["unseen"] & (parents["train"] | parents["validation"])


def tampered(tmp_path: Path, part: str, track: str, changes: dict[str, Any]) -> Path:
    """The committed items with one item of a part and track changed, and the digest with it."""
    data = json.loads(ITEMS.read_text(encoding="utf-8"))
    item = next(i for i in data["items"] if (i["part"], i["track"]) == (part, track))
    assert all(item[k] != v for k, v in changes.items())
    item.update(changes)
    data["digest"] = content_hash({k: v for k, v in data.items() if k != "digest"})
    (tmp_path / "items.json").write_text(json.dumps(data))
    return tmp_path / "items.json"


@pytest.mark.parametrize("track", ["S", "F", "R"])
@pytest.mark.parametrize("key", ["parent", "questions"])
def test_a_changed_hash_is_refused(tmp_path: Path, track: str, key: str) -> None:
    path = tampered(tmp_path, "validation", track, {key: "0" * 64})
    with pytest.raises(ConfigError, match=rf"items.json: the {key} of {track} \w+ is not the one that was frozen; give"):
        load_items("validation", path)
    assert len(load_items("train", path)) == 36  # of the other parts nothing was changed


@pytest.mark.parametrize(
    ("track", "changes", "message"),
    [
        ("F", {"format": "double_bracket"}, "the questions of F"),
        ("F", {"format": "plain"}, "the questions of F"),
        ("R", {"defect": "prefix"}, "the parent of R"),
        ("R", {"defect": "dot"}, "unknown defect 'dot'"),
        ("S", {"track": "T"}, "items.json: T power_function: track = \"T\""),
        ("S", {"n": "eight"}, "items.json: S power_function: n = "),
    ],
)  # fmt: skip
def test_a_changed_item_is_refused(tmp_path: Path, track: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_items("validation", tampered(tmp_path, "validation", track, changes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["items"][0].update(competent=0.5), "was changed after it was frozen"),
        (lambda d: d["items"][-1].update(constant_pays=True), "was changed after it was frozen"),
        (lambda d: d["items"].pop(), "was changed after it was frozen"),
        (lambda d: d["measured"].pop(), "was changed after it was frozen"),
        (lambda d: d.pop("digest"), "is no file of frozen items"),
    ],
)
def test_what_no_hash_of_an_item_covers_is_frozen_too(tmp_path: Path, change: Callable[[Any], Any], message: str) -> None:
    data = json.loads(ITEMS.read_text(encoding="utf-8"))
    change(data)
    (tmp_path / "items.json").write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=rf"items.json: {message}.*; give the folder back its files"):
        load_items("validation", tmp_path / "items.json")


def test_a_damaged_or_absent_file_of_items_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"items\.json: cannot be read .No such file"):
        load_items("validation", tmp_path / "items.json")
    (tmp_path / "items.json").write_text(ITEMS.read_text(encoding="utf-8")[:1000])
    with pytest.raises(ConfigError, match=r"items\.json: is no file of frozen items"):
        load_items("validation", tmp_path / "items.json")


# Demonstrations


def test_the_committed_demonstrations_are_of_the_training_lists_only() -> None:
    check_set(DEMOS)
    assert {row.family for row in DEMOS} == set(SPLIT.families["train"])
    assert {row.format for row in DEMOS} == set(SPLIT.formats["train"])
    assert {row.defect for row in DEMOS} == {*SPLIT.defects["train"], None}
    assert {row.track for row in DEMOS} == {"S", "F", "R"} and min(r.candidate_score - r.parent_score for r in DEMOS) >= 0.15
    for row in DEMOS:
        assert row.task.partition("?")[0] == row.family and f"format={row.format}" in row.task + "&format=plain"


def test_no_demonstration_shows_a_parent_or_a_form_that_is_held_back() -> None:
    sources = {row.parent_source for row in DEMOS}
    told = ["\n".join(m.content for m in row.messages) + row.completion for row in DEMOS]
    for part in ("validation", "unseen"):
        files = [file.read_text(encoding="utf-8") for file in sorted((PARENTS / part).glob("*.py"))]
        assert len(files) == len(SPLIT.families[part]) and not sources & set(files)
        bodies = [text.partition("def run(question, tools):\n")[2] for text in files]
        instructions = [FORMATS[name].instruction for name in SPLIT.formats[part]]
        for text in [*bodies, *instructions]:
            assert text and not any(text in row for row in told), text
    train = {file.read_text(encoding="utf-8") for file in (PARENTS / "train").glob("*.py")}
    assert {row.parent_source for row in DEMOS if row.track == "F"} <= train
    assert {row.parent_source for row in DEMOS if row.track == "S"} == {seed_harness().source}


# Steps


@pytest.mark.parametrize("arm", ARMS)
def test_an_adapter_is_given_to_trained_proposers_and_to_no_other(tmp_path: Path, arm: Any) -> None:
    trained = "sft" in arm or "grpo" in arm
    adapter = None if trained else tmp_path
    with pytest.raises(ConfigError, match=f"arm '{arm}' {'needs' if trained else 'takes no'} --adapter"):
        asyncio.run(run_arm(arm, adapter, tmp_path / "run", rows=tmp_path / "rows"))
    assert not (tmp_path / "run").exists() and not (tmp_path / "rows").exists()


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["table", "sftt"], ["unknown arm 'sftt'", "'sft'"]),
        (["table", "parent", "--part", "unsen"], ["unknown part 'unsen'", "'unseen'"]),
        (["table", "parent", "--part", "train"], ["unknown part 'train'"]),
        (["table", "sft"], ["'sft' needs --adapter"]),
        (["table", "sft", "--adapter", "nowhere"], ["nowhere: holds no adapter_config.json"]),
        (["table", "untrained", "--adapter", "x"], ["'untrained' takes no --adapter"]),
        (["table", "grpo_single", "--adapter", "x"], ["'grpo_single' needs --seed"]),
        (["table", "sft", "--adapter", "x", "--seed", "1"], ["'sft' takes no --seed"]),
    ],
)  # fmt: skip
def test_the_command_names_bad_input(
    arguments: list[str], names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reharness", "micro-rg", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    text = capsys.readouterr().err
    assert stopped.value.code == 2 and all(name in text for name in names), text
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def rows(tmp_path: Path, opened: dict[Part, list[Opened]]) -> Callable[..., Path]:
    """Writes the rows of an arm as its step would, one score for all families; returns their folder."""

    def write(arm: str, score: float, **changes: Any) -> Path:
        items = opened["unseen"]
        digest = content_hash([o.item.model_dump() for o in items])[:16]
        records = {f"{o.item.track} {o.item.family}": {"scores": [score]} for o in items}
        result = {"arm": arm, "part": "unseen", "items": digest, "settings": SETTINGS, "records": records, "seconds": 1, **changes}
        (tmp_path / "rows").mkdir(exist_ok=True)
        (tmp_path / "rows" / f"{arm}.json").write_text(json.dumps(result))
        return tmp_path / "rows"

    return write


def test_the_arms_that_are_there_are_joined(tmp_path: Path, rows: Callable[..., Path], opened: dict[Part, list[Opened]]) -> None:
    rows("validation_sft", 1.0)
    rows("parent", 0.25)
    results = load_results(assemble(tmp_path / "results.json", rows("constant", 0.5)))
    assert results.rows == ["parent", "constant"]
    families = [(track, e.family) for track, own in results.tracks.items() for e in own.families]
    assert sorted(families) == sorted((o.item.track, o.item.family) for o in opened["unseen"])
    assert all(e.rows["constant"].scores == (0.5,) and e.parent_score == 0.25 for t in results.tracks.values() for e in t.families)


def test_rows_of_parent_are_needed(tmp_path: Path, rows: Callable[..., Path]) -> None:
    for folder in (tmp_path / "absent", rows("constant", 0.5)):
        with pytest.raises(ConfigError, match=r"the rows of `parent` are missing: `reharness micro-rg table parent`"):
            assemble(tmp_path / "results.json", folder)
    assert not (tmp_path / "results.json").exists()


@pytest.mark.parametrize("arm", ["parent", "constant", "sft_chains"])
def test_rows_of_other_items_are_refused(tmp_path: Path, rows: Callable[..., Path], arm: str) -> None:
    rows("parent", 0.25)
    with pytest.raises(ConfigError, match=rf"{arm}.json: is of other items than items.json; make it again"):
        assemble(tmp_path / "results.json", rows(arm, 0.5, items="0" * 16))
    assert not (tmp_path / "results.json").exists()


def test_rows_of_other_settings_or_of_two_adapters_are_refused(tmp_path: Path, rows: Callable[..., Path]) -> None:
    rows("parent", 0.25)
    rows("sft", 0.5, weights="a" * 64)
    with pytest.raises(ConfigError, match=r"rows of different adapters \(sft a{12}, sft_shuffled_report b{12}\); make them"):
        assemble(tmp_path / "results.json", rows("sft_shuffled_report", 0.5, weights="b" * 64))
    rows("sft_shuffled_report", 0.5, weights="a" * 64)
    with pytest.raises(ConfigError, match=r"random_move.json: was made with other settings than"):
        assemble(tmp_path / "results.json", rows("random_move", 0.5, settings={**SETTINGS, "window": 500}))
    rows("random_move", 0.5)
    design = load_results(assemble(tmp_path / "results.json", tmp_path / "rows")).design
    assert design["weights"] == {"sft": "a" * 64} and design["window"] == SETTINGS["window"]


def test_every_training_seed_of_grpo_weighs_the_same_and_is_its_own_adapter(tmp_path: Path, rows: Callable[..., Path]) -> None:
    rows("parent", 0.25)
    rows("sft", 0.5, weights="a" * 64)
    for seed, score in enumerate((0.5, 0.75, 1.0)):
        rows(f"grpo_single.{seed}", score, weights=str(seed) * 64)
    rows("grpo_multistep.0", 0.25, weights="d" * 64)
    results = load_results(assemble(tmp_path / "results.json", tmp_path / "rows"))
    assert results.stage == 2 and results.rows == ["parent", "sft", "grpo_single", "grpo_multistep"]
    assert results.design["training_seeds"] == {"sft": 1, "grpo_single": 3, "grpo_multistep": 1}
    assert results.design["weights"]["grpo_single.2"] == "2" * 64
    rows_of = [e.rows["grpo_single"] for t in results.tracks.values() for e in t.families]
    assert all(list(row.seeds) == ["0", "1", "2"] and row.mean(0.25) == 0.75 for row in rows_of)
    primary = compare_all(results).primary
    assert primary and (primary.main.a, primary.main.b) == ("grpo_single", "sft") and primary.main.mean.mean == 0.25
    rows("grpo_single.3", 0.5, weights="1" * 64)
    with pytest.raises(ConfigError, match="two training seeds of grpo_single are one adapter"):
        assemble(tmp_path / "results.json", tmp_path / "rows")


def test_chains_are_of_an_adapter_that_has_a_row(tmp_path: Path, rows: Callable[..., Path]) -> None:
    chain = {"family": "x", "arm": "sequential", "rounds": [0.0, 0.5], "proposals": 8}
    rows("parent", 0.25)
    rows("grpo_single.0", 0.5, weights="0" * 64)
    rows("grpo_single.1", 0.5, weights="1" * 64)
    for row, weights in (("sft", "a" * 64), ("grpo_single", "1" * 64)):
        rows(f"{row}_chains", 0.5, weights=weights, records={t: [{**chain, "row": row}] for t in "FR"})
    results = load_results(assemble(tmp_path / "results.json", tmp_path / "rows"))
    assert [c.row for c in results.chains["F"]] == [c.row for c in results.chains["R"]] == ["sft", "grpo_single"]
    rows("grpo_single_chains", 0.5, weights="2" * 64, records={t: [{**chain, "row": "grpo_single"}] for t in "FR"})
    with pytest.raises(ConfigError, match=r"different adapters \(grpo_single 0 0{12}, grpo_single 1 1{12}, grpo_single_chains 2{12}"):
        assemble(tmp_path / "results.json", tmp_path / "rows")
