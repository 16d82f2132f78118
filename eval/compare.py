"""From the results of an experiment to its comparisons: one value per family, paired, tested, corrected. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reharness.envs.errors import ConfigError, UnknownNameError
from reharness.eval.coverage import FamilyMean, interval, mean_interval
from reharness.eval.results import ROWS, Failed, Results, Row, Track
from reharness.eval.stats import holm, minimum_detectable_effect, sign_flip, smallest_p, wilcoxon_p

Table = Mapping[str, Mapping[str, float]]
"""Row -> family -> value."""
Pair = tuple[str, str]

PAIRS: tuple[Pair, ...] = (
    ("sft", "untrained"),
    ("sft", "best_single_move"),
    ("sft", "random_move"),
    ("sft", "sft_shuffled_report"),
    ("grpo_single", "sft"),
    ("grpo_single", "best_single_move"),
    ("grpo_multistep", "sft"),
    ("grpo_multistep", "best_single_move"),
)
"""What is tested where both rows were measured, whatever came out."""
LEARNED = ("untrained", "sft", "grpo_single", "grpo_multistep")


@dataclass(frozen=True)
class Comparison:
    """``a`` less ``b`` over the families that have both. The p values are two-sided; ``detectable`` is the effect that
    as many families with the standard deviation seen would show with 80 % power (NaN where they do not differ)."""

    a: str
    b: str
    differences: Mapping[str, float]
    mean: FamilyMean
    percentile: tuple[float, float]
    """Percentile bootstrap: what the sources report."""
    p: float
    wilcoxon: float
    smallest_p: float
    detectable: float
    left_out: int
    """Families without a value of one of the two."""


Value = Callable[[Row, float], float]


def value_table(track: Track | None, value: Value = Row.mean) -> dict[str, dict[str, float]]:
    """``value(row, parent score)`` for every row and family, as the mean over the family's entries; NaN stays NaN.
    The row ``parent`` is always there."""
    found: dict[str, dict[str, list[float]]] = {}
    for entry in track.families if track else ():
        parent = Row(scores=(entry.parent_score,), picked=entry.parent_score)
        for name, row in {"parent": parent, **entry.rows}.items():
            found.setdefault(name, {}).setdefault(entry.family, []).append(value(row, entry.parent_score))
    return {name: {f: float(np.mean(v)) for f, v in found[name].items()} for name in ROWS if name in found}


def mean_table(track: Track | None, failed: Failed = "parent") -> Table:
    """``value_table`` of the mean over the proposals."""
    return value_table(track, lambda row, parent: row.mean(parent, failed))


def without_constant_paying(track: Track) -> Track | None:
    """The track without the entries that a constant answer scores on; None where none is left."""
    kept = tuple(e for e in track.families if not e.constant_pays)
    return track.model_copy(update={"families": kept}) if kept else None


def only_without_constant_paying(results: Results) -> Results:
    """``without_constant_paying`` of every track; a track may be gone."""
    kept = {t: fewer for t, track in results.tracks.items() if (fewer := without_constant_paying(track))}
    return results.model_copy(update={"tracks": kept})


def family_mean(values: Mapping[str, float]) -> FamilyMean:
    """Mean and interval of scores, over the families that have one."""
    return mean_interval([v for v in values.values() if not math.isnan(v)], (0.0, 1.0))


def paired(table: Table, a: str, b: str) -> dict[str, float]:
    """``a`` less ``b`` for every family that has both."""
    both = sorted(set(table.get(a, ())) & set(table.get(b, ())))
    return {f: d for f in both if not math.isnan(d := table[a][f] - table[b][f])}


def compare(table: Table, a: str, b: str) -> Comparison:
    """The paired comparison of two rows. Raises ``UnknownNameError`` for a row that the table has not."""
    for name in (a, b):
        if name not in table:
            raise UnknownNameError("row", name, table)
    differences = paired(table, a, b)
    d, n = list(differences.values()), len(differences)
    sd = float(np.std(d, ddof=1)) if n > 1 else 0.0
    return Comparison(
        a, b, differences, mean_interval(d),
        percentile=interval(d, "percentile") if n > 1 else (math.nan, math.nan),
        p=sign_flip(d) if n else math.nan,
        wilcoxon=wilcoxon_p(d) if n else math.nan,
        smallest_p=smallest_p(n) if n else math.nan,
        detectable=minimum_detectable_effect(n, sd) if sd > 1e-12 else math.nan,
        left_out=len({*table[a], *table[b]}) - n,
    )  # fmt: skip


def primary_pair(results: Results) -> Pair | None:
    """The one comparison named before the run: ``design["primary"]`` ("a - b"), else the first RL row against SFT;
    None where such rows were not measured. Raises ``ConfigError`` where the design names no two rows."""
    named = results.design.get("primary")
    if named is not None:
        a, _, b = (part.strip() for part in str(named).partition(" - "))
        if a not in ROWS or b not in ROWS:
            raise ConfigError(f"design.primary = {named!r}: write it as 'grpo_single - sft'; rows: {', '.join(ROWS)}")
        return (a, b) if {a, b} <= {*results.rows, "parent"} else None
    return next(((a, "sft") for a in ("grpo_single", "grpo_multistep") if {a, "sft"} <= set(results.rows)), None)


def primary_table(results: Results, failed: Failed = "parent") -> Table:
    """The unit of the primary comparison: each family's mean of its format-shift and its repair track."""
    tables = [mean_table(results.tracks.get(t), failed) for t in ("F", "R")]
    found: dict[str, dict[str, list[float]]] = {}
    for table in tables:
        for row, values in table.items():
            for family, value in values.items():
                found.setdefault(row, {}).setdefault(family, []).append(value)
    return {row: {f: float(np.mean(v)) for f, v in found[row].items()} for row in ROWS if row in found}


@dataclass(frozen=True)
class Checked:
    """A comparison with what it becomes otherwise: without the families that a constant answer scores on (None where
    none is left or none is there), with failed edits as 0, and with failed edits left out (mean differences).
    ``holm`` is the corrected p value; NaN for the primary comparison and where nothing is claimed."""

    main: Comparison
    without: Comparison | None
    as_zero: float
    failed_left_out: float
    holm: float = math.nan


@dataclass(frozen=True)
class Comparisons:
    """``tested`` is the number of p values that Holm's correction is over: all but the primary one, of all tracks and
    pairs with enough families for a claim, whatever part of them is then shown."""

    primary: Checked | None
    tracks: Mapping[str, Sequence[Checked]]
    tested: int


def compare_all(results: Results, baselines: Sequence[str] = ()) -> Comparisons:
    """``PAIRS`` in every track (and every learned row against each of ``baselines``), and the primary comparison.

    Raises ``UnknownNameError`` for a baseline that was not measured.
    """
    for name in baselines:
        if name not in {*results.rows, "parent"}:
            raise UnknownNameError("baseline", name, ["parent", *results.rows])
    pairs = [*((a, b) for b in baselines for a in LEARNED if a != b), *PAIRS]
    fewer = only_without_constant_paying(results)
    found: dict[str, list[Checked]] = {}
    for t, track in results.tracks.items():
        table = mean_table(track)
        here = [pair for pair in dict.fromkeys(pairs) if set(pair) <= set(table)]
        other = None if fewer.tracks.get(t) == track else mean_table(fewer.tracks.get(t))
        recheck = mean_table(track, "zero"), mean_table(track, "left_out")
        found[t] = [_checked(pair, table, other, *recheck) for pair in here]
    claimed = [c for checked in found.values() for c in checked if c.main.mean.claimed]
    adjusted = {id(c): p for c, p in zip(claimed, holm([c.main.p for c in claimed]), strict=True)}
    tracks = {t: [replace(c, holm=adjusted.get(id(c), math.nan)) for c in checked] for t, checked in found.items()}
    primary, table = primary_pair(results), primary_table(results)
    return Comparisons(
        _checked(
            primary, table, None if fewer == results else primary_table(fewer),
            primary_table(results, "zero"), primary_table(results, "left_out"),
        ) if primary and set(primary) <= set(table) else None,
        tracks, len(claimed),
    )  # fmt: skip


def _checked(pair: Pair, table: Table, fewer: Table | None, zero: Table, left_out: Table) -> Checked:
    without = compare(fewer, *pair) if fewer and set(pair) <= set(fewer) else None
    zeros, kept = (list(paired(t, *pair).values()) for t in (zero, left_out))
    return Checked(compare(table, *pair), without, _points(zeros), _points(kept))


def _points(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
