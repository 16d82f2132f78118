"""`reharness demos` and `reharness contexts`: the searches, with their progress and a line of what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def demos(
    rows: Annotated[Path, typer.Option("--rows", help="JSONL file to write.")] = Path("demos.jsonl"),
    config: Annotated[Path | None, typer.Option("--config", help="TOML file with the configuration.")] = None,
    override: Annotated[list[str] | None, typer.Option("--set", help="Override a key, e.g. per_format=4.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder; the same command goes on there.")] = None,
) -> None:
    """Let a teacher edit harnesses of the training families, and keep the edits that raise the score."""
    from reharness.envs.config import load_config
    from reharness.proposer.demos import DemosConfig, run_demos

    settings = load_config(DemosConfig, config, override or ())
    _search("demonstrations", settings, run_demos, rows, out or Path("runs") / f"demos-{settings.digest()[:10]}")


def contexts(
    rows: Annotated[Path, typer.Option("--rows", help="JSONL file to write.")] = Path("contexts.jsonl"),
    config: Annotated[Path | None, typer.Option("--config", help="TOML file with the configuration.")] = None,
    override: Annotated[list[str] | None, typer.Option("--set", help="Override a key, e.g. highest=0.5.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder; the same command goes on there.")] = None,
) -> None:
    """Measure parents of the training families, and keep the contexts that an edit can gain something in: for GRPO."""
    from reharness.envs.config import load_config
    from reharness.proposer.contexts import ContextsConfig, run_contexts

    settings = load_config(ContextsConfig, config, override or ())
    _search("contexts", settings, run_contexts, rows, out or Path("runs") / f"contexts-{settings.digest()[:10]}")


def _search(what: str, settings: Any, run: Any, rows: Path, out: Path) -> None:
    from reharness.recipes.cli import finish

    console = Console()
    with SearchProgress(console, what) as watch:
        summary = finish(run(settings, out, rows, watch))
    for track, counts in summary["starts"].items():
        if counts:
            console.print(f"track {track}: " + ", ".join(f"{n} {why}" for why, n in counts.items()), highlight=False)
    left = f" ({summary['left_out']} left out to keep the shares)" if summary.get("left_out") else ""
    console.print(f"{summary['rows']} {what}{left}: {rows}\n{cost(summary['paid'])}", highlight=False, soft_wrap=True)


def cost(paid: dict[str, Any]) -> str:
    """What was newly paid for, in words."""
    engines = [
        f"{paid[f'{who}_calls']} {who} calls, {paid[f'{who}_prompt_tokens']} tokens in,"
        f" {paid[f'{who}_completion_tokens']} out"
        for who in ("solver", "teacher")
        if f"{who}_calls" in paid
    ]
    return "; ".join([f"paid in this start: {paid['runs']} runs", *engines])


class SearchProgress:
    """Contexts done and kept, runs and solver tokens so far, time left; nothing where there is no terminal."""

    def __init__(self, console: Console, what: str) -> None:
        self.progress = Progress(
            TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self.task = self.progress.add_task("", total=None, said="")
        self.solver: Any = None
        self.kept = 0

    def __enter__(self) -> SearchProgress:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def started(self, starts: int, solver: Any, teacher: Any) -> None:
        self.solver = solver
        self.progress.update(self.task, total=starts)

    def searched(self, done: Any) -> None:
        self.kept += done.why == "kept"
        tokens = self.solver.recorded.paid_completion_tokens
        said = f"{self.kept} kept, {self.solver.measured} runs, {tokens} solver tokens"
        self.progress.update(self.task, advance=1, said=said)
