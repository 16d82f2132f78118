"""`reharness micro-rg`: the steps of the experiment, each resumable with the same command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

micro_app = typer.Typer(no_args_is_help=True, help=__doc__)
Out = Annotated[Path, typer.Option("--out", help="Folder of the ledger; the same command goes on there.")]


@micro_app.command()
def items(out: Out = Path("runs/micro_rg")) -> None:
    """Measure headroom and freeze the items: before any demonstration."""
    from reharness.recipes.cli import console, finish
    from reharness.recipes.micro_rg.items import ITEMS, build_items
    from reharness.recipes.micro_rg.session import session

    async def work() -> None:
        async with session(out) as solver:
            result = await build_items(solver)
            for part in ("train", "validation", "unseen"):
                for track in "SFR":
                    chosen = [i for i in result["items"] if (i["part"], i["track"]) == (part, track)]
                    gains = [i["competent"] - i["start_score"] for i in chosen]
                    said = f"headroom {min(gains):.2f} to {max(gains):.2f}" if gains else "none"
                    console.print(f"{part} {track}: {len(chosen)} items, {said}", highlight=False)
            console.print(f"frozen: {ITEMS}", soft_wrap=True)

    finish(work())


@micro_app.command()
def table(
    arm: Annotated[str, typer.Argument(help="parent, constant, …, sft, grpo_single; or …_chains.")],
    adapter: Annotated[Path | None, typer.Option(help="LoRA folder of the trained proposer.")] = None,
    seed: Annotated[int | None, typer.Option(help="Training seed of the adapter, for the arms of GRPO.")] = None,
    part: Annotated[str, typer.Option(help="unseen; validation for choosing settings.")] = "unseen",
    out: Out = Path("runs/micro_rg"),
) -> None:
    """Ask one arm about every item and write its rows; `sft_chains` and the like run the five-round chains."""
    from reharness.envs.errors import UnknownNameError
    from reharness.recipes.cli import console, finish
    from reharness.recipes.micro_rg.steps import ARMS, run_arm

    for what, name, valid in (("arm", arm, ARMS), ("part", part, ("validation", "unseen"))):
        if name not in valid:
            raise UnknownNameError(what, name, valid)
    result = finish(run_arm(arm, adapter, out, part, seed=seed))  # type: ignore[arg-type]
    if not arm.endswith("_chains"):
        for track in "SFR":
            own = [r for key, r in result["records"].items() if key.startswith(track)]
            if own:
                console.print(summary_line(track, own), highlight=False)
    console.print(f"{result['seconds']} s in this start", highlight=False)


def summary_line(track: str, records: list[dict]) -> str:
    """What a track's records say at a glance; the tables with intervals are `reharness compare`'s."""
    n = sum(len(r["scores"]) for r in records)
    ran = [s for r in records for s in r["scores"] if s is not None]
    text = f"{track}: {len(records)} families, {n} candidates, mean of those that ran {sum(ran) / max(1, len(ran)):.3f}"
    if "parsed" in records[0]:
        shares = ", ".join(f"{k} {sum(r[k] for r in records) / n:.0%}" for k in ("parsed", "applied", "ran", "valid"))
        text += f"; {shares}; picked {sum(r['picked'] for r in records) / len(records):.3f}"
    return text


@micro_app.command()
def results() -> None:
    """Join the rows of all arms into results.json; then: reharness compare recipes/micro_rg/results.json"""
    from reharness.recipes.cli import console
    from reharness.recipes.micro_rg.steps import assemble

    console.print(str(assemble()), soft_wrap=True)
