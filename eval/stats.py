"""Means over the questions of a task, tests of paired differences, and what a design can find. Pure.

Intervals of means over families are in ``coverage``, since which one to use depends on what it really covers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, nct, norm, rankdata, t


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


def sign_flip(differences: Sequence[float], seed: int = 0, resamples: int = 99_999) -> float:
    """Two-sided p of the paired permutation test on the mean difference: the share of the 2^n ways to choose signs
    whose mean is at least as far from 0.

    Exact up to 40 differences (the sums of one half of them are looked up among the sorted sums of the other, so 2^n
    is counted in about 2^(n/2) steps); seeded Monte Carlo above, which counts the observed signs as one more draw.
    Raises ``ValueError`` when there is nothing to test.
    """
    d = np.asarray(differences, dtype=float)
    if not d.size or not np.isfinite(d).all():
        raise ValueError("sign_flip needs at least one difference, all of them finite")
    # Sums that differ by rounding alone are ties.
    reach = abs(d.sum()) - 1e-9 * np.abs(d).sum()
    if d.size > 40:
        signs = np.random.default_rng(seed).integers(0, 2, (resamples, d.size), dtype=np.int8) * 2 - 1
        return float((1 + np.sum(np.abs(signs @ d) >= reach)) / (1 + resamples))
    left, right = (_signed_sums(half) for half in np.array_split(d, 2))
    right.sort()
    as_high = right.size - np.searchsorted(right, reach - left, "left")
    as_low = np.searchsorted(right, -reach - left, "right")
    return min(1.0, float((as_high.sum() + as_low.sum()) / (left.size * right.size)))


def _signed_sums(values: np.ndarray) -> np.ndarray:
    """The 2^len(values) sums with every choice of signs."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def wilcoxon_p(differences: Sequence[float]) -> float:
    """Two-sided p of Wilcoxon's signed-rank test, zero differences left out: ``sign_flip`` of the signed ranks, so
    exact with ties too (scipy's ``wilcoxon`` is from 14 differences with ties on a normal approximation). 1 when all
    differences are 0."""
    d = np.round(np.asarray(differences, dtype=float), 12)  # what differs by rounding alone is tied, or 0
    d = d[d != 0]
    return sign_flip((np.sign(d) * rankdata(np.abs(d))).tolist()) if d.size else 1.0


def smallest_p(n: int) -> float:
    """The smallest two-sided p that ``sign_flip`` can give for ``n`` differences: .031 at 6, .0078 at 8."""
    return min(1.0, 2.0 ** (1 - n))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order given (Holm 1979): reject where at most the level."""
    if any(not 0 <= p <= 1 for p in p_values):
        raise ValueError("p values lie in [0, 1]")
    adjusted, highest, m = [0.0] * len(p_values), 0.0, len(p_values)
    for rank, i in enumerate(sorted(range(m), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (m - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def power(effect: float, sd: float, n: int, level: float = 0.05) -> float:
    """Chance that a two-sided paired t test over ``n`` families finds a mean difference of ``effect``, when the
    differences have standard deviation ``sd`` over families: 23 % for .05 and .10 at n = 8, 65 % at 24."""
    if n < 2 or sd <= 0:
        raise ValueError("power needs n >= 2 and sd > 0")
    critical, shift = t.ppf(1 - level / 2, n - 1), effect / sd * math.sqrt(n)
    # The lower tail, mirrored: scipy's nct.cdf is NaN far out in it.
    return float(nct.sf(critical, n - 1, shift) + nct.sf(critical, n - 1, -shift))


def minimum_detectable_effect(n: int, sd: float, wanted: float = 0.8, level: float = 0.05) -> float:
    """The smallest mean difference that ``power`` finds with chance ``wanted`` (0.80)."""
    return sd * float(brentq(lambda d: power(d, 1.0, n, level) - wanted, 0.0, 100.0))


def false_acceptance(p: float, questions: int, candidates: int) -> tuple[float, float]:
    """Selection noise: candidates as good as their parent, each question exact with chance ``p``, all independent.

    Returns the chance that the best of them scores strictly above the parent, and its mean apparent gain (its score
    less the parent's, where higher; 0 otherwise). Exact: .84 and +.17 for p = .3, 16 questions, 8 candidates.
    """
    solved = np.arange(questions + 1)
    parent = binom.pmf(solved, questions, p)
    best = np.diff(binom.cdf(solved, questions, p) ** candidates, prepend=0.0)
    gain = solved[None, :] - solved[:, None]  # (parent, best)
    joint = parent[:, None] * best[None, :]
    return float(joint[gain > 0].sum()), float((joint * gain.clip(min=0)).sum() / questions)
