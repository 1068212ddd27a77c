"""Calibrated bounds hold as often as they say, keep to what is possible, and leave what was claimed to be read."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unstall
from unstall.accounts.calibration import (
    COVERAGE,
    FILE,
    Scores,
    calibrate,
    calibrated,
    known,
    left,
    quantile,
    quantiles,
    score_of,
    unit,
    wholes,
    widened,
)
from unstall.model.finding import Finding, Line, Saving, Scope, Weight
from unstall.model.ledger import OUTSIDE, Activity, Basis, Device, Ledger, Phase

MS = 1_000_000
LEAST_ROWS = 19  # that say something
# twenty scores, the twentieth smallest of which counts: 0.20 below, 0.10 above
TWENTY = Scores({"data/a": tuple((n / 100, n / 200) for n in range(1, 21))})


def drawn_left(rng: np.random.Generator, count: int) -> list[tuple[tuple[float, float, float], float]]:
    """Return claims, (whole, low, high), beside what was left: exchangeable, and mostly outside, as arithmetic is."""
    middle = rng.uniform(0.1, 0.95, count)
    half = rng.uniform(0.01, 0.2, count)
    measured = middle * np.exp(rng.standard_t(3, count) * 0.3 - 0.1)  # heavy tails, and more is saved than was said
    return [((1.0, 1 - m * math.exp(h), 1 - m * math.exp(-h)), float(x)) for m, h, x in zip(middle, half, measured)]


@pytest.mark.parametrize("count", [19, 39, 59])
def test_one_more_exchangeable_row_is_held_as_often_as_is_said(count):
    rng, held, rounds = np.random.default_rng(count), 0, 4000
    for _ in range(rounds):
        *rows, (claim, measured) = drawn_left(rng, count + 1)
        by = quantiles([score_of(*other, seen) for other, seen in rows])
        low, high = widened(*claim, by)
        held += low <= measured <= high
    slack = 3 * math.sqrt(COVERAGE * (1 - COVERAGE) / rounds)  # of the count; the law of each bound is exact
    assert COVERAGE - slack <= held / rounds <= COVERAGE + 2 / (count + 1) + slack


def test_the_claims_that_are_drawn_do_not_hold_so_often_by_themselves():
    rows = drawn_left(np.random.default_rng(0), 2000)
    assert sum(whole - high <= measured <= whole - low for (whole, low, high), measured in rows) / len(rows) < 0.5


@pytest.mark.parametrize("count", range(LEAST_ROWS))
def test_too_few_scores_say_nothing(count):
    assert quantiles([(0.1, 0.1)] * count) is None
    assert calibrated(Saving(2, 5), "data", 10, Scores({"data/a": ((0.1, 0.1),) * count})) == Saving(2, 5)


def test_the_quantile_is_the_score_that_the_next_one_is_at_most():
    assert quantile(range(1, 20), 0.95) == 19
    assert quantile(range(1, 40), 0.95) == 38
    assert quantile(range(1, 60), 0.95) == 57
    assert quantile(range(1, 10), 0.9) == 9


def test_a_score_is_the_distance_from_each_bound_and_negative_on_its_inner_side():
    claim = 100, 20, 50  # its unit is 100 x (0.5 x 0.5 + 0.05); 50 to 80 are left
    assert score_of(*claim, 95) == pytest.approx((-45 / 30, 15 / 30))
    assert score_of(*claim, 40) == pytest.approx((10 / 30, -40 / 30))
    assert score_of(*claim, 60) == pytest.approx((-10 / 30, -20 / 30))


def test_a_claim_may_be_wrong_by_a_share_of_what_is_saved_or_left_and_by_the_noise_of_runs():
    assert unit(100, 1) == pytest.approx(100 * (0.01 * 0.99 + 0.05))
    assert unit(100, 99) == pytest.approx(unit(100, 1))
    assert unit(100, 100) == unit(100, 130) == unit(100, 0) == 5


def test_a_small_claim_is_given_no_wide_bounds():
    mild = calibrated(Saving(1 * MS, 3 * MS), "data", 100 * MS, TWENTY)
    assert mild.high_ns < 5 * MS


def test_each_bound_of_the_time_that_is_left_is_moved_by_its_own_quantile():
    found = calibrated(Saving(40 * MS, 50 * MS), "data", 100 * MS, TWENTY)
    assert found.low_ns == 40 * MS - round(0.1 * 30 * MS)
    assert found.high_ns == 50 * MS + round(0.2 * 30 * MS)
    assert (found.calibrated.coverage, found.calibrated.of, found.calibrated.family) == (0.9, 20, "data")


def test_what_was_claimed_can_still_be_read():
    claimed = Saving(40 * MS, 50 * MS)
    assert calibrated(claimed, "data", 100 * MS, TWENTY).claimed == claimed == claimed.claimed


def test_bounds_that_hold_more_than_is_said_are_drawn_together_and_never_turned_around():
    inside = Scores({"data/a": ((-0.05, -0.05),) * 19})
    found = calibrated(Saving(20 * MS, 60 * MS), "data", 100 * MS, inside)
    assert 20 * MS < found.low_ns < found.high_ns < 60 * MS
    narrow = calibrated(Saving(40 * MS, 41 * MS), "data", 100 * MS, inside)
    assert narrow.low_ns == narrow.high_ns and 40 * MS < narrow.low_ns < 41 * MS


@given(
    st.integers(1, 10**12),
    st.integers(0, 2 * 10**12),
    st.integers(0, 2 * 10**12),
    st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
)
def test_a_calibrated_saving_is_possible(whole, one, other, score):
    low, high = sorted((one, other))
    found = calibrated(Saving(low, high), "data", whole, Scores({"data/a": (score,) * 19}))
    if high:
        assert 0 <= found.low_ns <= found.high_ns <= whole
    assert found.claimed == Saving(low, high)


@pytest.mark.parametrize("saving", [Saving(0, 0), Saving(2, 5, "proved"), Saving(2, 5, "ablation")])
def test_what_is_no_arithmetic_or_saves_nothing_stays(saving):
    assert calibrated(saving, "data", 10, TWENTY) is saving


def test_a_saving_is_calibrated_once():
    once = calibrated(Saving(2, 5), "data", 10, TWENTY)
    assert calibrated(once, "data", 10, TWENTY) is once


def test_a_family_with_too_few_scores_is_lent_none_by_others():
    one, two, three = ((0.1, 0.0),) * 16, ((0.2, 0.0),) * 3, ((0.9, 0.0),) * 18
    scores = Scores({"data/a": one, "data/b": two, "io/c": three})
    assert scores.of("data") == one + two and scores.of("memory") == ()
    assert calibrated(Saving(2, 5), "data", 10, scores).calibrated is not None
    assert calibrated(Saving(2, 5), "io", 10, scores) == Saving(2, 5)


def test_what_is_left_is_never_below_nothing():
    assert left(100, 0, 100) == (0, 100)
    assert left(100, 120, 150) == (0, 0)


# ---------------------------------------------------------------- in a report


def finding(scope=Scope.STEADY, saving=None, cause="data/a"):
    return Finding(cause, "slow", Line("t.py", 1), scope, (), Weight.TIMED, Basis.MEASURED, (), saving, share=0.5)


def test_only_the_saving_of_a_finding_changes_and_their_order_stays():
    whole = {Scope.STEADY: 100, Scope.PERIODIC: 1000, Scope.STARTUP: 5000}
    given_ = (finding(saving=Saving(40, 50)), finding(), finding(Scope.STARTUP, Saving(4000, 5000), "data/b"))
    found = calibrate(given_, whole, TWENTY)
    assert [one.cause for one in found] == ["data/a", "data/a", "data/b"]
    assert [one.share for one in found] == [0.5] * 3
    assert found[1] is given_[1] or found[1] == given_[1]
    assert found[0].saving.high_ns == 50 + round(0.2 * 30)
    assert found[2].saving.high_ns == 5000  # not more than there is


def test_a_saving_is_taken_from_the_step_the_loop_or_the_start_of_one_rank():
    phases = [Phase.STARTUP, Phase.FORWARD, Phase.FORWARD, Phase.EVALUATE, Phase.SHUTDOWN]
    ns = [100, 20, 40, 30, 10]
    ledger = Ledger(
        step=np.array([OUTSIDE, 0, 1, OUTSIDE, OUTSIDE] * 2, np.int32),
        rank=np.repeat(np.arange(2, dtype=np.uint8), 5),
        phase=np.array(phases * 2, np.uint8),
        activity=np.full(10, Activity.COMPUTE, np.uint8),
        device=np.full(10, Device.NONE, np.uint8),
        basis=np.full(10, Basis.MEASURED, np.uint8),
        ns=np.array(ns * 2, np.int64),
        wall_R=np.array([200, 200], np.int64),
    )
    assert wholes(ledger, 40, 1) == {Scope.STEADY: 40, Scope.PERIODIC: 90, Scope.STARTUP: 160}


# ---------------------------------------------------------------- the file that comes with it


def test_the_scores_that_come_with_it_are_read_and_finite():
    scores = known()
    assert all(re.fullmatch(r"[a-z]+/[a-z0-9-]+", cause) for cause in scores.by_cause)
    assert all(math.isfinite(side) for found in scores.by_cause.values() for score in found for side in score)


def test_the_scores_lie_in_the_package_and_the_wheel_is_asked_for_them():
    root = Path(unstall.__file__).parent
    inside = FILE.relative_to(root.parent).as_posix()
    ci = root.parent.parent / ".ci" / "run"
    if not ci.exists():
        pytest.skip("an installed package has no CI script")
    assert f'"{inside}"' in ci.read_text()
