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
    """Held-out results by task, then every other run and proposer less the first, over the tasks that both have (the
    retained harness's held-out mean; interval and tests are over tasks); and how to read them."""
    retained: dict[str, dict[str, float]] = {}
    lines = []
    for folder in folders:
        for arm in load_summary(folder)["arms"]:
            name, held = f"{folder}, {arm['proposer']}", arm["held_out"]
            mean = held["final"]["mean"]
            retained.setdefault(name, {})[arm["task"]] = math.nan if mean is None else mean
            shown = [f"{score(held[k]['mean'])} {interval(held[k])}" for k in ("seed", "final")]
            gain = f"{signed(held['gain']['mean'])} {interval(held['gain'], sign=True)}"
            lines.append([arm["task"], name, str(held["gain"]["n"]), *shown, gain])
    lines.sort(key=lambda line: line[0])
    title = "Held-out questions: mean [95 % interval over the questions of that task]"
    made = [Sheet(title, ("task", "run, proposer", "n", "seed harness", "retained", "gain"), lines)]
    first, *others = retained
    checked = [Checked(compare(retained, other, first), None, math.nan, math.nan) for other in others]
    if checked:
        sheet = comparison_sheet("Retained harness, held-out: paired differences over tasks", checked)
        kept = [i for i, column in enumerate(sheet.columns) if column not in ("Holm p", "failed as 0 / left out")]
        rows = [[row[i] for i in kept] for row in sheet.rows]
        made.append(Sheet(sheet.title, [sheet.columns[i].replace("families", "tasks") for i in kept], rows))
    return made, legend(checked, [], 0)
