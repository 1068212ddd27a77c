"""Ratios, their intervals and probabilities from paired logs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unstall.trials.statistics import p_faster, ratio_of, spread_of

LOGS = [0.10, 0.14, 0.08, 0.12]


def test_the_ratio_is_the_geometric_mean_of_the_pairs_ratios():
    assert ratio_of([math.log(2.0), math.log(8.0)]).value == pytest.approx(4.0)


def test_the_interval_is_student_s_over_the_pairs():
    ratio = ratio_of(LOGS)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(LOGS), scale=stats.sem(LOGS))
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert ratio.pairs == 4


def test_more_confidence_is_a_wider_interval():
    assert ratio_of(LOGS, 0.99).low < ratio_of(LOGS).low
    assert ratio_of(LOGS, 0.99).high > ratio_of(LOGS).high


def test_one_pair_gives_no_interval():
    with pytest.raises(ValueError, match="two pairs"):
        ratio_of([0.1])
    with pytest.raises(ValueError, match="two pairs"):
        p_faster([0.1])


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_a_log_that_is_no_number_is_refused(wrong):
    with pytest.raises(ValueError, match="not finite"):
        ratio_of([0.1, wrong])


def test_95_percent_of_the_intervals_hold_the_true_ratio():
    rng, held, runs = np.random.default_rng(7), 0, 2000
    for _ in range(runs):
        ratio = ratio_of(rng.normal(math.log(1.3), 0.05, 4))
        held += ratio.low <= 1.3 <= ratio.high
    low, high = stats.binom.ppf([0.001, 0.999], runs, 0.95)
    assert low <= held <= high


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=12))
def test_swapping_the_arms_turns_the_ratio_around(logs):
    there, back = ratio_of(logs), ratio_of([-log for log in logs])
    assert (back.value, back.low, back.high) == pytest.approx((1 / there.value, 1 / there.high, 1 / there.low))


def test_the_probability_is_that_of_the_one_sided_t_test():
    assert p_faster(LOGS) == pytest.approx(stats.ttest_1samp(LOGS, 0, alternative="greater").pvalue)


def test_slower_pairs_are_improbable_as_faster_ones_only_the_other_way():
    assert p_faster([-log for log in LOGS]) == pytest.approx(1 - p_faster(LOGS))


@pytest.mark.parametrize(("logs", "p"), [([0.1, 0.1], 0.0), ([0.0, 0.0], 0.5), ([-0.1, -0.1], 1.0)])
def test_pairs_all_alike_leave_no_doubt(logs, p):
    assert p_faster(logs) == p


def test_the_spread_is_the_usual_difference_of_two_runs():
    assert spread_of([100.0, 103.0]) == pytest.approx(0.03)
    assert spread_of([100.0, 102.0, 102.0]) == pytest.approx(0.02)


def test_one_disturbed_run_does_not_make_the_spread():
    assert spread_of([100.0, 101.0, 102.0, 103.0, 104.0, 300.0]) < 0.05


def test_one_run_has_no_spread():
    assert spread_of([100.0]) is None
    assert spread_of([]) is None


def test_a_time_of_nothing_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        spread_of([100.0, 0.0])
