"""The page of an adaptation run: one HTML file that opens from disk, without network and without scripts.

Descriptions, diffs and harnesses in it were written by language models. They are hostile input: everything printed is
escaped (autoescape), unseen characters are shown as escapes, and a content security policy allows nothing but the
page's own style.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from reharness.envs.errors import LedgerError
from reharness.eval.render import text
from reharness.eval.render.curve import accepted_edit, by_task_and_proposers, panels

Record = Mapping[str, Any]


def write_page(folder: Path, summary: Record) -> Path:
    """Writes ``folder/report.html`` from the summary of ``run_adapt`` (aside, then renamed) and returns its path.

    Raises ``LedgerError`` when the folder cannot be written to.
    """
    target = folder / "report.html"
    aside = folder / "report.html.part"
    page = render_page(summary)
    try:
        aside.write_text(page, encoding="utf-8", newline="\n")
        aside.replace(target)
    except OSError as error:
        raise LedgerError(f"{target}: cannot be written ({error.strerror}); choose a folder you can write to") from None
    return target


def render_page(summary: Record) -> str:
    """The page's HTML. Equal summaries give equal text."""
    by_task, _ = by_task_and_proposers(summary)
    arms = [arm for group in by_task.values() for arm in group]
    return _template().render(
        summary=summary,
        arms=arms,
        title=f"{_number(arms, 'task')} adapted by {_number(arms, 'proposer')}",
        lead=_lead(summary),
        verdicts=[(arm["proposer"], arm["task"], verdict(arm)) for arm in arms],
        lost=sum(arm["held_out"]["infra"] for arm in arms),
        panels=[Markup(svg) for _, svg in panels(summary)],
    )


def verdict(arm: Record) -> str:
    """One plain sentence on one task and proposer: what the held-out questions say, and what they do not."""
    gain, kept = arm["held_out"]["gain"], sum(r["accepted"] is not None for r in arm["rounds"])
    edits = f"{kept} of {text.count(len(arm['rounds']), 'round')} accepted an edit"
    if arm["final_harness"] == arm["seed_harness"]:
        return f"the seed harness was retained; {edits}."
    if not gain["n"]:
        return f"no held-out question could be measured; {edits}."
    if gain["low"] <= 0 <= gain["high"]:
        reading = "no change can be claimed, the interval includes 0"
    else:
        reading = f"{'better' if gain['low'] > 0 else 'worse'} than the seed harness on this task"
    change = f"{text.signed(gain['mean'])} {text.interval(gain, sign=True)}, n={gain['n']}"
    return f"{reading} ({change}); {edits}."


def error_counts(round_: Record) -> list[tuple[str, int]]:
    """Why proposals of a round gave no candidate, by kind, the most frequent first."""
    return _ranked(Counter(j["status"] for j in round_["judged"] if j["status"] != "ran"))


def failure_counts(round_: Record) -> list[tuple[str, int]]:
    """How runs of a round's candidates failed, by kind, the most frequent first (one proposal has many runs)."""
    return _ranked(sum((Counter(j["failures"]) for j in round_["judged"]), Counter[str]()))


def diff_lines(diff: str) -> list[tuple[str, str]]:
    """(class, line) of a unified diff; the class is ``head``, ``hunk``, ``add``, ``del`` or ``same``."""
    classes = {"@": "hunk", "+": "add", "-": "del"}
    lines = diff.removesuffix("\n").split("\n")
    # Only the first two lines name files: further down, `--- x` is a removed line `-- x`.
    return [("head" if i < 2 else classes.get(line[:1], "same"), line) for i, line in enumerate(lines)]


def _ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _number(arms: list[Record], key: str) -> str:
    return text.count(len({arm[key] for arm in arms}), key)


def _lead(summary: Record) -> str:
    arms = summary["arms"]
    by_task, proposers = by_task_and_proposers(summary)
    rounds, n = len(arms[0]["rounds"]), text.count(arms[0]["rounds"][0]["proposals"], "proposal")
    if summary["mode"] == "sequential":
        how = f"{text.count(rounds, 'round')} of {n}. Each round starts from the harness retained so far"
    else:
        how = f"{n} at once. All of them start from the seed harness, and one selection is made at the end"
    whom = text.listed(proposers) if len(proposers) == 1 else f"each of {text.listed(proposers)}"
    return f"The harness of {text.listed(list(by_task))} was edited by {whom}: {how}."


@cache
def _template() -> Template:
    files = resources.files("reharness.eval.render")
    read = {name: files.joinpath(name).read_text(encoding="utf-8") for name in ("page.html.j2", "page.css")}
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else text.visible(str(value)),
    )  # fmt: skip
    environment.filters |= {
        f.__name__: f
        for f in (text.score, text.cell, text.signed, text.interval, text.share, text.count, text.duration,
                  error_counts, failure_counts, diff_lines)
    }  # fmt: skip
    environment.globals |= {"accepted_edit": accepted_edit, "css": Markup(read["page.css"])}
    return environment.from_string(read["page.html.j2"])
