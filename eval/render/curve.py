"""The curve over rounds: small multiples of the retained harness's dev score, one panel per task.

``figure`` is for export (PNG, SVG, PDF); ``panels`` gives the same drawing as SVG elements for a page, in the page's
own colours. Drawn through matplotlib's object API, so no global figure or backend is touched.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings
from xml.etree import ElementTree

from reharness.eval.render.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart under the common kinds of colour blindness and at least 3:1 on white; dashes and markers say the same.
COLOURS = ("#0072b2", "#c4500a", "#007a5a", "#a8457f", "#806000", "#4a4a4a")
DASHES = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
MARKERS = "osD^v"
INK = "#1b1b1a"

ByTask = Mapping[str, Sequence[Mapping[str, Any]]]


def accepted_edit(round_: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The judged proposal that a round accepted (the first, where several gave the same harness), or None."""
    if round_["accepted"] is None:
        return None
    return next(j for j in round_["judged"] if j["candidate"] == round_["accepted"])


def trajectory(rounds: Sequence[Mapping[str, Any]]) -> list[float]:
    """Dev score of the harness retained after round 0 (the seed), 1, 2, ...; NaN where it was not measured."""
    after = [taken["score"] if (taken := accepted_edit(r)) else r["parent_score"] for r in rounds]
    return [math.nan if score is None else score for score in (rounds[0]["parent_score"], *after)]


def figure(summary: Mapping[str, Any]) -> Figure:
    """The small multiples of a summary of ``run_adapt``, at most three panels in a row. Save it with any of
    matplotlib's formats: ``figure(summary).savefig("curve.svg")``."""
    by_task, proposers = by_task_and_proposers(summary)
    return _draw(by_task, proposers)


def panels(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(task, ``<svg>`` element) for each task. Text is ``currentColor``; the colours of the proposers are the CSS
    variables ``--series-0`` ... ``--series-5``. Equal summaries give equal bytes."""
    by_task, proposers = by_task_and_proposers(summary)
    return [(task, _svg(_draw({task: arms}, proposers), task, i)) for i, (task, arms) in enumerate(by_task.items())]


def by_task_and_proposers(summary: Mapping[str, Any]) -> tuple[dict[str, list[Mapping[str, Any]]], list[str]]:
    """The arms by task, and the proposers, both in the order in which they first come."""
    by_task: dict[str, list[Mapping[str, Any]]] = {}
    for arm in summary["arms"]:
        by_task.setdefault(arm["task"], []).append(arm)
    return by_task, list(dict.fromkeys(arm["proposer"] for arm in summary["arms"]))


def _draw(by_task: ByTask, proposers: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = min(3, len(by_task))
    rows = math.ceil(len(by_task) / columns)
    legend_rows = math.ceil(len(proposers) / (2 * columns))
    drawn = Figure(figsize=(3.5 * columns, 2.6 * rows + 0.2 * legend_rows), layout="constrained")
    grid = list(drawn.subplots(rows, columns, squeeze=False).flat)
    for axes, (task, arms) in zip(grid, by_task.items(), strict=False):
        _panel(axes, task, arms, proposers)
    for axes in grid[len(by_task) :]:
        axes.remove()
    handles = [Line2D([], [], label=visible(p), **_style(i)) for i, p in enumerate(proposers)]
    legend = drawn.legend(
        handles=handles, labels=[str(h.get_label()) for h in handles], loc="outside lower center",
        ncols=2 * columns, frameon=False, fontsize=8, labelcolor=INK, handlelength=3.2,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
    return drawn


def _panel(axes: Axes, task: str, arms: Sequence[Mapping[str, Any]], proposers: Sequence[str]) -> None:
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    last = max(len(arm["rounds"]) for arm in arms)
    for arm in arms:
        index = proposers.index(arm["proposer"])
        # Side by side, so that proposers with equal scores do not hide each other.
        shift = 0.07 * (index - (len(proposers) - 1) / 2) / max(1, (len(proposers) - 1) / 2)
        scores = trajectory(arm["rounds"])
        axes.plot([t + shift for t in range(len(scores))], scores, zorder=3, **_style(index))
        # The candidates of a round lie before it: the line meets the round where one of them was retained.
        for r in arm["rounds"]:
            ran = [j["score"] for j in r["judged"] if j["score"] is not None]
            where = [r["round"] - 0.25 + shift] * len(ran)
            axes.scatter(where, ran, s=14, color=COLOURS[index % len(COLOURS)], alpha=0.4, linewidths=0)
    axes.set(xlim=(-0.3, last + 0.3), ylim=(-0.03, 1.03), xticks=_ticks(last), yticks=[0, 0.25, 0.5, 0.75, 1])
    n = arms[0]["rounds"][0]["n_score"]
    title = axes.set_title(textwrap.fill(visible(task), 34), fontsize=9, color=INK, loc="left", parse_math=False)
    title.set_fontweight("bold")
    axes.set_xlabel("round (0 is the seed harness)", fontsize=8, color=INK)
    axes.set_ylabel(f"dev score (n = {n})", fontsize=8, color=INK)
    axes.tick_params(labelsize=8, colors=INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)


def _style(index: int) -> dict[str, Any]:
    return {
        "color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)], "linewidth": 1.6, "markersize": 4.5,
    }  # fmt: skip


def _ticks(last: int) -> list[int]:
    """Whole rounds, at most about ten of them."""
    return list(range(0, last + 1, max(1, math.ceil(last / 10))))


def _svg(drawn: Figure, task: str, number: int) -> str:
    """An SVG element without XML namespaces (HTML needs none), without fixed size, with ids of its own in the page."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"reharness {number}"}), catch_warnings():
        # The browser draws the text: it need not be in matplotlib's font.
        filterwarnings("ignore", "Glyph .* missing from font")
        drawn.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(out.getvalue())
    for unwanted in [e for e in root if e.tag.endswith("metadata")]:
        root.remove(unwanted)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        for name, value in element.attrib.items():
            if name == "id":
                element.attrib[name] = f"p{number}-{value}"
            elif name == "href":
                element.attrib[name] = value.replace("#", f"#p{number}-")
            else:
                element.attrib[name] = _page_colours(value).replace("url(#", f"url(#p{number}-")
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": f"Dev score over rounds, {visible(task)}"}
    return ElementTree.tostring(root, encoding="unicode")


def _page_colours(value: str) -> str:
    value = value.replace(INK, "currentColor")
    for i, colour in enumerate(COLOURS):
        value = value.replace(colour, f"var(--series-{i})")
    return value
