"""The three tracks of the micro-experiments: what a context or a chain starts from (headroom.md).

S: the seed harness of the family. F: a competent parent under another answer format than the plain one it was written
for. R: a competent parent with one planted defect. Track, format and defect are recorded and never worded into a
context: the report tells them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reharness.envs.audit_rows import format_fits
from reharness.envs.errors import ConfigError, UnknownNameError
from reharness.envs.splits import Part, load_split, stream_seed
from reharness.envs.types import content_hash
from reharness.proposer.defects import planted
from reharness.proposer.edits import apply_edit
from reharness.proposer.moves import MOVES
from reharness.solver.harness import Harness, seed_harness

TrackName = Literal["S", "F", "R"]
TRACKS: tuple[TrackName, ...] = ("S", "F", "R")
Parents = Mapping[str, Sequence[str]]
"""The sources of the competent parents by family."""


@dataclass(frozen=True)
class Start:
    """A task and the harness that it starts from. ``seed`` draws its questions."""

    track: TrackName
    family: str
    format: str
    defect: str | None
    parent: Harness
    seed: int = 0

    @property
    def task(self) -> str:
        """The task's name with its parameters: exact scoring, since partial credit hides defects."""
        form = "" if self.format == "plain" else f"&format={self.format}"
        return f"{self.family}?exact=true{form}"


def load_parents(folder: Path, part: Part) -> Parents:
    """The competent parents in ``folder/part``: ``family.py``, and ``family_2.py`` and so on for more of one family.

    Raises ``ConfigError`` when a family of the split has none, or a file is of none of them.
    """
    families = load_split().families[part]
    parents: dict[str, list[str]] = {family: [] for family in families}
    for file in sorted((folder / part).glob("*.py")):
        family = file.stem.rstrip("0123456789").removesuffix("_") if file.stem not in parents else file.stem
        if family not in parents:
            raise ConfigError(f"{file}: {family!r} is no {part} family of the split; rename or remove the file")
        parents[family].append(Harness.load(file).source)
    if missing := [family for family, sources in parents.items() if not sources]:
        raise ConfigError(f"{folder / part}: has no competent parent of {', '.join(missing)}; add {missing[0]}.py")
    return parents


def from_seed(family: str, seed: int) -> Start:
    return Start("S", family, "plain", None, seed_harness(), seed)


def shifted(family: str, source: str, form: str, seed: int) -> Start:
    return Start("F", family, form, None, Harness.from_source(source), seed)


def defective(
    family: str, source: str, defect: str, seed: int, *, form: str = "plain", harmless: bool = False
) -> Start:
    """``form`` other than plain: the parent already answers in it, so that not all that it adds to the answer is
    wrong. Its way of doing so is that of a move, so it is one of a train format. Raises ``UnknownNameError`` for
    another form, ``ConfigError`` for a parent that cannot take it."""
    spoilt = planted(source, defect, seed, harmless=harmless)
    if form != "plain":
        if (move := MOVES.get(f"as_{form}")) is None:
            raise UnknownNameError("format of a repair", form, [n.removeprefix("as_") for n in MOVES if n[:3] == "as_"])
        completion = move.propose(spoilt)
        result = apply_edit(spoilt, completion) if completion else None
        if result is None or result.source is None:
            raise ConfigError(f"{family}: its parent cannot be given the form {form!r}")
        spoilt = result.source
    return Start("R", family, form, defect, Harness.from_source(spoilt), seed)


def plan(
    part: Part, parents: Parents, *, seed: int, per_family: int, per_format: int, per_defect: int,
    families: Sequence[str] | None = None,
) -> list[Start]:
    """A balanced list of starts of one part of the split: ``per_family`` of track S for every family, ``per_format`` of
    track F for every format, ``per_defect`` of track R for every defect, these two over the families in turn. A third
    of the R starts answer in a format of the part, half have a harmless step beside the defect. Everything follows from
    ``seed``; every start has questions of its own."""
    split, rng = load_split(), random.Random(content_hash("plan", part, seed))
    chosen = tuple(families or split.families[part])
    if unknown := [family for family in chosen if family not in split.families[part]]:
        raise ConfigError(f"{unknown[0]!r} is no {part} family of the split: {', '.join(split.families[part])}")
    formats = [name for name in split.formats[part] if name != "plain"]
    held = [form for form in formats if any(format_fits(family, form) for family in chosen)]
    turns = _turns(chosen, rng)

    def drawn(form: str) -> tuple[str, str]:
        if not any(format_fits(family, form) for family in chosen):
            raise ConfigError(f"format {form!r} can hold the answers of none of {', '.join(chosen)}; add families")
        family = next(family for family in turns if format_fits(family, form))
        return family, rng.choice(parents[family])

    starts: list[Start] = []

    def own() -> int:
        return stream_seed(seed, f"{part} {len(starts)}")

    for family in chosen:
        for _ in range(per_family):
            starts.append(from_seed(family, own()))
    for form in formats:
        for _ in range(per_format):
            starts.append(shifted(*drawn(form), form, own()))
    for defect in split.defects[part]:
        for _ in range(per_defect):
            form = rng.choice(held) if rng.random() < 1 / 3 and part == "train" and held else "plain"
            starts.append(defective(*drawn(form), defect, own(), form=form, harmless=rng.random() < 0.5))
    return starts


def _turns(families: Sequence[str], rng: random.Random) -> Iterator[str]:
    """The families without end, in a new order every time round."""
    while True:
        yield from rng.sample(families, len(families))
