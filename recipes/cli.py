"""The command line: adapt, run, tasks, audit, doctor, demo. Input is checked before anything is paid for."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reharness.envs.errors import ConfigError, InfraLimitError, ReharnessError, UnknownNameError
from reharness.eval.render.text import visible
from reharness.recipes import cli_search, cli_stats
from reharness.recipes.cli_train import train_app
from reharness.recipes.micro_rg.cli import micro_app

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
cli_stats.register(app)
app.add_typer(train_app, name="train")
app.command()(cli_search.demos)
app.command()(cli_search.contexts)
app.add_typer(micro_app, name="micro-rg")
console = Console()

T = TypeVar("T")
Set = Annotated[list[str] | None, typer.Option("--set", help="Override a configuration key, e.g. budgets.llm_calls=8.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file with the configuration.")]
Solver = Annotated[str | None, typer.Option(help="embedded, or e.g. 'endpoint?url=http://localhost:8000/v1&model=name'.")]
Out = Annotated[Path | None, typer.Option("--out", help="Run folder; the same command goes on where it stopped.")]


@app.command()
def adapt(
    tasks: Annotated[list[str] | None, typer.Argument(help="Names, e.g. chain_sum or 'chain_sum?format=tag'.")] = None,
    proposer: Annotated[list[str] | None, typer.Option(help="move_search, … or 'transformers?adapter=FOLDER'.")] = None,
    harness: Annotated[str | None, typer.Option(help="Harness file to start from; default: the seed harness.")] = None,
    mode: Annotated[str | None, typer.Option(help="sequential or independent.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds per task.")] = None,
    proposals: Annotated[int | None, typer.Option(help="Proposals per round.")] = None,
    dev: Annotated[int | None, typer.Option(help="Dev questions per task (report, scoring, selection).")] = None,
    held_out: Annotated[int | None, typer.Option(help="Held-out questions per task.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the questions.")] = None,
    solver: Solver = None,
    config: ConfigFile = None,
    override: Set = None,
    out: Out = None,
) -> None:
    """Improve a harness on tasks, round after round, then measure it on held-out questions."""
    from reharness.envs.config import load_config, parse_config
    from reharness.eval.experiment import AdaptConfig
    from reharness.proposer.factory import proposer_config

    if not tasks and config is None:
        raise ConfigError("name at least one of the tasks: reharness adapt chain_sum (`reharness tasks` lists them)")
    settings = load_config(
        AdaptConfig, config, override or (),
        tasks=tasks or None, harness=harness, mode=mode, rounds=rounds, proposals=proposals, dev=dev, held_out=held_out,
        seed=seed, solver=solver,
    )  # fmt: skip
    if proposer:  # those of the configuration, by label or name, with their settings; else by name alone
        known = {**{p.name: p for p in settings.proposers}, **{p.title: p for p in settings.proposers}}
        chosen = [known.get(name) or proposer_config(name) for name in proposer]
        settings = parse_config(AdaptConfig, {**dict(settings), "proposers": chosen}, "--proposer")
    _adapt(settings, out or Path("runs") / f"adapt-{settings.digest()[:10]}")


def _adapt(settings: Any, out: Path) -> None:
    from reharness.eval.experiment import run_adapt
    from reharness.eval.live import LiveTable, summary_table
    from reharness.eval.render.page import write_page

    with LiveTable(console) as watch:
        summary = finish(run_adapt(settings, out, watch))
    page = write_page(out, summary)
    console.print(summary_table(summary))
    paid = "; ".join(
        f"{role} {p['calls']} calls, {p['prompt_tokens']} tokens in, {p['completion_tokens']} out"
        for role, p in summary["paid"].items()
    )
    console.print(f"paid in this start: {paid}", highlight=False)
    console.print(f"{summary['infra']} infra; {summary['seconds']} s; sandbox: {summary['sandbox']}", highlight=False)
    console.print(f"summary: {out / 'summary.json'}\npage: {page}", soft_wrap=True)
    _stop_if_unmeasured(sum(arm["held_out"]["infra"] for arm in summary["arms"]), out)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; Ctrl-C is answered here, before the command-line library swallows it."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        print("reharness: stopped; the same command goes on where it stopped", file=sys.stderr)
        raise typer.Exit(130) from None


def _stop_if_unmeasured(infra: int, folder: Path) -> None:
    """A result with holes is no success."""
    if infra:
        from reharness.solver.ledger import Ledger

        ledger = Ledger(folder / "ledger.sqlite")
        last = [record["detail"] for _, record in ledger.records("infra")][-1]
        ledger.close()
        raise InfraLimitError(
            f"{infra} outcomes above could not be measured, the last because of: {visible(last)[:300]}. Mend it and"
            " give the same command again"
        )


@app.command()
def run(
    harness: Annotated[str, typer.Argument(help="Harness file, or 'seed'.")],
    task: Annotated[str, typer.Argument(help="Task name with optional parameters.")],
    n: Annotated[int, typer.Option("--n", help="Questions.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the questions.")] = 0,
    repeats: Annotated[int, typer.Option(help="Runs per question.")] = 1,
    solver: Solver = None,
    config: ConfigFile = None,
    override: Set = None,
    out: Out = None,
    show: Annotated[int, typer.Option(help="Outcomes to print.")] = 3,
) -> None:
    """Run one harness on one task and print its scorecard."""
    from reharness.envs.config import load_config
    from reharness.eval.single import RunConfig, print_scorecard, run_harness

    settings = load_config(
        RunConfig, config, override or (), harness=harness, task=task, n=n, seed=seed, repeats=repeats, solver=solver
    )  # fmt: skip
    folder = out or Path("runs") / f"run-{settings.digest()[:10]}"
    task_, questions, card = finish(run_harness(settings, folder))
    print_scorecard(console, task_, questions, card, show)
    _stop_if_unmeasured(card.infra, folder)


@app.command()
def tasks(pattern: Annotated[str, typer.Argument(help="Only names that hold this.")] = "") -> None:
    """List the tasks, with their parameters when a single one is named."""
    from reharness.envs.registry import describe_task, get_task, task_names

    pattern, _, parameters = pattern.partition("?")
    names = [name for name in task_names() if pattern in name]
    if {pattern, f"rg/{pattern}"} & set(names):
        if parameters:
            get_task(f"{pattern}?{parameters}")  # names what is wrong with them
        console.print(describe_task(pattern), markup=False, highlight=False)
        return
    if not names:
        raise UnknownNameError("task", pattern, [n.removeprefix("rg/") for n in task_names()])
    for name in names:
        print(name)
    console.print(f"{len(names)} tasks; `reharness tasks NAME` shows one with its parameters", style="dim")


@app.command()
def audit(
    names: Annotated[list[str] | None, typer.Argument(help="Task names; default: every installed family.")] = None,
    write: Annotated[bool, typer.Option(help="Write the committed table (needs all families).")] = False,
) -> None:
    """Check each task's scorer: gold must score 1, junk near 0; say which may be trained on, and why not."""
    from reharness.envs.audit import audit_table

    audit_table(names or None, console, write)


@app.command()
def doctor(
    endpoint: Annotated[str, typer.Option(help="Also probe this OpenAI-compatible URL.")] = "",
    model: Annotated[str, typer.Option(help="Model name at the endpoint.")] = "",
) -> None:
    """Check Python, torch, the sandbox ladder, the embedded model, an endpoint and the disk, each with its cure."""
    from reharness.recipes.doctor import diagnose

    checks = diagnose(endpoint, model)
    table = Table(box=None)
    for title in ("", "what", "found", "cure"):
        table.add_column(title, overflow="fold")
    for check in checks:
        verdict = {True: "ok", False: "FAIL", None: "-"}[check.ok]
        table.add_row(*map(Text, (verdict, check.what, check.found, check.cure)))
    console.print(table)
    raise typer.Exit(0 if all(check.ok is not False for check in checks) else 1)


@app.command()
def demo(out: Out = None) -> None:
    """The whole method in about ten minutes: demonstrations, SFT, adaptation of three unseen families."""
    from reharness.recipes.demo import run_demo

    path = run_demo(out or Path("runs") / "demo", console, finish)
    _stop_if_unmeasured(_infra(path.parent / "adapt"), path.parent / "adapt")


def _infra(run: Path) -> int:
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return sum(arm["held_out"]["infra"] for arm in summary["arms"])


def main() -> None:
    """Entry point: reharness's own errors are printed as one line, without a traceback; exit status 2."""
    try:
        app()
    except ReharnessError as error:
        print(f"reharness: {visible(str(error))}", file=sys.stderr)
        sys.exit(2)
