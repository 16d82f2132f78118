"""The results of an experiment as a page part: a caption that says first what did not work, tables, a figure."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reharness.envs.errors import ConfigError
from reharness.eval.compare import Checked, Comparisons, family_mean, value_table
from reharness.eval.coverage import MIN_FAMILIES
from reharness.eval.render.curve import COLOURS, INK
from reharness.eval.render.sheets import (
    LABELS,
    Sheet,
    chain_sheet,
    comparison_sheet,
    error_sheet,
    legend,
    short_sheet,
    track_sheet,
    with_interval,
)
from reharness.eval.results import TRACKS, Results, Track

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def verdict(name: str, checked: Sequence[Checked]) -> tuple[bool, str]:
    """Whether SFT was shown to read reports in this track, and the sentence that says so, or plainly that it was not:
    it must beat the one move that was best on the training families, and another task's report must cost it something.
    Shown means both an interval above 0 and a corrected exact p of at most .05."""
    found = {c.main.b: c for c in checked if c.main.a == "sft"}
    move, shuffled = found.get("best_single_move"), found.get("sft_shuffled_report")
    if move is None or shuffled is None:
        return False, f"Track {name}: SFT was not measured against the best single move and with another task's report."
    means = move.main.mean, shuffled.main.mean
    if not all(mean.claimed for mean in means):
        return False, f"Track {name}: too few families for any claim ({min(mean.n for mean in means)})."
    better, reads = shown(move), shown(shuffled)
    beats = f"{'beats' if better else 'was not shown to beat'} the best single move ({with_interval(means[0], True)})"
    costs = f"{'costs' if reads else 'was not shown to cost'} it something ({with_interval(means[1], True)})"
    if better and reads:
        return True, f"Track {name}: SFT {beats}, and another task's report {costs}: it reads reports."
    return False, (
        f"Track {name}: SFT {beats}, {'but' if better != reads else 'and'} another task's report {costs}: that it reads"
        " reports was not shown; by this measure it learned a habit."
    )


def shown(checked: Checked) -> bool:
    """Whether the difference was shown to be above 0: by its interval, and by the exact test after correction."""
    return checked.main.mean.above_zero and checked.holm <= 0.05


def caption(comparisons: Comparisons) -> str:
    """One sentence per track by ``verdict``, those that did not work first."""
    sentences = [verdict(name, checked) for name, checked in comparisons.tracks.items()]
    return " ".join(text for _, text in sorted(sentences, key=lambda found: found[0]))


def sheets(results: Results, comparisons: Comparisons, rows: Sequence[str] = ()) -> list[Sheet]:
    """Everything, track by track; ``rows`` picks what is shown, not what is corrected for."""
    made = []
    if comparisons.primary and (not rows or comparisons.primary.main.a in rows):
        in_track = [{e.family for e in results.tracks[t].families} for t in ("F", "R") if t in results.tracks]
        both = len(set.intersection(*in_track)) if len(in_track) == 2 else 0
        title = "Primary comparison: the unit is the family, with the mean of its tracks F and R"
        made.append(comparison_sheet(title, [comparisons.primary], [f"{both} of the families are in both tracks."]))
    for name, track in results.tracks.items():
        made.append(track_sheet(name, track, rows, results.design.get("notes", {}).get(name, ())))
        if shown := [c for c in comparisons.tracks[name] if not rows or c.main.a in rows]:
            made.append(comparison_sheet(f"Track {name}, {TRACKS[name]}: paired differences over families", shown))
        if failed := error_sheet(name, track, rows):
            made.append(failed)
        if results.chains.get(name):
            made.append(chain_sheet(name, results))
    return made


def how_to_read(results: Results, comparisons: Comparisons) -> list[str]:
    """The ``legend`` of everything in ``sheets``."""
    checked = [c for found in comparisons.tracks.values() for c in found]
    families = [len({entry.family for entry in track.families}) for track in results.tracks.values()]
    primary = [comparisons.primary] if comparisons.primary else []
    return legend([*primary, *checked], families, comparisons.tested)


def write_between_markers(path: Path, text: str) -> None:
    """Replaces what is between the two markers of a Markdown file. Raises ``ConfigError`` naming the file without."""
    try:
        old = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); give a file with the lines {BEGIN} and {END}") from None
    parts = re.split(f"({re.escape(BEGIN)}|{re.escape(END)})", old)
    if [p for p in parts if p in (BEGIN, END)] != [BEGIN, END]:
        raise ConfigError(f"{path}: put the lines {BEGIN} and {END} once each, in this order, where the results go")
    path.write_text(f"{parts[0]}{BEGIN}\n{text.strip()}\n{END}{parts[4]}", encoding="utf-8")


def markdown(results: Results, comparisons: Comparisons, picture: str = "") -> str:
    """Caption, picture (its address) and every table."""
    image = [f"![Held-out score of every family, by track and row]({picture})"] if picture else []
    tables = [sheet.markdown() for sheet in sheets(results, comparisons)]
    return "\n\n".join([caption(comparisons), *image, *tables, *how_to_read(results, comparisons)])


def short_markdown(results: Results, comparisons: Comparisons, picture: str = "") -> str:
    """Caption, picture and one table with the main figures of every track."""
    image = [f"![Held-out score of every family, by track and row]({picture})"] if picture else []
    families = [len({entry.family for entry in track.families}) for track in results.tracks.values()]
    parts = [caption(comparisons), *image, short_sheet(results).markdown(), *legend([], families, 0)]
    return "\n\n".join(parts)


def figure(results: Results) -> Figure:
    """A panel per track, a line per row: a point for each family (mean of its proposals, failed edits as the parent),
    the mean over families and its interval."""
    from matplotlib.figure import Figure

    names = [row for row in LABELS if row in {*results.rows, "parent"}]
    columns = len(results.tracks)
    drawn = Figure(figsize=(2.2 + 3.1 * columns, 1.3 + 0.36 * len(names)), layout="constrained", facecolor="white")
    panels = drawn.subplots(1, columns, sharey=True, squeeze=False)[0]
    for axes, (name, track) in zip(panels, results.tracks.items(), strict=True):
        _panel(axes, name, track, names)
    meaning = "held-out score; dots: families (mean of n proposals); diamond: mean over families, with 95 % interval"
    drawn.supxlabel(textwrap.fill(meaning, 56 * columns), fontsize=8, color=INK)
    return drawn


def _panel(axes: Axes, name: str, track: Track, names: Sequence[str]) -> None:
    table = value_table(track)
    n = len({entry.family for entry in track.families})
    for at, row in enumerate(names):
        values = [value for _, value in sorted(table.get(row, {}).items())]
        # Spread over the height of the line in a fixed order, so that equal scores stay countable.
        heights = [at + 0.6 * (0.618034 * (i + 0.5) % 1 - 0.5) for i in range(len(values))]
        colour = COLOURS[at % len(COLOURS)]
        axes.scatter(values, heights, s=13, color=colour, alpha=0.45, linewidths=0, zorder=2, clip_on=False)
        mean = family_mean(table.get(row, {}))
        if mean.claimed:
            axes.plot([mean.low, mean.high], [at, at], color=INK, linewidth=1.8, zorder=3, solid_capstyle="butt")
        axes.plot([mean.mean], [at], marker="D", markersize=5, color=INK, markeredgecolor="white", zorder=4)
    axes.set(xlim=(-0.03, 1.03), ylim=(len(names) - 0.5, -0.5), xticks=[0, 0.25, 0.5, 0.75, 1])
    axes.set_yticks(range(len(names)), [LABELS[row] for row in names])
    few = ", no claim" if n < MIN_FAMILIES else ""
    axes.set_title(f"{name}: {TRACKS[name]} ({n} families{few})", fontsize=9, color=INK, loc="left", fontweight="bold")
    axes.grid(axis="x", color=INK, alpha=0.12, linewidth=0.6)
    axes.tick_params(labelsize=8, colors=INK, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(INK)


def save_figure(results: Results, path: Path) -> list[Path]:
    """Writes the figure as PNG and SVG beside each other (``path`` names either); equal results give equal bytes.

    Raises ``ConfigError`` for another ending or a folder that cannot be written to.
    """
    import matplotlib

    if path.suffix not in (".png", ".svg"):
        raise ConfigError(f"--figure {path}: name a .png or .svg file; both are written")
    written = []
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        out = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "reharness", "svg.fonttype": "none"}):
            figure(results).savefig(out, format=kind, dpi=160, metadata=metadata)
        target = path.with_suffix(f".{kind}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(out.getvalue())
        except OSError as error:
            raise ConfigError(f"{target}: cannot be written ({error.strerror})") from None
        written.append(target)
    return written
