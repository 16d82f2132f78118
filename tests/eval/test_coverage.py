from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import bootstrap, ttest_1samp

from reharness.eval.coverage import METHODS, MIN_FAMILIES, headline, interval, mean_interval, simulate_coverage


@pytest.mark.parametrize(("n", "normal", "skewed"), [(3, 0.73, 0.64), (6, 0.86, 0.76), (8, 0.89, 0.81), (16, 0.92, 0.86)])
def test_the_percentile_bootstrap_covers_what_was_planned_with(n: int, normal: float, skewed: float) -> None:
    assert simulate_coverage(n, "percentile", "normal") == pytest.approx(normal, abs=0.03)
    assert simulate_coverage(n, "percentile", "skewed") == pytest.approx(skewed, abs=0.04)


@pytest.mark.parametrize("n", [12, 24])
def test_the_headline_interval_covers_most(n: int) -> None:
    assert simulate_coverage(n, "t", "normal") == pytest.approx(0.95, abs=0.01)  # the simulation itself is right
    kind, coverage = headline(n)
    assert kind == "bootstrap-t" and coverage > 0.9
    assert coverage == max(simulate_coverage(n, method, "skewed") for method in METHODS)
    with pytest.raises(ValueError):
        simulate_coverage(1, "t")


def test_intervals_are_scipy_s() -> None:
    d = np.random.default_rng(3).normal(0.1, 0.2, 20)
    expected = ttest_1samp(d, 0.0).confidence_interval()
    assert interval(d.tolist(), "t") == pytest.approx((expected.low, expected.high))
    by_scipy = bootstrap((d,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(1))
    assert interval(d.tolist(), "percentile") == pytest.approx(by_scipy.confidence_interval, abs=0.005)


@given(st.lists(st.integers(-16, 16).map(lambda k: k / 16), min_size=MIN_FAMILIES, max_size=30))
def test_an_interval_holds_its_mean_and_stays_within_what_is_possible(values: list[float]) -> None:
    found = mean_interval(values)
    assert found == mean_interval(values)  # the same every time
    assert -1 <= found.low <= found.mean + 1e-9 and found.mean - 1e-9 <= found.high <= 1
    assert (found.low == found.high) == (len(set(values)) == 1) == (found.kind == "all equal")


def test_few_families_claim_nothing() -> None:
    few = mean_interval([1.0] * 5 + [0.5] * (MIN_FAMILIES - 6))
    assert not few.claimed and math.isnan(few.low) and few.n == MIN_FAMILIES - 1 and not few.above_zero
    assert math.isnan(mean_interval([]).mean)


def test_where_most_families_gain_the_same_the_t_interval_stands_in() -> None:
    found = mean_interval([1.0] * 22 + [0.0] * 2)
    assert found.kind == "t" and found.low == pytest.approx(0.797, abs=0.001) and found.high == 1.0
    assert found.coverage == simulate_coverage(24, "t", "skewed") < headline(24)[1]
