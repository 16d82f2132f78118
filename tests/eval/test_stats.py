from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from reharness.eval.stats import bounded_mean, paired_gain


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_exact_scores_have_wilsons_interval(case: tuple[int, int]) -> None:
    k, n = case
    mean = bounded_mean([1.0] * k + [0.0] * (n - k))
    expected = binomtest(k, n).proportion_ci(method="wilson")
    assert mean.mean == pytest.approx(k / n)
    assert (mean.low, mean.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_the_interval_holds_the_mean_and_stays_in_bounds(values: list[float]) -> None:
    mean = bounded_mean(values)
    assert 0 <= mean.low <= mean.mean + 1e-12 and mean.mean - 1e-12 <= mean.high <= 1
    assert mean.low < mean.high  # never collapses, whatever the values
    assert mean.n == len(values)


def test_gain_is_paired_and_signed() -> None:
    gain = paired_gain([0.0, 0.5, 1.0], [1.0, 0.5, 0.5])
    assert gain.mean == pytest.approx(0.5 / 3)
    assert -1 <= gain.low < 0 < gain.high <= 1
    with pytest.raises(ValueError):
        paired_gain([0.0], [0.0, 1.0])


def test_nothing_measured_is_never_a_number() -> None:
    empty = bounded_mean([])
    assert math.isnan(empty.mean) and empty.n == 0 and empty.record()["mean"] is None
    with pytest.raises(ValueError):
        bounded_mean([1.2])
