"""Commands about results: `reharness compare` and `reharness stats`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reharness.envs.errors import ConfigError, UnknownNameError

console = Console()
stats_app = typer.Typer(no_args_is_help=True, help="What an interval covers, and what a design can find.")


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.command()(compare)
    app.add_typer(stats_app, name="stats")


def compare(
    results: Annotated[list[Path], typer.Argument(help="Results file of an experiment; or folders of adapt runs.")],
    rows: Annotated[str, typer.Option(help="Only these rows, e.g. sft,untrained.")] = "",
    track: Annotated[str, typer.Option(help="Only this track: S, F or R.")] = "",
    baseline: Annotated[list[str] | None, typer.Option(help="Compare with this row too; repeatable.")] = None,
    without_constant_paying: Annotated[
        bool, typer.Option("--without-constant-paying", help="Leave out families that a constant answer scores on.")
    ] = False,
    write: Annotated[Path | None, typer.Option(help="Markdown file: put it between its result markers.")] = None,
    short: Annotated[bool, typer.Option("--short", help="With --write: one table with the main figures.")] = False,
    figure: Annotated[Path | None, typer.Option(help="Write the figure here, as .png and .svg.")] = None,
) -> None:
    """Compare the rows of an experiment over families: means with intervals, paired tests, what did not work first."""
    from reharness.eval.compare import compare_all, only_without_constant_paying
    from reharness.eval.render.results import (
        caption,
        how_to_read,
        markdown,
        save_figure,
        sheets,
        short_markdown,
        write_between_markers,
    )  # fmt: skip
    from reharness.eval.results import load_results

    filtered = bool(rows or track or baseline or without_constant_paying)
    if folders := [path for path in results if path.is_dir()]:
        if filtered or write or figure or len(folders) < len(results):
            raise ConfigError("compare takes one results file with options, or folders of runs without options")
        return _compare_runs(folders)
    if len(results) > 1:
        raise ConfigError(f"{results[1]}: compare takes one results file, or folders of runs")
    loaded = load_results(results[0])
    wanted = [name.strip() for name in rows.split(",") if name.strip()]
    for kind, names, valid in (("row", wanted, ["parent", *loaded.rows]), ("track", [track], ["", *loaded.tracks])):
        if unknown := [name for name in names if name not in valid]:
            raise UnknownNameError(kind, unknown[0], [v for v in valid if v], str(results[0]))
    if (write or figure) and filtered:
        raise ConfigError("--write and --figure take the whole file; leave out --rows, --track, --baseline and"
                          " --without-constant-paying")  # fmt: skip
    if short and not write:
        raise ConfigError("--short goes with --write")
    if without_constant_paying:
        loaded = only_without_constant_paying(loaded)
    comparisons = compare_all(loaded, baseline or ())
    if write or figure:
        drawn = save_figure(loaded, figure)[0] if figure else None
        if drawn:
            console.print(f"figure: {drawn} and {drawn.with_suffix('.svg')}", soft_wrap=True)
        if write:
            picture = Path(os.path.relpath(drawn, write.parent)).as_posix() if drawn else ""
            form = short_markdown if short else markdown
            write_between_markers(write, form(loaded, comparisons, picture))
            console.print(f"results: {write}", soft_wrap=True)
        return None
    if track:
        loaded = loaded.model_copy(update={"tracks": {t: v for t, v in loaded.tracks.items() if t == track}})
        shown = {t: v for t, v in comparisons.tracks.items() if t == track}
        comparisons = replace(comparisons, primary=None, tracks=shown)
    console.print(caption(comparisons), markup=False, highlight=False)
    for sheet in sheets(loaded, comparisons, wanted):
        console.print(sheet.rich())
    for note in how_to_read(loaded, comparisons):
        console.print(note, markup=False, highlight=False)


def _compare_runs(folders: list[Path]) -> None:
    from reharness.eval.render.runs import run_sheets

    made, notes = run_sheets(folders)
    for sheet in made:
        console.print(sheet.rich())
    for note in notes:
        console.print(note, markup=False, highlight=False)


@stats_app.command()
def coverage(n: Annotated[list[int], typer.Option("--n", min=2, max=1000, help="Families; repeatable.")]) -> None:
    """Simulate what nominal 95 % intervals over n families really cover, with normal, skewed and sparse effects."""
    from reharness.eval.coverage import EFFECTS, METHODS, headline, simulate_coverage
    from reharness.eval.render.sheets import Sheet

    lines = []
    for k in n:
        for method in METHODS:
            covered = [f"{simulate_coverage(k, method, effects):.1%}" for effects in EFFECTS]
            lines.append([f"{k}, {method}", *covered, "shown in tables" if headline(k)[0] == method else ""])
    notes = ["4,000 simulated experiments each (standard error at most 0.8 points); skewed: log-normal, skewness 6.2;"
             " sparse: 0 in 7 families of 10, uniform from .1 to 1 in the others"]  # fmt: skip
    columns = ("n, method", *EFFECTS, "")
    console.print(Sheet("Coverage of nominal 95 % intervals", columns, lines, notes).rich())


@stats_app.command()
def design(
    n: Annotated[int, typer.Option("--n", min=2, help="Families.")],
    sd: Annotated[float, typer.Option(min=1e-9, help="Standard deviation of the differences over families.")] = 0.1,
    effect: Annotated[float, typer.Option(help="Mean difference whose power is asked.")] = 0.05,
) -> None:
    """Say what a paired comparison over n families can find."""
    from reharness.eval.stats import minimum_detectable_effect, power, smallest_p

    found = minimum_detectable_effect(n, sd)
    console.print(
        f"n = {n} families, sd {sd:g}: smallest difference found with 80 % power {found:.3f};"
        f" power for {effect:+g} {power(effect, sd, n):.0%}; smallest exact two-sided p {smallest_p(n):.2g}",
        highlight=False,
    )


@stats_app.command()
def selection(
    p: Annotated[float, typer.Option("--p", min=0, max=1, help="Chance to solve a question.")] = 0.3,
    questions: Annotated[int, typer.Option(min=1, max=100_000, help="Dev questions.")] = 16,
    candidates: Annotated[int, typer.Option(min=1, max=100_000, help="Candidates as good as their parent.")] = 8,
) -> None:
    """Say how often the best of candidates that change nothing looks better than its parent."""
    from reharness.eval.stats import false_acceptance

    chance, gain = false_acceptance(p, questions, candidates)
    console.print(
        f"p = {p:g}, {questions} questions, best of {candidates}: false acceptance {chance:.0%},"
        f" apparent gain {gain:+.3f}",
        highlight=False,
    )
