"""Results over families as tables of text: the same cells for a terminal and for Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.table import Table as RichTable
from rich.text import Text

from reharness.eval.compare import Checked, Comparison, Value, family_mean, value_table, without_constant_paying
from reharness.eval.coverage import MIN_FAMILIES, FamilyMean, headline, simulate_coverage
from reharness.eval.render.text import cell, count, listed, signed, visible
from reharness.eval.results import TRACKS, Results, Row, Track

LABELS = {
    "parent": "parent harness", "constant": "constant answer", "best_single_move": "best single move",
    "random_move": "random move", "untrained": "untrained model", "sft": "SFT",
    "sft_shuffled_report": "SFT, another task's report", "grpo_single": "GRPO, single-step",
    "grpo_multistep": "GRPO, multistep", "tool_loop": "fixed tool loop",
}  # fmt: skip


@dataclass(frozen=True)
class Sheet:
    """A table as text. The first column holds names, the others figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def rich(self) -> RichTable:
        caption = Text("\n".join(visible(note) for note in self.notes))
        table = RichTable(title=Text(visible(self.title)), caption=caption, box=SIMPLE, caption_justify="left")
        for i, column in enumerate(self.columns):
            table.add_column(Text(column), overflow="fold", justify="right" if i else "left")
        for row in self.rows:
            table.add_row(*(Text(visible(text)) for text in row))
        return table

    def markdown(self) -> str:
        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(visible(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"

        lines = [f"**{self.title}**", "", line(self.columns), "|---|" + "---:|" * (len(self.columns) - 1)]
        return "\n".join([*lines, *map(line, self.rows), *(f"\n{note}" for note in self.notes)])


def track_sheet(name: str, track: Track, rows: Sequence[str] = (), own: Sequence[str] = ()) -> Sheet:
    """One track: a line per row, and per training seed where there are several; ``rows`` picks some of them, ``own``
    are the design's notes on it."""
    lines = []
    notes: list[str] = []
    for row, families in value_table(track).items():
        if rows and row not in rows:
            continue
        seeds = next((list(e.rows[row].seeds) for e in track.families if row in e.rows), [])
        for seed in ["", *(seeds if len(seeds) > 1 else [])]:
            label = f"· training seed {seed}" if seed else LABELS[row]
            lines.append([label, *_track_cells(_only(track, row, seed), row)])
        if 0 < len(seeds) < 3:
            notes.append(f"{LABELS[row]}: {count(len(seeds), 'training seed')}; no claim about their variance.")
        if len(families) < len({e.family for e in track.families}):
            notes.append(f"{LABELS[row]} was measured on {len(families)} families only.")
    notes += own
    n = len({entry.family for entry in track.families})
    if paying := sorted({e.family for e in track.families if e.constant_pays}):
        notes.append(f"A constant answer scores on {listed(paying)}; one column is without {_them(paying)}.")
    return Sheet(
        f"Track {name}, {TRACKS[name]}: held-out score, mean over {_families(n)}",
        ("row", "families", "mean of n proposals", "failed as 0", "failed left out", "without constant-paying",
         "picked on dev", "oracle best of n", "parsed/applied/valid", "distinct of n"),
        lines,
        notes,
    )  # fmt: skip


def error_sheet(name: str, track: Track, rows: Sequence[str] = ()) -> Sheet | None:
    """Why edits gave nothing to run, by kind, of all proposals of a row (of all its training seeds together); None
    where no edit failed."""
    found: dict[str, Counter[str]] = {}
    proposals: Counter[str] = Counter()
    for part, row in ((p, r) for e in track.families for r, own in e.rows.items() for p in own.parts):
        if part.n is not None and (not rows or row in rows):
            proposals[row] += len(part.scores)
            found.setdefault(row, Counter()).update(part.errors)
    kinds = [kind for kind, _ in sum(found.values(), Counter[str]()).most_common()]
    if not kinds:
        return None
    lines = [
        [LABELS[row], str(proposals[row]), *(str(found[row][kind]) if found[row][kind] else "" for kind in kinds)]
        for row in LABELS if row in found
    ]  # fmt: skip
    return Sheet(f"Track {name}, {TRACKS[name]}: edits that gave nothing to run", ("row", "proposals", *kinds), lines)


def short_sheet(results: Results) -> Sheet:
    """The main figures of every track beside each other: mean over families, and the share of edits that applied and
    that were valid."""
    tables = {name: value_table(track) for name, track in results.tracks.items()}
    lines = []
    for row in LABELS:
        if any(row in table for table in tables.values()):
            cells = [LABELS[row]]
            for name, track in results.tracks.items():
                entries = [e.rows[row] for e in track.families if row in e.rows]
                shares = [family_mean(value_table(track, share).get(row, {})).mean for share in (_applied, _valid)]
                cells += [
                    with_interval(family_mean(tables[name][row])) if row in tables[name] else "",
                    "/".join(f"{s:.0%}" for s in shares) if entries and not any(map(math.isnan, shares)) else "",
                ]
            lines.append(cells)
    columns = [c for name, track in results.tracks.items()
               for c in (f"{name}, {TRACKS[name]} (n = {len({e.family for e in track.families})})", "applied/valid")]
    return Sheet("Held-out score, mean over unseen families", ("row", *columns), lines)


def _only(track: Track, row: str, seed: str) -> Track:
    """The track with one row (of one training seed)."""
    entries = []
    for entry in track.families:
        kept = {row: entry.rows[row].seeds[seed] if seed else entry.rows[row]} if row in entry.rows else {}
        entries.append(entry.model_copy(update={"rows": kept}))
    return track.model_copy(update={"families": tuple(entries)})


def _track_cells(track: Track, row: str) -> list[str]:
    def over(value: Value, families: Track | None = track) -> FamilyMean:
        return family_mean(value_table(families, value).get(row, {}))

    parts = [part for e in track.families if row in e.rows for part in e.rows[row].parts]
    proposals = [len(part.scores) for part in parts]
    several = max(proposals, default=1) > 1
    can_fail = several or any(None in part.scores for part in parts)
    main, fewer = over(Row.mean), without_constant_paying(track)
    zero, left_out = over(lambda r, p: r.mean(p, "zero")), over(lambda r, p: r.mean(p, "left_out"))
    shares = [over(share).mean for share in (_parsed, _applied, _valid)]
    distinct = over(lambda r, _: r.different()).mean
    return [
        str(main.n), with_interval(main),
        *([cell(zero.mean), _of(left_out, main.n)] if can_fail else ["–", "–"]),
        "–" if fewer == track else _of(over(Row.mean, fewer), main.n),
        *([_of(over(lambda r, _: r.selected()), main.n), cell(over(lambda r, p: r.oracle(p)).mean)] if several else
          ["–", "–"]),
        "–" if any(map(math.isnan, shares)) else "/".join(f"{share:.0%}" for share in shares),
        "–" if math.isnan(distinct) or not several else f"{distinct:.1f} of {_range(proposals)}",
    ]  # fmt: skip


def _parsed(row: Row, _: float) -> float:
    return row.share("parsed")


def _applied(row: Row, _: float) -> float:
    return row.share("applied")


def _valid(row: Row, _: float) -> float:
    return row.share("valid")


def _families(n: int) -> str:
    return "1 family" if n == 1 else f"{n} families"


def _them(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _of(mean: FamilyMean, n: int) -> str:
    """The mean, with its own number of families where that is smaller."""
    return cell(mean.mean) + (f" (n={mean.n})" if 0 < mean.n < n else "")


def _range(numbers: Sequence[int]) -> str:
    return str(min(numbers)) if min(numbers) == max(numbers) else f"{min(numbers)}–{max(numbers)}"


def with_interval(mean: FamilyMean, sign: bool = False) -> str:
    """``.. [low, high]``; what kind of interval where it is not the usual one of that n; ``no claim`` below 12."""
    show = signed if sign else cell
    if not mean.claimed:
        return show(mean.mean) + (" (no claim)" if mean.n else "")
    if mean.kind == "all equal":
        return f"{show(mean.mean)} (all equal)"
    kind = "" if mean.kind == headline(mean.n)[0] else f" ({mean.kind})"
    return f"{show(mean.mean)} [{show(mean.low)}, {show(mean.high)}]{kind}"


def legend(checked: Sequence[Checked], families: Sequence[int], tested: int) -> list[str]:
    """How to read the tables: what the intervals are and cover at the numbers of families in use, the tests."""
    shown = [m for c in checked for m in (c.main, c.without) if m]
    numbers = sorted({*families, *(c.mean.n for c in shown)}, reverse=True)
    used = [n for n in numbers if n >= MIN_FAMILIES]
    notes = []
    for kind in dict.fromkeys(headline(n)[0] for n in used):
        covers = [
            f"{simulate_coverage(n, kind):.1%} at n = {n} ({simulate_coverage(n, kind, 'normal'):.1%} with normal ones,"
            f" {simulate_coverage(n, kind, 'sparse'):.1%} where 7 families of 10 do not change)"
            for n in used if headline(n)[0] == kind
        ]  # fmt: skip
        notes.append(
            f"[ ] is a nominal 95 % interval over families, {kind}; with skewed effects it covers {listed(covers)}."
        )
    if "bootstrap-t" in {headline(n)[0] for n in used}:
        covers = [f"{simulate_coverage(n, 't'):.1%} at n = {n}" for n in used if headline(n)[0] == "bootstrap-t"]
        notes.append(
            "(t) marks t intervals, used where most families are equal; with skewed effects they cover "
            f"{listed(covers)}. All coverage is simulated."
        )
    if few := [n for n in numbers if n < MIN_FAMILIES]:
        notes.append(f"Fewer than {MIN_FAMILIES} families ({listed(list(map(str, few)))}): the points only, no claim.")
    if attainable := sorted({(m.mean.n, m.smallest_p) for m in shown if m.mean.claimed}):
        least = listed([f"{p:.1g} at n = {n}" for n, p in attainable])
        rest = f"; Holm p corrects it over the {tested} comparisons of all tracks but the primary" if tested else ""
        notes.append(f"exact p is that of the two-sided sign-flip test, at the least {least}{rest}.")
        notes.append(
            "detectable: the mean difference that so many families with the spread seen show with 80 % power (t test)."
        )
    return notes


def comparison_sheet(title: str, checked: Sequence[Checked], notes: Sequence[str] = ()) -> Sheet:
    """Paired differences, each with what it is without the families that a constant answer scores on."""
    columns = ["difference", "families", "mean difference", "percentile bootstrap", "exact p", "Holm p", "Wilcoxon p",
               "detectable", "failed as 0 / left out"]  # fmt: skip
    rows = []
    for c in checked:
        failed = f"{signed(c.as_zero)} / {signed(c.failed_left_out)}"
        names = [LABELS.get(name, name) for name in (c.main.a, c.main.b)]
        rows.append([" − ".join(names), *_comparison_cells(c.main, c.holm), failed])
        if c.without:
            rows.append(["· without constant-paying", *_comparison_cells(c.without, math.nan), ""])
    return Sheet(title, columns, rows, notes)


def _comparison_cells(c: Comparison, holm: float) -> list[str]:
    if not c.mean.claimed:
        return [str(c.mean.n), with_interval(c.mean, sign=True), *[""] * 5]
    return [
        str(c.mean.n), with_interval(c.mean, sign=True), f"[{signed(c.percentile[0])}, {signed(c.percentile[1])}]",
        _p(c.p), "" if math.isnan(holm) else _p(holm), _p(c.wilcoxon),
        "" if math.isnan(c.detectable) else f"{c.detectable:.3f}",
    ]  # fmt: skip


def _p(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}" if value < 0.01 else f"{value:.3f}"


def chain_sheet(name: str, results: Results) -> Sheet:
    """Rounds of sequential and independent chains: mean over families of the retained harness's held-out score."""
    chains = results.chains[name]  # type: ignore[index]
    last = max(len(c.rounds) for c in chains)
    rows = []
    for row, arm in dict.fromkeys((c.row, c.arm) for c in chains):
        mine = [c for c in chains if (c.row, c.arm) == (row, arm)]
        by_family = {c.family: [k.rounds for k in mine if k.family == c.family] for c in mine}
        means = []
        for r in range(len(mine[0].rounds)):
            at = family_mean({f: sum(k[r] for k in rounds) / len(rounds) for f, rounds in by_family.items()})
            means.append(with_interval(at) if r in (0, len(mine[0].rounds) - 1) else cell(at.mean))
        blanks = [""] * (last - len(means))
        proposals = _range([c.proposals for c in mine])
        rows.append([f"{LABELS.get(row, row)}, {arm}", str(len(by_family)), proposals, *means, *blanks])
    return Sheet(
        f"Track {name}, {TRACKS[name]}: held-out score of the harness retained after each round",
        ("row", "families", "proposals", *(f"round {r}" for r in range(last))), rows,
    )  # fmt: skip
