"""Comparisons over families. Every result here is SYNTHETIC: made by hand or of random numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_results import synthetic_results, write_results
from typer.testing import CliRunner

from reharness.envs.errors import ConfigError, UnknownNameError
from reharness.eval.compare import (
    PAIRS,
    compare,
    compare_all,
    mean_table,
    only_without_constant_paying,
    primary_pair,
    primary_table,
    value_table,
)
from reharness.eval.render.results import BEGIN, END, caption, figure, save_figure, verdict, write_between_markers
from reharness.eval.render.runs import run_sheets
from reharness.eval.render.sheets import Sheet, comparison_sheet, error_sheet, track_sheet
from reharness.eval.results import Results, Row, load_results
from reharness.eval.stats import holm
from reharness.recipes.cli import app


def entry(family: str, rows: dict[str, Any], parent: float = 0.25, pays: bool = False, form: str = "tag") -> dict[str, Any]:
    return {
        "family": family, "task": family, "format": form, "defect": None, "constant_pays": pays, "parent_score": parent,
        "headroom": 1 - parent, "n_eval": 16, "rows": {k: v if isinstance(v, dict) else {"scores": v} for k, v in rows.items()},
    }  # fmt: skip


def results(**tracks: list[dict[str, Any]]) -> Results:
    return Results.model_validate(
        {"version": 1, "experiment": "SYNTHETIC", "stage": 1, "design": {}, "tracks": {t: {"families": f} for t, f in tracks.items()}}
    )


def differing(row: str, other: str, gains: Sequence[float], **more: float) -> list[dict[str, Any]]:
    """A family for each gain of ``row`` over ``other``, which is .25 everywhere; ``more`` rows are the same everywhere."""
    return [
        entry(f"f{i:02d}", {row: [0.25 + g], other: [0.25], **{k: [v] for k, v in more.items()}}) for i, g in enumerate(gains)
    ]


def test_failed_edits_count_three_ways_and_never_mix_with_what_was_picked_or_best() -> None:
    row = Row(scores=(1.0, None, 0.5, None), picked=0.5, parsed=3, applied=2, ran=2, valid=2, distinct=2, n=4)
    assert row.mean(0.25) == 0.5
    assert row.mean(0.25, "zero") == 0.375
    assert row.mean(0.25, "left_out") == 0.75
    assert (row.oracle(0.25), row.selected(), row.share("parsed"), row.different()) == (1.0, 0.5, 0.75, 2.0)
    failed = Row(scores=(None, None))
    assert (failed.mean(0.25), failed.mean(0.25, "zero"), failed.oracle(0.25)) == (0.25, 0.0, 0.25)
    assert all(map(math.isnan, (failed.mean(0.25, "left_out"), failed.selected(), failed.share("applied"), failed.different())))


def test_several_training_seeds_weigh_the_same() -> None:
    seeds = {"0": {"scores": [1.0, 1.0, 1.0]}, "1": {"scores": [0.0, None]}}
    row = Row.model_validate({"scores": [1.0, 1.0, 1.0], "seeds": seeds})
    assert row.mean(0.5) == (1.0 + 0.25) / 2 and row.oracle(0.5) == (1.0 + 0.5) / 2
    track = results(F=[entry("a", {"sft": {"scores": [1.0], "seeds": seeds}})]).tracks["F"]
    sheet = track_sheet("F", track)
    assert [line[0] for line in sheet.rows] == ["parent harness", "SFT", "· training seed 0", "· training seed 1"]
    assert any("2 training seeds; no claim about their variance" in note for note in sheet.notes)


def test_the_unit_is_the_family_whatever_its_number_of_formats() -> None:
    track = results(
        F=[entry("a", {"sft": [1.0]}), entry("a", {"sft": [0.0]}, form="json_field"), entry("b", {"sft": [0.0]}, pays=True)]
    ).tracks["F"]
    assert value_table(track) == {"parent": {"a": 0.25, "b": 0.25}, "sft": {"a": 0.5, "b": 0.0}}


def test_a_family_without_a_measurement_is_left_out_of_both_sides() -> None:
    track = results(F=[entry("a", {"sft": [None], "untrained": [0.5]}), entry("b", {"sft": [1.0], "untrained": [0.5]})]).tracks["F"]
    found = compare(mean_table(track, "left_out"), "sft", "untrained")
    assert found.differences == {"b": 0.5} and found.left_out == 1 and found.mean.n == 1
    assert compare(mean_table(track), "sft", "untrained").differences == {"a": -0.25, "b": 0.5}
    with pytest.raises(UnknownNameError, match="did you mean 'sft'"):
        compare(mean_table(track), "sftt", "untrained")


@given(st.lists(st.integers(-4, 12).map(lambda k: k / 16), min_size=2, max_size=14))
def test_a_comparison_the_other_way_round_changes_only_signs(gains: list[float]) -> None:
    table = mean_table(results(F=differing("sft", "untrained", gains)).tracks["F"])
    ab, ba = compare(table, "sft", "untrained"), compare(table, "untrained", "sft")
    assert ab.mean.mean == pytest.approx(-ba.mean.mean) and ab.p == ba.p and ab.wilcoxon == pytest.approx(ba.wilcoxon)
    assert ab.mean.mean == pytest.approx(sum(gains) / len(gains))
    assert ab.detectable == pytest.approx(ba.detectable, nan_ok=True)


def test_the_primary_comparison_is_over_families_and_everything_else_is_corrected_together() -> None:
    loaded = Results.model_validate(synthetic_results(tracks="SFR"))
    found = compare_all(loaded)
    assert found.primary and (found.primary.main.a, found.primary.main.b) == ("grpo_single", "sft")
    assert math.isnan(found.primary.holm)
    f, r = (mean_table(loaded.tracks[t]) for t in ("F", "R"))
    for family, value in primary_table(loaded)["sft"].items():
        assert value == pytest.approx((f["sft"][family] + r["sft"][family]) / 2)
    everything = [c for checked in found.tracks.values() for c in checked]
    assert found.tested == len(everything) == 3 * len([p for p in PAIRS if "grpo_multistep" not in p])
    assert [c.holm for c in everything] == holm([c.main.p for c in everything])
    without = only_without_constant_paying(loaded)
    again = compare_all(without)
    for checked in (*everything, found.primary):
        assert checked.without and checked.without.mean.n == 12 and checked.main.mean.n == 14
    assert [c.without for c in everything] == [c.main for checked in again.tracks.values() for c in checked]
    assert all(c.without is None for checked in again.tracks.values() for c in checked)


def test_the_design_may_name_the_primary_comparison() -> None:
    content = synthetic_results(families=3)
    content["design"]["primary"] = "sft - untrained"
    assert primary_pair(Results.model_validate(content)) == ("sft", "untrained")
    content["design"]["primary"] = "grpo - sft"
    with pytest.raises(ConfigError, match=r"design\.primary"):
        primary_pair(Results.model_validate(content))
    assert primary_pair(Results.model_validate(synthetic_results(families=3, rows={"sft": 0.1}))) is None


def test_few_families_are_shown_and_not_tested() -> None:
    found = compare_all(Results.model_validate(synthetic_results(families=11)))
    assert found.tested == 0 and all(math.isnan(c.holm) for checked in found.tracks.values() for c in checked)
    cells = comparison_sheet("t", found.tracks["F"]).rows[0]
    assert cells[2].endswith("(no claim)") and set(cells[3:-1]) == {""}
    assert "too few families for any claim (11)" in caption(found)


def said(better: float, shuffled_costs: float) -> tuple[bool, str]:
    """The verdict where SFT gains ``better`` on the best move and loses ``shuffled_costs`` with another report, +-.05."""
    families = [
        entry(f"f{i:02d}", {"sft": [0.5], "best_single_move": [0.5 - better + d], "sft_shuffled_report": [0.5 - shuffled_costs + d]})
        for i, d in enumerate([-0.05, 0.05] * 6)
    ]
    return verdict("F", compare_all(results(F=families)).tracks["F"])


def test_the_caption_says_first_what_was_not_shown() -> None:
    assert said(0.2, 0.2) == (True, said(0.2, 0.2)[1]) and "it reads reports" in said(0.2, 0.2)[1]
    for better, costs, words in (
        (0.0, 0.2, ("was not shown to beat the best single move", "but another task's report costs it something")),
        (0.2, 0.0, ("SFT beats the best single move", "but another task's report was not shown to cost it something")),
        (-0.2, -0.2, ("was not shown to beat", "and another task's report was not shown to cost it something")),
    ):
        shown, sentence = said(better, costs)
        assert not shown and "reads reports was not shown; by this measure it learned a habit" in sentence
        assert all(word in sentence for word in words), sentence
    rows = {"untrained": 0.0, "sft": 0.6, "sft_shuffled_report": 0.2}
    content = synthetic_results(tracks="F", rows=rows, move=0.0)
    worse = synthetic_results(tracks="R", rows={**rows, "sft_shuffled_report": 0.6}, move=0.0)
    content["tracks"]["R"] = worse["tracks"]["R"]
    text = caption(compare_all(Results.model_validate(content)))
    assert text.startswith("Track R: SFT beats") and text.index("was not shown to cost it something") < text.index("Track F: SFT beats")
    assert "was not measured" in caption(compare_all(results(S=differing("sft", "untrained", [0.1] * 12))))


def test_an_interval_above_0_is_not_enough_where_the_exact_test_does_not_agree() -> None:
    gains = [0.0] * 20 + [0.5] * 4  # [+.017, +.200] by the bootstrap, but an exact p of 1/8
    families = [
        entry(f"f{i:02d}", {"sft": [0.5], "best_single_move": [0.5 - gain], "sft_shuffled_report": [0.0 + i / 100]})
        for i, gain in enumerate(gains)
    ]
    found = compare_all(results(F=families)).tracks["F"]
    move = next(c for c in found if c.main.b == "best_single_move")
    assert move.main.mean.above_zero and move.main.p == pytest.approx(0.125) and move.holm >= 0.125
    reads, sentence = verdict("F", found)
    assert not reads and "was not shown to beat the best single move" in sentence and "report costs it something" in sentence


GOLDEN = """\
**Track F, format shift: held-out score, mean over 12 families**

| row | families | mean of n proposals | failed as 0 | failed left out | without constant-paying | picked on dev | oracle best of n | parsed/applied/valid | distinct of n |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| parent harness | 12 | 0.250 (all equal) | – | – | 0.250 (n=11) | – | – | – | – |
| constant answer | 12 | 0.083 [0.000, 0.267] (t) | – | – | 0.000 (n=11) | – | – | – | – |
| SFT | 12 | 0.461 [0.424, 0.498] | 0.336 | 0.672 | 0.469 (n=11) | 0.500 | 1.000 | 75%/50%/50% | 2.0 of 4 |

A constant answer scores on f00; one column is without it."""


def test_a_track_s_table() -> None:
    counts = {"parsed": 3, "applied": 2, "ran": 2, "valid": 2, "distinct": 2, "n": 4}
    families = [
        entry(
            f"f{i:02d}",
            {"constant": [1.0 if i == 0 else 0.0], "sft": {"scores": [i / 16, None, 1.0, None], "picked": 0.5, **counts}},
            pays=i == 0,
        )
        for i in range(12)
    ]
    assert track_sheet("F", results(F=families).tracks["F"]).markdown() == GOLDEN


def test_markdown_cells_cannot_break_the_table() -> None:
    assert Sheet("t", ("a", "b"), [("x|y", "1\n2\u202e")]).markdown().splitlines()[-1] == "| x\\|y | 1 2\\u202e |"


def broken(change: Any) -> dict[str, Any]:
    content = synthetic_results(families=2)
    change(content, content["tracks"]["F"]["families"][0])
    return content


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c, _: c.update(version=2), "version 2; this reharness reads version 1"),
        (lambda c, _: c.pop("design"), "design"),
        (lambda c, _: c.update(trakcs={}), "unknown key 'trakcs'.*did you mean 'tracks'"),
        (lambda c, e: e["rows"]["sft"].update(score=[1]), "score.*did you mean.*scores"),
        (lambda c, e: e["rows"].update(sfft={"scores": [1]}), "unknown row 'sfft' in family_00; did you mean 'sft'"),
        (lambda c, e: e["rows"]["sft"].update(scores=[1.5] * 8), "less than or equal to 1"),
        (lambda c, e: e["rows"]["sft"].update(scores=[math.nan] * 8), "finite number"),
        (lambda c, e: e["rows"]["sft"].update(n=7), "8 scores for n = 7 proposals"),
        (lambda c, e: e["rows"]["sft"].update(dev=[0.5]), "1 dev scores beside 8 held-out scores"),
        (lambda c, e: e["rows"]["sft"].update(applied=9), "applied = 9 of 8 proposals"),
        (lambda c, e: e["rows"]["parent"].update(scores=[1.0]), "row parent is"),
        (lambda c, e: e.update(family="family_01"), "family_01 is twice"),
        (lambda c, e: c["tracks"].update(X={"families": [e]}), "tracks.X"),
        (lambda c, e: c.update(tracks={}), "at least 1 item"),
        (lambda c, e: e["rows"]["sft"].update(seeds={"0": {"scores": [1]}}), "not the same training seeds"),
        (lambda c, e: c["tracks"]["F"]["families"].append({**e, "format": "x", "rows": {}}), "in one of its entries only"),
        (
            lambda c, _: c.update(chains={"F": [{"family": f, "arm": "sequential", "row": "sft", "rounds": [0] * k, "proposals": 8} for f, k in (("a", 2), ("b", 3))]}),
            "not as many rounds",
        ),
    ],
)  # fmt: skip
def test_a_bad_results_file_is_named_with_what_is_wrong(tmp_path: Path, change: Any, words: str) -> None:
    path = write_results(tmp_path, broken(change))
    with pytest.raises(ConfigError, match=words) as caught:
        load_results(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("text", "words"), [("{\n]", "line 2: is not JSON"), ("[]", "one JSON object"), (None, "cannot be read")])
def test_a_file_that_is_no_results_file(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_results(path)


def test_what_is_between_the_markers_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_between_markers(readme, "new")
    write_between_markers(readme, "new")
    assert readme.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    for text in ("none", f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}"):
        readme.write_text(text)
        with pytest.raises(ConfigError, match=r"README\.md: put the lines"):
            write_between_markers(readme, "new")
        assert readme.read_text() == text
    with pytest.raises(ConfigError, match=r"absent\.md: cannot be read"):
        write_between_markers(tmp_path / "absent.md", "new")


def test_the_figure_shows_every_family_and_is_the_same_every_time(tmp_path: Path) -> None:
    loaded = Results.model_validate(synthetic_results(tracks="FR"))
    panels = figure(loaded).axes
    assert [p.get_title(loc="left") for p in panels] == ["F: format shift (14 families)", "R: repair (14 families)"]
    for panel, name in zip(panels, ("F", "R"), strict=True):
        table = mean_table(loaded.tracks[name])  # type: ignore[index]
        drawn = [sorted(float(x) for x, _ in dots.get_offsets()) for dots in panel.collections]
        assert drawn == [sorted(values.values()) for values in table.values()]
    first = {p.suffix: p.read_bytes() for p in save_figure(loaded, tmp_path / "a" / "x.png")}
    assert first == {p.suffix: p.read_bytes() for p in save_figure(loaded, tmp_path / "b" / "x.svg")} and len(first) == 2
    with pytest.raises(ConfigError, match=r"\.png or \.svg"):
        save_figure(loaded, tmp_path / "x.pdf")


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "220"})


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    path = write_results(tmp_path, synthetic_results())
    whole = invoke("compare", path)
    assert whole.exit_code == 0, whole.output
    assert "Primary comparison" in whole.output and "Track R, repair: paired differences" in whole.output
    assert "Holm p corrects it over the 12 comparisons" in whole.output
    part = invoke("compare", path, "--rows", "sft", "--track", "F", "--baseline", "parent")
    assert part.exit_code == 0 and "SFT − parent harness" in part.output
    assert "GRPO" not in part.output and "Track R" not in part.output
    assert "over the 18 comparisons" in part.output  # showing less does not correct for less
    fewer = invoke("compare", path, "--without-constant-paying", "--track", "F")
    assert "mean over 12 families" in fewer.output and "without constant-paying" in fewer.output
    readme = tmp_path / "README.md"
    readme.write_text(f"# x\n{BEGIN}\n{END}\n")
    wrote = invoke("compare", path, "--write", readme, "--figure", tmp_path / "docs" / "synthetic.png")
    assert wrote.exit_code == 0, wrote.output
    assert "](docs/synthetic.png)" in readme.read_text() and (tmp_path / "docs" / "synthetic.svg").is_file()
    once = readme.read_text()
    assert invoke("compare", path, "--write", readme, "--figure", tmp_path / "docs" / "synthetic.png").exit_code == 0
    assert readme.read_text() == once and once.startswith("# x\n") and once.count("**Track F") == 3


def test_failed_edits_are_counted_by_kind() -> None:
    failing = {"scores": [None, None, 0.5, None], "n": 4, "parsed": 3, "applied": 1, "ran": 1, "valid": 1, "errors": {"no_match": 2, "no_block": 1}}
    families = [entry(f"f{i}", {"sft": [0.5]}) for i in range(2)]
    for family in families:
        family["rows"]["sft"] = failing
    track = results(F=families).tracks["F"]
    sheet = error_sheet("F", track)
    assert sheet and list(sheet.columns) == ["row", "proposals", "no_match", "no_block"] and sheet.rows == [["SFT", "8", "4", "2"]]
    assert error_sheet("F", results(F=[entry("f", {"sft": [0.5]})]).tracks["F"]) is None


def test_the_short_table_has_the_means_of_the_long_ones(tmp_path: Path) -> None:
    content = synthetic_results()
    path, short, long = write_results(tmp_path, content), tmp_path / "short.md", tmp_path / "long.md"
    for file, option in ((short, ["--short"]), (long, [])):
        file.write_text(f"{BEGIN}\n{END}\n")
        assert invoke("compare", path, "--write", file, *option).exit_code == 0
    tables = [[[c.strip() for c in line.split("|")[1:-1]] for line in f.read_text().splitlines() if line[:1] == "|"] for f in (short, long)]
    main = {row[0]: row[1:] for row in tables[0][2:]}
    assert set(main) > {"parent harness", "SFT", "untrained model"}
    for name, cells in main.items():
        ours = [row[2] for row in tables[1] if row[0] == name and " − " not in row[0] and len(row) == 10]
        assert [cells[0], cells[2]] == ours
    tracks = Results.model_validate(content).tracks.values()
    valid = [sum(e.rows["sft"].share("valid") for e in t.families) / len(t.families) for t in tracks]
    assert [cell.split("/")[1] for cell in main["SFT"][1::2]] == [f"{share:.0%}" for share in valid]
    assert "--short goes with --write" in str(invoke("compare", path, "--short").exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", "sfft"], "did you mean 'sft'"),
        (["--track", "S"], "unknown track 'S'"),
        (["--baseline", "tool_lop"], "did you mean 'tool_loop'"),
        (["--rows", "sft", "--figure", "x.png"], "take the whole file"),
    ],
)
def test_the_command_names_what_it_cannot_use(tmp_path: Path, arguments: list[str], words: str) -> None:
    failed = invoke("compare", write_results(tmp_path, synthetic_results(families=2)), *arguments)
    assert isinstance(failed.exception, ConfigError) and words in str(failed.exception)


def run_folder(path: Path, gain: float, n: int, questions: str = "q", solver: str = "w", formats: int = 1) -> Path:
    """A folder with the summary that `reharness adapt` leaves, as far as the comparison reads it."""
    path.mkdir()
    arms = []
    for i in range(n):
        seed, final = 0.2, 0.2 + gain * (1 + i % 3)
        means = {"seed": seed, "final": final, "gain": final - seed}
        held = {k: {"mean": m, "n": 16, "low": m - 0.1, "high": m + 0.1} for k, m in means.items()}
        for form in ("", "&format=tag")[:formats]:
            arms.append({"task": f"t{i:02d}?exact=true{form}", "proposer": "mine", "questions": questions, "held_out": held})
    (path / "summary.json").write_text(json.dumps({"arms": arms, "solver": {"weights": solver}}))
    return path


def test_runs_over_the_same_tasks_are_compared(tmp_path: Path) -> None:
    a, b = run_folder(tmp_path / "a", 0.1, 12), run_folder(tmp_path / "b", 0.2, 12)
    (table, differences), notes = run_sheets([a, b])
    assert len(table.rows) == 24 and table.rows[0][0] == table.rows[1][0] == "t00?exact=true"
    assert differences.rows[0][1:3] == ["12", differences.rows[0][2]] and differences.rows[0][2].startswith("+0.200 [")
    assert not any("Holm" in note for note in notes) and "Holm p" not in differences.columns
    (_, several), _ = run_sheets([a, b, run_folder(tmp_path / "c", 0.3, 12)])
    assert "Holm p" in several.columns and len(several.rows) == 2
    two = [run_folder(tmp_path / name, gain, 12, formats=2) for name, gain in (("d", 0.1), ("e", 0.2))]
    assert run_sheets(two)[0][1].rows[0][1] == "12"  # the unit is the family, not its formats
    for name, changes, words in (("f", {"questions": "p"}, "other questions"), ("g", {"solver": "v"}, "other solver weights")):
        with pytest.raises(ConfigError, match=words):
            run_sheets([a, run_folder(tmp_path / name, 0.1, 12, **changes)])
    assert invoke("compare", a, b).exit_code == 0
    mixed = invoke("compare", a, write_results(tmp_path, synthetic_results(families=2)))
    assert isinstance(mixed.exception, ConfigError)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="name the folder of a finished run"):
        run_sheets([tmp_path / "empty"])


def test_the_stats_commands() -> None:
    covered = invoke("stats", "coverage", "--n", "12")
    assert covered.exit_code == 0 and "12, bootstrap-t" in covered.output and covered.output.count("%") >= 7
    assert "power for +0.05 65%" in invoke("stats", "design", "--n", "24").output
    assert "false acceptance 84%" in invoke("stats", "selection").output
