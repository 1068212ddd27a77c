"""Hours and money of a job from proved ratios."""

import pytest

from unstall.model.report import Job
from unstall.model.trial import Ratio
from unstall.trials.hours import HOUR_NS, hours, pays_after

THREE = Ratio(value=3.0, low=2.5, high=4.0, pairs=6)


def test_a_job_of_hours_without_start_up_shortens_by_the_ratio():
    found = hours(Job(hours=60.0, price_per_hour=2.5), start_ns=0, step_ns=1e9, step=THREE)
    assert (found.now, found.then, found.then_low, found.then_high) == pytest.approx((60.0, 20.0, 15.0, 24.0))
    assert found.saved_money == pytest.approx(100.0)


def test_a_start_that_nobody_shortened_stays_as_long():
    found = hours(Job(hours=61.0), start_ns=HOUR_NS, step_ns=1e9, step=THREE)
    assert (found.now, found.then, found.then_high) == pytest.approx((61.0, 21.0, 25.0))


def test_start_and_steps_shorten_each_by_its_own_ratio():
    longer_start = Ratio(value=0.5, low=0.4, high=0.8, pairs=6)
    found = hours(Job(steps=3600), start_ns=HOUR_NS, step_ns=3e9, step=THREE, start=longer_start)
    assert (found.now, found.then) == pytest.approx((4.0, 3.0))
    assert (found.then_low, found.then_high) == pytest.approx((1 / 0.8 + 3 / 4.0, 1 / 0.4 + 3 / 2.5))


def test_a_job_shorter_than_its_start_is_all_start():
    assert hours(Job(hours=0.5), start_ns=HOUR_NS, step_ns=1e9, step=THREE).then == pytest.approx(0.5)


def test_nothing_is_said_of_a_job_of_unknown_length():
    assert hours(Job(price_per_hour=2.5), start_ns=0, step_ns=1e9, step=THREE) is None


def test_no_money_is_said_without_a_price():
    assert hours(Job(hours=60.0), start_ns=0, step_ns=1e9, step=THREE).saved_money is None


def test_a_start_of_90_s_that_saves_a_millisecond_a_step_pays_after_90000_steps():
    assert pays_after(5e9, 95e9, 40e6, 39e6) == 90_000


def test_a_part_of_a_step_counts_as_one():
    assert pays_after(0, 100, 40, 33) == 15


@pytest.mark.parametrize("times", [(100, 90, 40, 30), (100, 100, 40, 30)])
def test_a_start_that_is_not_dearer_has_nothing_to_pay_back(times):
    assert pays_after(*times) is None


@pytest.mark.parametrize("times", [(90, 100, 40, 40), (90, 100, 40, 41)])
def test_a_dearer_start_is_never_paid_back_by_steps_no_cheaper(times):
    assert pays_after(*times) is None
