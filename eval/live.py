"""The live table of an adaptation run, and the table printed at its end. Quiet while running when not a terminal."""

from __future__ import annotations

import time
from typing import Any

from rich.box import SIMPLE
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reharness.eval.adapt import Round
from reharness.eval.experiment import AdaptConfig
from reharness.eval.heldout import HeldOut
from reharness.eval.stats import Mean
from reharness.solver.evaluate import Solver
from reharness.solver.outcomes import Scorecard


class LiveTable:
    """A ``Watch``: one row per task and proposer (its latest round), and a line with what is done, rates, tokens paid
    and time. A context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._rows: dict[tuple[str, str], dict[str, str]] = {}
        self._config: AdaptConfig | None = None
        self._solver: Solver | None = None
        self._rounds = self._resumed = 0
        self._start = time.monotonic()
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> LiveTable:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def started(self, config: AdaptConfig, solver: Solver, resumed: int) -> None:
        self._config, self._solver, self._resumed, self._start = config, solver, resumed, time.monotonic()
        if resumed:
            self.console.print(f"going on with a run that holds {resumed} outcomes; none is paid for again")

    def progress(self, proposer: str, task: str, event: Round | Scorecard) -> None:
        row = self._row(task, proposer)
        if isinstance(event, Scorecard):
            row.update(round="seed", retained=f"{event.mean:.3f} (n={event.n})")
            return
        self._rounds += 1
        record = event.record()
        _, retained = event.retained
        row.update(
            round=str(event.number),
            stages="/".join(f"{record[k]:.0%}" for k in ("parsed_share", "applied_share", "ran_share")),
            mean=_number(record["mean_score"]),
            best=_number(record["best_score"]),
            accepted="yes" if event.accepted else "no",
            retained=f"{retained.mean:.3f} (n={retained.n})",
            tokens=str(record["proposal_tokens"]),
            time=f"{event.seconds:.0f} s",
        )

    def done(self, proposer: str, task: str, held: HeldOut) -> None:
        self._row(task, proposer)["held"] = f"{held.seed.mean:.3f} -> {held.final.mean:.3f}"

    def _row(self, task: str, proposer: str) -> dict[str, str]:
        return self._rows.setdefault((task, proposer), dict.fromkeys(_COLUMNS, ""))

    def _render(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for title in ("task", "proposer", *_COLUMNS.values()):
            table.add_column(title)
        for (task, proposer), row in self._rows.items():
            table.add_row(*map(Text, (task, proposer, *row.values())))
        return Group(table, Text(self._status(), style="dim"))

    def _status(self) -> str:
        elapsed = time.monotonic() - self._start
        if self._config is None or self._solver is None:
            return f"starting the sandbox and the engines, {elapsed:.0f} s"
        solver, config = self._solver, self._config
        per_arm = config.rounds if config.mode == "sequential" else 1
        total = per_arm * len(config.tasks) * len(config.proposers)
        left = f", about {elapsed / self._rounds * (total - self._rounds):.0f} s left" if self._rounds else ""
        paid = solver.recorded
        return (
            f"{self._rounds}/{total} rounds; {solver.measured} outcomes measured "
            f"({solver.measured / max(elapsed, 1):.1f}/s), {solver.infra} infra; "
            f"solver paid {paid.paid_calls} calls, {paid.paid_completion_tokens} tokens out; "
            f"{elapsed:.0f} s{left}"
        )


_COLUMNS = {
    "round": "round", "stages": "parse/apply/run", "mean": "mean of n", "best": "best of n", "accepted": "accepted",
    "retained": "retained (dev)", "tokens": "tokens", "time": "time", "held": "held-out",
}  # fmt: skip


def summary_table(summary: dict[str, Any]) -> Table:
    """The held-out result of every arm, with n and interval."""
    table = Table(title="Held-out questions: mean [95 % interval over the questions of that task]", box=SIMPLE)
    for title in ("task, proposer", "n", "seed harness", "retained", "gain"):
        table.add_column(title, overflow="fold")
    for arm in summary["arms"]:
        held = arm["held_out"]
        kept = sum(r["accepted"] is not None for r in arm["rounds"])
        row = (
            f"{arm['task']}\n{arm['proposer']} (an edit kept in {kept} of {len(arm['rounds'])} rounds)",
            str(held["gain"]["n"]),
            _interval(held["seed"]), _interval(held["final"]), _interval(held["gain"], sign=True),
        )  # fmt: skip
        table.add_row(*map(Text, row))
    return table


def _interval(record: dict[str, Any], sign: bool = False) -> str:
    mean = Mean(**record) if record["n"] else None
    if mean is None:
        return "not measured"
    return f"{mean.mean:{'+' if sign else ''}.2f}\n[{mean.low:.2f}, {mean.high:.2f}]"


def _number(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:.3f}"
