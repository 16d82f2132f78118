"""The committed table of the audit: which families may be trained on, and why the others may not.

`data/rg_audit.json` is made by `audit`; docs/audit.md is the same to read.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from reharness.envs.cache import write_atomically
from reharness.envs.errors import TaskError
from reharness.envs.reasoning_gym import family_of, rg_version

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AuditRow:
    """What the audit found about one task. Shares are of items scored above .98 ("exactly"); means are of the
    scorer's own partial credit. Each names the best answer of its kind."""

    task: str
    status: Literal["ok", "fails", "not audited"]
    trainable: bool
    """With exact scoring: status ok."""
    trainable_raw: bool
    """With the family's own partial credit too: no junk has a mean score of .15."""
    why: str
    """Every reason against, in words; "" when there is none."""
    items: int = 0
    gold: float | None = None
    """Lowest score of a gold answer."""
    gold_from: Literal["stored", "constructed", "none"] = "none"
    nonsense: float = 0.0
    nonsense_answer: str = ""
    constant: float = 0.0
    constant_answer: str = ""
    echo: float = 0.0
    echo_answer: str = ""
    shotgun: float = 0.0
    shotgun_answer: str = ""
    crowd: float = 0.0
    """Share on which the gold *beside a wrong answer* scores. Reported only: to write it one must know the gold."""
    crowd_answer: str = ""
    raw: float = 0.0
    """Highest mean partial credit of any nonsense, constant, echo or shotgun."""
    raw_answer: str = ""
    raises: tuple[str, ...] = ()
    """Nonsense on which the package's own scorer raised or took over 5 CPU seconds; it scores 0 here."""
    hash_stable: bool | None = None
    """Whether the items are the same under another PYTHONHASHSEED (they are frozen under 0 in any case)."""
    repeats: bool | None = None
    """Whether the same seed makes the same items again, under the same PYTHONHASHSEED."""
    unfit_formats: tuple[str, ...] = ()
    """Formats that cannot hold some gold of the family."""


def write_table(rows: Sequence[AuditRow], table: Path, page: Path) -> None:
    """Write the rows as JSON (``table``, one row a line) and as a page to read (``page``)."""
    lines = ",\n".join(json.dumps(asdict(row), ensure_ascii=True) for row in rows)
    head = json.dumps({"reasoning_gym": rg_version(), "items": max(r.items for r in rows)})[1:-1]
    write_atomically(table, f'{{{head}, "rows": [\n{lines}\n]}}\n')
    write_atomically(page, markdown(rows))


@functools.cache
def load_table() -> Mapping[str, AuditRow]:
    """The committed table: ``{task name: row}``. Warns when it was made for another version of reasoning-gym."""
    data = json.loads(resources.files("reharness.envs").joinpath("data/rg_audit.json").read_text(encoding="utf-8"))
    if data["reasoning_gym"] != rg_version():
        log.warning(
            "the committed audit is of reasoning-gym %s, installed is %s; run `reharness audit`",
            data["reasoning_gym"],
            rg_version(),
        )
    rows: list[dict[str, Any]] = data["rows"]
    for row in rows:
        row.update({k: tuple(v) for k, v in row.items() if isinstance(v, list)})
    return {row["task"]: AuditRow(**row) for row in rows}


def trainable_families(raw: bool = False) -> list[str]:
    """Families that may be trained on with exact scoring (``raw``: with the family's partial credit too)."""
    rows = load_table().values()
    return sorted(r.task.removeprefix("rg/") for r in rows if (r.trainable_raw if raw else r.trainable))


def format_fits(task: str, form: str) -> bool:
    """Whether the format can hold the answers of the task, by the committed table (True for tasks not in it)."""
    row = load_table().get(task if task.startswith("rg/") else f"rg/{task}")
    return row is None or form not in row.unfit_formats


def require_trainable(names: Iterable[str], raw: bool = False) -> None:
    """Raise TaskError naming each family that may not be trained on with exact scoring (``raw``: with the family's
    partial credit), and why."""
    table = load_table()
    refused = []
    for name in names:
        row = table.get(f"rg/{family_of(name)}")
        if row is None or not row.trainable:
            refused.append(f"{name}: {row.why if row else 'not in the audit'}")
        elif raw and not row.trainable_raw:
            refused.append(f"{name}: partial credit pays {row.raw_answer} {row.raw:.2f} on average; use exact=true")
    if refused:
        raise TaskError("not to be trained on by the audit: " + "; ".join(refused))


_INTRO = """# Audit of the Reasoning Gym scorers

Made by `reharness audit --write` on reasoning-gym {version}, {items} items of each family at its default difficulty,
frozen under seed 0. A share is of items that score above .98. *Gold*: the lowest score of a right answer (c:
constructed, because none is stored). *Nonsense*: the best of {nonsense} texts that answer nothing. *Constant*: the best
fixed answer, the commonest golds included. *Echo*: the best piece copied out of the question. *Shotgun*: all
golds of the other items at once. *Crowd*: the gold beside a wrong answer (reported only: to write it one must know the
gold). *Partial*: the highest mean of the family's own partial credit that one answer of the first four kinds earns.

A family **fails** when gold scores below .98, when nonsense scores on more than 5 % of items, when a constant, an echo
or a shotgun scores on 15 % or more, or when its seed does not make the same items again. Only families that are **ok**
are trained on, with exact scoring; with partial credit also only those whose *Partial* is below .15 ("also partial").

Of {total} families {ok} are ok, {fails} fail, {rest} could not be audited.

| family | status | trains | gold | nonsense | constant | echo | shotgun | crowd | partial | why not, and notes |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def markdown(rows: Sequence[AuditRow]) -> str:
    """The page of the table."""
    from reharness.envs.audit_panel import NONSENSE

    count = {s: sum(r.status == s for r in rows) for s in ("ok", "fails", "not audited")}
    text = _INTRO.format(
        version=rg_version(),
        items=max((r.items for r in rows), default=0),
        nonsense=len(NONSENSE),
        total=len(rows),
        ok=count["ok"],
        fails=count["fails"],
        rest=count["not audited"],
    )
    return text + "".join(_markdown_row(r) for r in rows)


def _markdown_row(row: AuditRow) -> str:
    notes = [row.why] if row.why else []
    if row.raises:
        notes.append(f"the package's scorer raises on {', '.join(row.raises)} (0 here)")
    if row.hash_stable is False and row.repeats:
        notes.append("items depend on PYTHONHASHSEED")
    if row.unfit_formats:
        notes.append(f"does not fit {', '.join(row.unfit_formats)}")
    trains = "yes, also partial" if row.trainable_raw else "yes" if row.trainable else "no"
    gold = "–" if row.gold is None else f"{row.gold:g}{' c' if row.gold_from == 'constructed' else ''}"
    numbers = (row.nonsense, row.constant, row.echo, row.shotgun, row.crowd, row.raw)
    shares = [f"{v:.2f}" if row.items else "–" for v in numbers]
    cells = [row.task.removeprefix("rg/"), row.status, trains, gold, *shares, "; ".join(notes).replace("|", "\\|")]
    return f"| {' | '.join(cells)} |\n".replace("`", "'")
