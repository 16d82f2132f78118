"""Commands that train a proposer: `reharness train sft` and `reharness train grpo`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

train_app = typer.Typer(no_args_is_help=True, help="Train a proposer.")
console = Console()


@train_app.command()
def sft(
    config: Annotated[Path | None, typer.Option("--config", help="TOML file, e.g. recipes/rg_sft/cpu.toml.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder; the same command goes on in it.")] = None,
    override: Annotated[list[str] | None, typer.Option("--set", help="Override a key, e.g. lora.r=8.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all, print the plan, load no weights.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on in the run folder; it always does.")] = True,
) -> None:
    """Fine-tune a LoRA adapter of the proposer on demonstrations."""
    from reharness.envs.config import load_config
    from reharness.proposer.sft import SftConfig, run_sft

    settings = load_config(SftConfig, config, override or ())
    if dry_run:
        from reharness.proposer.sft_memory import describe

        console.print(_plan_table(describe(settings)))
        return
    folder = out or Path("runs") / f"sft-{settings.digest()[:10]}"
    with SftProgress(console) as watch:
        summary = _until_stopped(lambda: run_sft(settings, folder, watch))
    console.print(
        f"{summary['steps']} steps, {summary['tokens']:,} tokens at {summary['tokens_per_second']}/s,"
        f" {summary['seconds']} s; loss {summary['loss_first']:.3f} -> {summary['loss_last']:.3f}",
        highlight=False,
    )
    console.print(f"adapter: {folder / 'adapter'}\nweights: {summary['weights']}", soft_wrap=True, highlight=False)


@train_app.command()
def grpo(
    config: Annotated[Path | None, typer.Option("--config", help="TOML file, e.g. recipes/rg_grpo/cpu.toml.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder; the same command goes on in it.")] = None,
    override: Annotated[list[str] | None, typer.Option("--set", help="Override a key, e.g. updates=10.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all, print the plan, load no weights.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Refuse to begin: only go on.")] = False,
) -> None:
    """Train an adapter by GRPO: its edits are run, and paid by what they gain."""
    from reharness.envs.config import load_config
    from reharness.envs.errors import LedgerError
    from reharness.proposer.grpo import GrpoConfig, run_grpo

    settings = load_config(GrpoConfig, config, override or ())
    if dry_run:
        from reharness.proposer.grpo_memory import describe

        console.print(_plan_table(describe(settings)))
        return
    folder = out or Path("runs") / f"grpo-{settings.digest()[:10]}"
    if resume and not (folder / "ledger.sqlite").is_file():
        raise LedgerError(f"{folder}: there is nothing to go on from; leave out --resume, or give the run's --out")
    with GrpoProgress(console) as watch:
        summary = _until_stopped(lambda: run_grpo(settings, folder, watch))
    first, last = (f"{x:.3f}" if x is not None else "none" for x in (summary["reward_first"], summary["reward_last"]))
    console.print(
        f"{summary['updates']} updates, {summary['completions']} proposals, {summary['seconds']} s (sampling"
        f" {summary['seconds_sampling']}, judging {summary['seconds_judging']}); mean reward {first} -> {last};"
        f" dead groups {summary['dead_group_ratio']:.0%}, cut off {summary['clipped_ratio']:.1%}",
        highlight=False,
    )
    console.print(f"adapter: {folder / 'adapter'}\nweights: {summary['weights']}", soft_wrap=True, highlight=False)


def _until_stopped(run: Any) -> Any:
    """What ``run`` gives; Ctrl-C is said in a line."""
    try:
        return run()
    except KeyboardInterrupt:
        print("reharness: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        raise typer.Exit(130) from None


class StepProgress:
    """A ``Watch``: one live line with step, what ``told`` says, and time left. Quiet where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = Text("loading")
        self._first: tuple[int, float] | None = None
        self._live = Live(get_renderable=lambda: self._text, console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def __call__(self, row: dict[str, Any], steps: int) -> None:
        now = time.monotonic()
        self._first = self._first or (row["step"] - 1, now - row["seconds"])
        step, since = self._first
        left = (steps - row["step"]) * (now - since) / (row["step"] - step)
        self._text = Text(f"step {row['step']}/{steps}  {self.told(row)}  {left / 60:.1f} min left")
        for warning in row.get("warnings", ()):
            self._console.print(f"update {row['update']}: {warning}", style="yellow", markup=False)

    def told(self, row: dict[str, Any]) -> str:
        raise NotImplementedError


class SftProgress(StepProgress):
    def told(self, row: dict[str, Any]) -> str:
        return f"loss {row['loss']:.3f}  {row['tokens_per_second']:.0f} tokens/s"


class GrpoProgress(StepProgress):
    def told(self, row: dict[str, Any]) -> str:
        if "groups" not in row:
            return f"loss {row['loss']:.3f}"
        reward = f"{row['reward']:.3f}" if "reward" in row else "none"
        tokens = row["tokens/prompt"] + row["tokens/completion"]
        return (
            f"reward {reward}  valid {row['rates/valid']:.0%}  dead groups {row['dead_group_ratio']:.0%}"
            f"  {tokens / row['seconds']:.0f} tokens/s"
        )


def _plan_table(lines: list[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in lines:
        table.add_row(name, Text(text))
    return table
