"""The results file of an experiment over families: what is in it, read with every inconsistency named."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from reharness.envs.config import Config, parse_config
from reharness.envs.errors import ConfigError, UnknownNameError

RESULTS_VERSION = 1
ROWS = (
    "parent", "constant", "best_single_move", "random_move", "untrained", "sft", "sft_shuffled_report", "grpo_single",
    "grpo_multistep", "tool_loop",
)  # fmt: skip
"""What is compared, in the order in which tables show it."""
TRACKS = {"S": "from the seed", "F": "format shift", "R": "repair"}

Score = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Failed = Literal["parent", "zero", "left_out"]
"""How a failed edit counts: as its parent's score, as 0, or not at all."""


class Row(Config):
    """One proposer (or one fixed candidate) on one family. ``scores`` are held-out means of the ``n`` proposals'
    candidates, None where the edit failed. With ``seeds`` every training seed has the same record, and every figure
    of the row is the mean over them (the row's own lists are then not read)."""

    scores: tuple[Score | None, ...] = Field(min_length=1)
    dev: tuple[Score | None, ...] = ()
    parsed: Count | None = None
    applied: Count | None = None
    ran: Count | None = None
    valid: Count | None = None
    distinct: Count | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    errors: dict[str, Count] = {}
    picked: Score | None = None
    """Held-out score of what selection on dev questions picked; the parent's where nothing was better."""
    tokens: Count | None = None
    seeds: dict[str, Row] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Row:
        if self.n is not None and self.n != len(self.scores):
            raise ValueError(f"{len(self.scores)} scores for n = {self.n} proposals")
        if self.dev and len(self.dev) != len(self.scores):
            raise ValueError(f"{len(self.dev)} dev scores beside {len(self.scores)} held-out scores")
        for what in ("parsed", "applied", "ran", "valid", "distinct"):
            if (found := getattr(self, what)) is not None and found > len(self.scores):
                raise ValueError(f"{what} = {found} of {len(self.scores)} proposals")
        if any(row.seeds for row in self.seeds.values()):
            raise ValueError("a training seed's row has no seeds of its own")
        return self

    @property
    def parts(self) -> tuple[Row, ...]:
        """One row per training seed; the row itself where it has none."""
        return tuple(self.seeds.values()) or (self,)

    def mean(self, parent: float, failed: Failed = "parent") -> float:
        """Mean over the proposals; NaN where all failed and they are left out."""
        stands = {"parent": parent, "zero": 0.0, "left_out": None}[failed]

        def one(row: Row) -> float:
            kept = [s if s is not None else stands for s in row.scores]
            return _mean(s for s in kept if s is not None)

        return self._over_seeds(one)

    def oracle(self, parent: float) -> float:
        """Best of n on the held-out questions themselves: nobody could have picked it."""
        return self._over_seeds(lambda row: max(parent if s is None else s for s in row.scores))

    def selected(self) -> float:
        """``picked``; NaN where it was not recorded."""
        return self._over_seeds(lambda row: math.nan if row.picked is None else row.picked)

    def share(self, what: Literal["parsed", "applied", "ran", "valid"]) -> float:
        """Of the proposals; NaN where it was not counted."""
        counts = [(getattr(row, what), len(row.scores)) for row in self.parts]
        return math.nan if any(c is None for c, _ in counts) else _mean(c / n for c, n in counts)

    def different(self) -> float:
        """Distinct candidates among the proposals; NaN where it was not counted."""
        return self._over_seeds(lambda row: math.nan if row.distinct is None else row.distinct)

    def _over_seeds(self, value: Callable[[Row], float]) -> float:
        return _mean(value(row) for row in self.parts)


class Entry(Config):
    """One family in one track, in one answer format and with one defect at most."""

    family: str
    task: str
    format: str
    defect: str | None = None
    constant_pays: bool
    parent_score: Score
    headroom: float
    n_eval: Annotated[int, Field(ge=1)]
    rows: dict[str, Row]

    @model_validator(mode="after")
    def _known(self) -> Entry:
        if unknown := [name for name in self.rows if name not in ROWS]:
            raise ValueError(str(UnknownNameError("row", unknown[0], ROWS, self.family)))
        parent = self.rows.get("parent")
        if parent and parent.scores != (self.parent_score,):
            raise ValueError(f"{self.family}: row parent is {parent.scores}, parent_score {self.parent_score}")
        return self


class Track(Config):
    """One question asked of the proposers; tracks are never pooled."""

    families: tuple[Entry, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole(self) -> Track:
        seen: dict[tuple[str, str, str | None], Entry] = {}
        by_family: dict[str, Entry] = {}
        for entry in self.families:
            if seen.setdefault((entry.family, entry.format, entry.defect), entry) is not entry:
                raise ValueError(f"{entry.family} is twice in format {entry.format!r} with defect {entry.defect!r}")
            first = by_family.setdefault(entry.family, entry)
            if set(first.rows) != set(entry.rows):
                other = sorted(set(first.rows) ^ set(entry.rows))
                raise ValueError(f"{entry.family}: row {other[0]} is in one of its entries only")
        for name in ROWS:
            seeds = {tuple(sorted(e.rows[name].seeds)) for e in self.families if name in e.rows}
            if len(seeds) > 1:
                raise ValueError(f"row {name}: not the same training seeds in every family")
        return self


class Chain(Config):
    """Rounds of a proposer on one family: held-out score of the harness retained after round 0 (the parent), 1, …"""

    family: str
    arm: Literal["sequential", "independent"]
    row: str
    rounds: tuple[Score, ...] = Field(min_length=2)
    dev: tuple[Score | None, ...] = ()
    proposals: Annotated[int, Field(ge=1)]


class Results(Config):
    """An experiment: its design in words, one record per track, and chains where it ran any."""

    version: Literal[1]
    experiment: str
    stage: int
    design: dict[str, Any]
    tracks: dict[Literal["S", "F", "R"], Track] = Field(min_length=1)
    chains: dict[Literal["S", "F", "R"], tuple[Chain, ...]] = {}

    @model_validator(mode="after")
    def _chains_of_equal_length(self) -> Results:
        for track, chains in self.chains.items():
            lengths: dict[tuple[str, str], int] = {}
            for c in chains:
                if lengths.setdefault((c.row, c.arm), len(c.rounds)) != len(c.rounds):
                    raise ValueError(f"chains.{track}: {c.family}, {c.arm} {c.row}: not as many rounds as the others")
        return self

    @property
    def rows(self) -> list[str]:
        """Every row that some family of some track has, in the order of ``ROWS``."""
        found = {name for track in self.tracks.values() for entry in track.families for name in entry.rows}
        return [name for name in ROWS if name in found]


def load_results(path: Path) -> Results:
    """Reads a results file. Raises ``ConfigError`` naming the file and the key, or the line where it is not JSON."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a results file") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}, line {error.lineno}: is not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8: {error.reason}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a results file holds one JSON object, not a {type(data).__name__}")
    if data.get("version") != RESULTS_VERSION:
        raise ConfigError(
            f"{path}: version {data.get('version')!r}; this reharness reads version {RESULTS_VERSION} (make it again)"
        )
    return parse_config(Results, data, str(path))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found) if found else math.nan
