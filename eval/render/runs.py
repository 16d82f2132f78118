"""Runs of `reharness adapt` beside each other: held-out tables, and paired differences over the tasks they share."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reharness.envs.errors import ConfigError
from reharness.eval.compare import Checked, compare
from reharness.eval.render.sheets import Sheet, comparison_sheet, legend
from reharness.eval.render.text import interval, score, signed
from reharness.eval.stats import holm


def load_summary(folder: Path) -> dict[str, Any]:
    """``summary.json`` of a run folder. Raises ``ConfigError`` where there is none that can be read."""
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); name the folder of a finished run") from None
    if not isinstance(summary, dict) or "arms" not in summary:
        raise ConfigError(f"{path}: is not the summary of an adaptation run")
    return summary


def run_sheets(folders: Sequence[Path]) -> tuple[list[Sheet], list[str]]:
    """Held-out results by task, then every other run and proposer less the first, over the families that both have (the
    retained harness's held-out mean, averaged over a family's tasks; interval and tests are over families); and how to
    read them. Raises ``ConfigError`` when two runs asked a task's harness other questions, or had another solver."""
    retained: dict[str, dict[str, list[float]]] = {}
    asked: dict[str, tuple[Path, str, str]] = {}
    lines = []
    for folder in folders:
        summary = load_summary(folder)
        for arm in summary["arms"]:
            name, held = f"{folder}, {arm['proposer']}", arm["held_out"]
            _same(asked, arm["task"], (folder, arm.get("questions", ""), summary["solver"]["weights"]))
            mean = held["final"]["mean"]
            family = arm["task"].partition("?")[0]
            retained.setdefault(name, {}).setdefault(family, []).append(math.nan if mean is None else mean)
            shown = [f"{score(held[k]['mean'])} {interval(held[k])}" for k in ("seed", "final")]
            gain = f"{signed(held['gain']['mean'])} {interval(held['gain'], sign=True)}"
            lines.append([arm["task"], name, str(held["gain"]["n"]), *shown, gain])
    lines.sort(key=lambda line: line[0])
    title = "Held-out questions: mean [95 % interval over the questions of that task]"
    made = [Sheet(title, ("task", "run, proposer", "n", "seed harness", "retained", "gain"), lines)]
    means = {name: {f: sum(own) / len(own) for f, own in found.items()} for name, found in retained.items()}
    first, *others = means
    compared = [compare(means, other, first) for other in others]
    claimed = [c for c in compared if c.mean.claimed]
    corrected = dict(zip(map(id, claimed), holm([c.p for c in claimed]), strict=True))
    checked = [Checked(c, None, math.nan, math.nan, corrected.get(id(c), math.nan)) for c in compared]
    if checked:
        sheet = comparison_sheet("Retained harness, held-out: paired differences over families", checked)
        dropped = {"failed as 0 / left out", *(() if len(claimed) > 1 else ("Holm p",))}
        kept = [i for i, column in enumerate(sheet.columns) if column not in dropped]
        rows = [[row[i] for i in kept] for row in sheet.rows]
        made.append(Sheet(sheet.title, [sheet.columns[i] for i in kept], rows))
    return made, legend(checked, [], 0)


def _same(asked: dict[str, tuple[Path, str, str]], task: str, now: tuple[Path, str, str]) -> None:
    before = asked.setdefault(task, now)
    for what, was, found in zip(("questions", "solver weights"), before[1:], now[1:], strict=True):
        if was != found:
            raise ConfigError(
                f"{before[0]} and {now[0]}: {task} had other {what} ({was[:12] or 'not noted'} and"
                f" {found[:12] or 'not noted'}); compare runs of one solver, seed and numbers of questions"
            )
