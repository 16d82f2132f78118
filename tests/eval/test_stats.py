from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, permutation_test, ttest_1samp, wilcoxon

from reharness.eval.stats import (
    bounded_mean,
    false_acceptance,
    holm,
    minimum_detectable_effect,
    paired_gain,
    power,
    sign_flip,
    smallest_p,
    wilcoxon_p,
)


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


def exact_p(differences: Sequence[float]) -> float:
    """By counting every choice of signs."""
    reach = abs(sum(differences))
    sums = [abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
            for signs in itertools.product((1, -1), repeat=len(differences))]  # fmt: skip
    return sum(s >= reach for s in sums) / len(sums)


SIXTEENTHS = st.integers(-16, 16).map(lambda k: k / 16)


@given(st.lists(SIXTEENTHS, min_size=1, max_size=9))
def test_the_sign_flip_test_counts_every_choice_of_signs(differences: list[float]) -> None:
    assert sign_flip(differences) == exact_p(differences)
    assert sign_flip([-d for d in differences]) == exact_p(differences)
    assert smallest_p(len(differences)) <= sign_flip(differences) <= 1


@pytest.mark.parametrize("n", [6, 11, 13])
def test_the_sign_flip_test_is_scipy_s_permutation_test(n: int) -> None:
    d = np.random.default_rng(n).normal(0.2, 0.5, n)
    expected = permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip(d.tolist()) == pytest.approx(expected.pvalue, abs=1e-12)


def test_above_forty_the_sign_flip_test_is_sampled_the_same_every_time() -> None:
    d = np.random.default_rng(0).normal(0.1, 0.3, 40).tolist()
    exact, sampled = sign_flip(d), sign_flip([*d, 0.0])  # a zero difference changes nothing
    assert sampled == sign_flip([*d, 0.0]) != exact
    assert sampled == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 99_999))
    assert sign_flip([1.0] * 41) == 1 / 100_000  # the observed signs are counted as a draw


def test_sums_that_differ_by_rounding_are_ties() -> None:
    assert sign_flip([0.1, 0.2, 0.3, -0.6]) == 1.0  # the sum is 5.6e-17, not 0
    assert sign_flip([0.1, 0.2, -0.3, 0.3, 0.3]) == exact_p([1, 2, -3, 3, 3])


@pytest.mark.parametrize("bad", [[], [math.nan, 1.0], [math.inf]])
def test_nothing_to_test_is_an_error(bad: list[float]) -> None:
    with pytest.raises(ValueError):
        sign_flip(bad)


def test_the_smallest_p_of_few_families() -> None:
    assert (smallest_p(6), smallest_p(8)) == (0.03125, 0.0078125)
    assert sign_flip([1.0] * 6) == smallest_p(6)


@pytest.mark.parametrize("n", [3, 8, 25])
def test_the_signed_rank_test_is_scipy_s(n: int) -> None:
    rng = np.random.default_rng(n)
    assert wilcoxon_p(d := rng.normal(0.2, 0.5, n).tolist()) == pytest.approx(wilcoxon(d, method="exact").pvalue)
    tied = (rng.integers(-3, 6, min(n, 9)) / 4).tolist()  # with ties and zeros scipy too counts signs, up to 13
    assert wilcoxon_p(tied) == pytest.approx(wilcoxon(tied).pvalue)
    assert wilcoxon_p([0.0] * n) == 1.0
    assert wilcoxon_p([0.1 + 0.2 - 0.3, 0.3 - 0.2, 0.1, 0.1]) == wilcoxon_p([1, 1, 1])


def test_holm_by_hand() -> None:
    # 4 x .005, then 3 x .01, then the larger of 2 x .03 and 1 x .04
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    with pytest.raises(ValueError):
        holm([1.2])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.randoms())
def test_holm_keeps_the_order_and_lies_between_the_raw_and_bonferroni_s(p: list[float], random: Random) -> None:
    adjusted = holm(p)
    for raw, corrected in zip(p, adjusted, strict=True):
        assert raw <= corrected <= min(1.0, len(p) * raw)
    order = sorted(range(len(p)), key=lambda i: p[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)
    shuffled = list(range(len(p)))
    random.shuffle(shuffled)
    assert holm([p[i] for i in shuffled]) == [adjusted[i] for i in shuffled]


def test_power_of_the_design() -> None:
    assert [round(power(0.05, 0.10, n), 2) for n in (8, 16, 24)] == [0.23, 0.46, 0.65]
    for n in (2, 3, 12, 24, 300):
        assert power(minimum_detectable_effect(n, 0.3), 0.3, n) == pytest.approx(0.8)
    with pytest.raises(ValueError):
        power(0.1, 0.0, 8)


def test_power_is_what_simulation_finds() -> None:
    d = np.random.default_rng(0).normal(0.05, 0.10, (20_000, 12))
    found = np.mean(ttest_1samp(d, 0.0, axis=1).pvalue < 0.05)
    assert found == pytest.approx(power(0.05, 0.10, 12), abs=0.01)


def test_selection_noise() -> None:
    chance, gain = false_acceptance(0.3, 16, 8)
    assert round(chance, 2) == 0.84 and gain == pytest.approx(0.18, abs=0.01)
    rng = np.random.default_rng(0)
    parent, best = rng.binomial(16, 0.3, 50_000), rng.binomial(16, 0.3, (50_000, 8)).max(axis=1)
    assert chance == pytest.approx(np.mean(best > parent), abs=0.01)
    assert gain == pytest.approx(np.mean((best - parent).clip(0)) / 16, abs=0.002)
    assert false_acceptance(0.0, 16, 8) == (0.0, 0.0) == false_acceptance(1.0, 16, 8)
