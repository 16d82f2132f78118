"""Commands that train a proposer: `reharness train sft`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

train_app = typer.Typer(no_args_is_help=True, help="Train a proposer on demonstrations.")
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
        console.print(_plan_table(settings))
        return
    folder = out or Path("runs") / f"sft-{settings.digest()[:10]}"
    with SftProgress(console) as watch:
        try:
            summary = run_sft(settings, folder, watch)
        except KeyboardInterrupt:
            print("reharness: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
            raise typer.Exit(130) from None
    console.print(
        f"{summary['steps']} steps, {summary['tokens']:,} tokens at {summary['tokens_per_second']}/s,"
        f" {summary['seconds']} s; loss {summary['loss_first']:.3f} -> {summary['loss_last']:.3f}",
        highlight=False,
    )
    console.print(f"adapter: {folder / 'adapter'}\nweights: {summary['weights']}", soft_wrap=True, highlight=False)


class SftProgress:
    """A ``Watch``: one live line with step, loss, rate and time left. Quiet where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = Text("loading")
        self._first: tuple[int, float] | None = None
        self._live = Live(get_renderable=lambda: self._text, console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> SftProgress:
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
        self._text = Text(
            f"step {row['step']}/{steps}  loss {row['loss']:.3f}  {row['tokens_per_second']:.0f} tokens/s"
            f"  {left / 60:.1f} min left"
        )


def _plan_table(settings: Any) -> Table:
    from reharness.proposer.sft_memory import describe

    table = Table(box=None, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in describe(settings):
        table.add_row(name, Text(text))
    return table
