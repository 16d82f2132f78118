"""The page of an adaptation run: what it says, what it must not do, and how a browser takes it."""

from __future__ import annotations

import copy
import io
import json
import math
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from summaries import make_summary

from reharness.envs.errors import LedgerError
from reharness.eval.render import text
from reharness.eval.render.curve import COLOURS, INK, accepted_edit, figure, panels, trajectory
from reharness.eval.render.page import diff_lines, error_counts, failure_counts, render_page, verdict, write_page
from reharness.solver.harness import seed_harness


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    return make_summary()


@pytest.fixture(scope="module")
def page(summary: dict[str, Any]) -> Document:
    return Document(render_page(summary))


class Document(HTMLParser):
    """Elements with their attributes, table rows as lists of cell texts, and all text, as a browser would read them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(html)
        self.rows = [[" ".join(cell.split()) for cell in row] for row in self.rows]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_the_page_is_written_whole_and_twice_the_same(tmp_path: Path, summary: dict[str, Any]) -> None:
    path = write_page(tmp_path, json.loads(json.dumps(summary, sort_keys=True)))
    first = path.read_bytes()
    assert path == tmp_path / "report.html" and first.decode().rstrip().endswith("</html>")
    assert write_page(tmp_path, summary).read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, summary: dict[str, Any]) -> None:
    with pytest.raises(LedgerError, match=r"absent.report\.html: cannot be written .*choose a folder"):
        write_page(tmp_path / "absent", summary)


def test_what_language_models_wrote_is_text(page: Document) -> None:
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "embedded", "iframe", "link", "object", "base", "form", "a"}
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    assert '</title></code><script>alert("x")</script><img src=x onerror=alert(1)> \\u202eright to left' in page.text
    assert "model <embedded>" in page.text and "\u202e" not in page.html
    assert sum(tag == "title" for tag, _ in page.elements) == 1


FRAGMENTS = ["<b>", "</pre>", "</svg>", "<!--", "{{ 7*7 }}", "]]>", "&lt;", "$x^2$", "_"]


@settings(max_examples=12)
@given(st.text(st.characters(codec=None), max_size=40), st.sampled_from(FRAGMENTS))
def test_no_text_adds_an_element_or_breaks_the_page(words: str, fragment: str) -> None:
    summary = make_summary()
    plain = Document(render_page(summary))
    for one in summary["arms"]:
        one["task"] = one["proposer"] = one["final_source"] = fragment + words + fragment
        for r in one["rounds"]:
            if taken := accepted_edit(r):
                cast(dict[str, Any], taken)["description"] = words + fragment
    changed = Document(render_page(summary))
    changed.html.encode()
    assert {tag for tag, _ in changed.elements} <= {tag for tag, _ in plain.elements}
    assert text.visible(fragment + words + fragment).strip() in changed.text


def test_nothing_is_loaded_from_elsewhere(page: Document) -> None:
    links = [(tag, v) for tag, attrs in page.elements for n, v in attrs.items() if n.endswith(("src", "href"))]
    assert links and all(tag == "use" and v and v.startswith("#") for tag, v in links)
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", page.html)
    (policy,) = [a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy and "default-src 'none'" in policy and "script" not in policy


def test_the_held_out_table_holds_the_numbers_with_n(summary: dict[str, Any], page: Document) -> None:
    rows = {(row[0], row[1]): row for row in page.rows if len(row) == 7}
    for one in summary["arms"]:
        row, held, dev = rows[one["task"], one["proposer"]], one["held_out"], one["dev"]
        if not held["gain"]["n"]:
            continue
        for cell, key, sign in ((row[2], "seed", ""), (row[3], "final", ""), (row[4], "gain", "+")):
            m = held[key]
            low, mean, high = (f"{m[k]:{sign}.3f}".replace("-", "−") for k in ("low", "mean", "high"))
            assert cell == f"{mean} [{low}, {high}] n = {m['n']}"
        assert row[5] == f"{dev['seed']['mean']:.3f} → {dev['final']['mean']:.3f} n = {dev['final']['n']}"
    assert rows["chain_sum?format=tag", "move_search"][4].startswith("+0.625 [+") and "n = 32" in page.text
    assert rows["chain_sum?format=tag", "move_search"][6] == "2 of 3"
    assert list(rows) == [(one["task"], one["proposer"]) for one in summary["arms"]]  # tasks stay together
    swapped = {**summary, "arms": [summary["arms"][i] for i in (0, 2, 1, 3)]}
    assert [(row[0], row[1]) for row in Document(render_page(swapped)).rows if len(row) == 7] == list(rows)
    assert "Lost to infrastructure failures, and in no mean: 10 held-out outcomes." in page.text


def test_what_was_not_measured_is_never_a_number(page: Document) -> None:
    (row,) = [row for row in page.rows if row[:2] == ["letter_counting", "model <embedded>"]]
    assert row[2:6] == ["not measured, n = 0"] * 4
    assert not re.search(r"\b(nan|None)\b", page.text)


def test_the_rounds_table_counts_stages_refusals_and_failed_runs(page: Document) -> None:
    first, second, third = [row for row in page.rows if len(row) == 13][1:4]
    assert first[:9] == ["1", "4", "75%", "50%", "50%", "25%", "0.406", "0.500", "0.312 n = 4"]
    assert first[9:] == ["yes gains +0.188 on Q_score", "1 no_block, 1 no_match", "200", "1 min 01 s"]
    assert second[10] == "1 no_block, 1 no_match failed runs: 2 timeout_cpu"
    assert third[2:8] == ["50%", "0%", "0%", "0%", "–", "–"] and third[9].startswith("no ")


def test_accepted_edits_show_score_and_diff(page: Document) -> None:
    assert "Dev score 0.312 → 0.500, n = 4." in page.text and "Longer replies" in page.text
    spans = [attrs.get("class") for tag, attrs in page.elements if tag == "span"]
    assert spans.count("add") == 4 and spans.count("del") == 3  # two edits of move_search, one on the other task
    assert page.text.count("No edit was accepted") == 2
    assert page.text.count("The retained harness, ") == 4 and seed_harness().source in page.text


def test_diff_lines_are_told_apart_by_place_and_sign() -> None:
    diff = "--- a\n+++ b\n@@ -1 +1 @@\n same\n--- x\n+++ y\n\n"
    assert [c for c, _ in diff_lines(diff)] == ["head", "head", "hunk", "same", "del", "add", "same"]


def test_the_sentence_claims_no_more_than_the_interval(summary: dict[str, Any]) -> None:
    gained, retained, unsure, unmeasured = map(verdict, summary["arms"])
    assert gained.startswith("better than the seed harness on this task (+0.625 [+0.")
    assert gained.endswith("], n=32); 2 of 3 rounds accepted an edit.")
    assert retained == unmeasured == "the seed harness was retained; 0 of 3 rounds accepted an edit."
    assert unsure.startswith("no change can be claimed, the interval includes 0 (+0.000 [−0.")
    lost = copy.deepcopy(summary["arms"][0])
    lost["held_out"]["gain"] = {"mean": -0.5, "low": -0.7, "high": -0.2, "n": 9}
    assert verdict(lost).startswith("worse than the seed harness on this task (−0.500 [−0.700, −0.200], n=9)")
    lost["held_out"]["gain"] = {"mean": None, "low": None, "high": None, "n": 0}
    assert verdict(lost).startswith("no held-out question could be measured")


def test_the_curve_follows_what_was_retained(summary: dict[str, Any]) -> None:
    assert trajectory(summary["arms"][0]["rounds"]) == [0.3125, 0.5, 0.875, 0.875]
    assert trajectory(summary["arms"][1]["rounds"]) == [0.3125] * 4
    assert all(map(math.isnan, trajectory(summary["arms"][3]["rounds"])))
    first, second = figure(summary).axes
    lines = {line.get_color(): list(cast(Any, line.get_ydata())) for line in first.lines}
    assert lines == {COLOURS[0]: [0.3125, 0.5, 0.875, 0.875], COLOURS[1]: [0.3125] * 4}
    dots = [(math.ceil(x), y) for c in first.collections for x, y in cast(Any, c.get_offsets())]
    assert sorted(dots) == [(1, 0.3125), (1, 0.3125), (1, 0.5), (2, 0.3125), (2, 0.5), (2, 0.875), (3, 0.3125)]
    assert first.get_ylabel() == "dev score (n = 4)" and second.get_title(loc="left") == "letter_counting"


def test_counts_of_a_round(summary: dict[str, Any]) -> None:
    second = summary["arms"][0]["rounds"][1]
    assert error_counts(second) == [("no_block", 1), ("no_match", 1)] and failure_counts(second) == [("timeout_cpu", 2)]


def test_the_panels_are_xml_in_the_colours_of_the_page(summary: dict[str, Any]) -> None:
    drawn = panels(summary)
    assert [task for task, _ in drawn] == ["chain_sum?format=tag", "letter_counting"]
    ids: list[str] = []
    for task, svg in drawn:
        root = ElementTree.fromstring(svg)
        words = [e.text for e in root.iter("text")]
        assert root.tag == "svg" and {"move_search", "model <embedded>", task} <= set(words)
        own = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
        used = re.findall(r'(?:href="|url\()#([^")]+)', svg)
        assert used and set(used) <= set(own)
        ids += own
        assert "var(--series-1)" in svg and "currentColor" in svg and INK not in svg and COLOURS[0] not in svg
    assert len(ids) == len(set(ids))


def test_the_figure_can_be_exported(summary: dict[str, Any]) -> None:
    more = {**summary, "arms": [{**summary["arms"][0], "task": f"task {i}"} for i in range(4)]}
    assert [axes.get_title(loc="left") for axes in figure(more).axes] == ["task 0", "task 1", "task 2", "task 3"]
    out = io.BytesIO()
    figure(summary).savefig(out, format="png")
    assert out.getvalue().startswith(b"\x89PNG")


def test_one_selection_over_all_proposals_is_worded_as_such(summary: dict[str, Any]) -> None:
    only = {**summary["arms"][0], "rounds": summary["arms"][0]["rounds"][:1]}
    alone = {**summary, "mode": "independent", "arms": [only]}
    words = " ".join(Document(render_page(alone)).text.split())
    assert "edited by move_search: 4 proposals at once. All of them start from the seed harness" in words
    assert "1 task adapted by 1 proposer" in words


@given(st.text(st.characters(codec=None)))
def test_visible_text_is_printable_and_keeps_printable_text(words: str) -> None:
    shown = text.visible(words)
    assert all(c.isprintable() or c in "\n\t" for c in shown)
    shown.encode()
    if all(c.isprintable() for c in words):
        assert shown == words


def test_durations() -> None:
    shown = [text.duration(s) for s in (4.21, 59.97, 65, 7380)]
    assert shown == ["4.2 s", "1 min 00 s", "1 min 05 s", "2 h 03 min"]


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def browse(path: Path, profile: Path) -> tuple[str, str]:
    """The title of the page once it was laid out, and the lines of the console."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
               "--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=2000"]  # fmt: skip
    command = [BROWSER or "", *options, f"--user-data-dir={profile}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    title = done.stdout.partition("<title>")[2].partition("</title>")[0]
    return title, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_in_a_browser_it_is_silent_and_runs_no_script(tmp_path: Path, summary: dict[str, Any]) -> None:
    path = write_page(tmp_path, summary)
    assert browse(path, tmp_path / "profile") == ("reharness: 2 tasks adapted by 2 proposers", "")
    with path.open("a", encoding="utf-8") as page:
        page.write("<script>document.title = 'hostile'</script>")
    title, console = browse(path, tmp_path / "profile")
    assert title.startswith("reharness") and "Content Security Policy" in console


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_in_a_browser_it_never_scrolls_sideways(tmp_path: Path, summary: dict[str, Any]) -> None:
    summary = copy.deepcopy(summary)
    summary["arms"][0]["proposer"] = "a_name_without_any_place_to_break_that_is_longer_than_a_narrow_screen_is_wide"
    frame = '<iframe srcdoc="{}" style="border:0;width:{}px;height:900px"></iframe>'
    frames = [frame.format(escape(render_page(summary)), width) for width in (340, 400, 1200)]
    script = """<script>onload = () => { document.title = [...document.querySelectorAll("iframe")].map(f =>
        f.contentDocument.documentElement.scrollWidth - f.contentDocument.documentElement.clientWidth) }</script>"""
    path = tmp_path / "frames.html"
    path.write_text("<!doctype html><title></title>" + "".join(frames) + script, encoding="utf-8")
    assert browse(path, tmp_path / "profile") == ("0,0,0", "")
