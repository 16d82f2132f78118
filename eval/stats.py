"""Means with their n and an interval. Pure. (Comparisons over families come with the experiments that need them.)"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy.stats import norm


@dataclass(frozen=True)
class Mean:
    """A mean over ``n`` questions of *one* task with a 95 % interval; it says nothing about other tasks."""

    mean: float
    n: int
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}] n={self.n}" if self.n else "not measured"

    def record(self) -> dict[str, Any]:
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(self).items()}


def bounded_mean(values: Sequence[float], low: float = 0.0, high: float = 1.0, level: float = 0.95) -> Mean:
    """The mean of values in [``low``, ``high``] with Wilson's score interval on the rescaled mean.

    Exact scores are binomial, for which Wilson's interval is the usual choice at small n; values strictly inside the
    bounds vary less than a binomial of the same mean, so for them it is conservative. It does not collapse when all
    values are equal, as a t interval or a bootstrap would. NaN when there are no values.
    """
    n = len(values)
    if n == 0:
        return Mean(math.nan, 0, math.nan, math.nan)
    if any(not low <= v <= high for v in values):
        raise ValueError(f"values must lie in [{low}, {high}]")
    mean = sum(values) / n
    p = (mean - low) / (high - low)
    z = float(norm.ppf(0.5 + level / 2))
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    ends = (max(0.0, centre - half), min(1.0, centre + half))
    return Mean(mean, n, *(low + e * (high - low) for e in ends))


def paired_gain(before: Sequence[float], after: Sequence[float]) -> Mean:
    """Mean of ``after - before`` over the same questions (each in [0, 1]), with the interval of ``bounded_mean``."""
    return bounded_mean([a - b for b, a in zip(before, after, strict=True)], -1.0, 1.0)
