"""The search of a knob: near the best in a few trials, on modelled responses, and never out of bounds."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstall.model.remedy import Knob
from unstall.trials.search import Search

REST_MS = 10.0


def shared_out(cost_ms, cores, cpu_ms, crowding):
    """Return the step, ms, with n workers: they share the cost of a batch, the cores share its CPU time, or the rest bounds it."""

    def step_ms(n):
        return max(REST_MS, cost_ms / n, cpu_ms / min(n, cores)) * (1 + crowding * max(0, n - cores))

    return step_ms


RESPONSES = {
    **{
        f"saturating-{cost}-{cores}-{crowding}": shared_out(cost, cores, cpu, crowding)
        for cost in (15, 25, 60, 120, 300)
        for cores, cpu in ((4, 8), (8, 20), (16, 100), (64, 10))
        for crowding in (0, 0.01, 0.05)
    },
    "flat": lambda n: REST_MS,
    "ever-faster": lambda n: REST_MS / n,
    "ever-slower": lambda n: REST_MS + n,
}


def search(response, predicted, low, high, noise=0.0, seed=0, scale="linear"):
    """Return the finished search of *response*, its times off by *noise*."""
    rng = random.Random(seed)
    searched = Search(Knob("num_workers", predicted, low, high, scale))
    while (value := searched.next()) is not None:
        searched.tell(value, response(low) / response(value) * math.exp(rng.gauss(0, noise)))
    return searched


def starts(response, high, factor):
    """Return the predictions that are off by at most *factor* from the smallest value that is as good as the best."""
    best = min(response(n) for n in range(1, high + 1))
    right = next(n for n in range(1, high + 1) if response(n) <= 1.02 * best)
    return [n for n in range(1, high + 1) if right / factor <= n <= right * factor]


def losses_and_trials(high, factor, noise, seeds):
    """Return how far each search's value is from the best, a share, and how many trials it took."""
    found = []
    for response in RESPONSES.values():
        best = min(response(n) for n in range(1, high + 1))
        for predicted in starts(response, high, factor):
            for _ in range(seeds):
                searched = search(response, predicted, 1, high, noise, seed=len(found))
                found.append((response(searched.best()) / best - 1, len(searched.tried)))
    return found


@pytest.mark.parametrize("high", [20, 32])
def test_a_fifth_of_the_values_is_enough_to_come_within_5_percent(high):
    found = losses_and_trials(high, factor=1.5, noise=0.0, seeds=1)
    assert max(trials for _, trials in found) <= high / 5
    assert sum(loss <= 0.05 for loss, _ in found) / len(found) >= 0.97  # steep on both sides of the top in the rest
    assert max(loss for loss, _ in found) < 0.12


@pytest.mark.parametrize("high", [20, 32])
def test_noise_of_3_percent_and_a_prediction_off_by_2_leave_it_within_10_percent(high):
    found = losses_and_trials(high, factor=2, noise=0.03, seeds=2)
    assert max(trials for _, trials in found) <= high / 5
    assert sum(loss <= 0.05 for loss, _ in found) / len(found) >= 0.93
    assert sum(loss <= 0.10 for loss, _ in found) / len(found) >= 0.98


def test_it_ends_after_three_trials_where_neither_neighbour_is_better():
    searched = search(shared_out(60, 8, 20, 0.05), predicted=6, low=1, high=16)
    assert [one.value for one in searched.tried] == [6, 9, 4]
    assert searched.best() == 6


def test_it_goes_on_where_a_neighbour_is_better():
    searched = search(shared_out(300, 64, 10, 0), predicted=6, low=1, high=32)
    assert searched.best() >= 28
    assert len(searched.tried) <= 6


def test_the_cheapest_value_as_good_as_the_best_wins():
    searched = Search(Knob("num_workers", 4, 1, 16))
    searched.tell(4, 2.00)
    searched.tell(6, 2.03)
    assert searched.best() == 4


def test_a_dearer_value_more_than_2_percent_better_wins():
    searched = Search(Knob("num_workers", 4, 1, 16))
    searched.tell(4, 2.00)
    searched.tell(6, 2.05)
    assert searched.best() == 6


def test_less_is_tried_where_the_predicted_value_breaks_the_run():
    searched = Search(Knob("num_workers", 8, 1, 32))
    searched.tell(8, 0.0)
    while (value := searched.next()) is not None:
        assert value < 8
        searched.tell(value, float(value))
    assert 5 <= searched.best() < 8


def test_the_search_ends_where_nothing_runs():
    searched = Search(Knob("num_workers", 2, 1, 32))
    searched.tell(2, 0.0)
    searched.tell(1, 0.0)
    assert searched.next() is None


def test_powers_are_of_two_only():
    searched = search(shared_out(60, 8, 20, 0.05), predicted=6, low=1, high=32, scale="powers")
    assert {one.value for one in searched.tried} <= {1, 2, 4, 8, 16, 32}
    assert searched.best() == 8


def test_only_what_was_asked_for_can_be_told():
    searched = Search(Knob("num_workers", 4, 1, 8))
    with pytest.raises(ValueError, match="not asked"):
        searched.tell(5, 1.0)
    with pytest.raises(ValueError, match="ratio"):
        searched.tell(4, math.nan)


def test_the_predicted_value_is_the_best_before_any_trial():
    assert Search(Knob("num_workers", 40, 1, 8)).best() == 8


@settings(max_examples=300, deadline=None)
@given(
    low=st.integers(0, 40),
    span=st.integers(0, 60),
    predicted=st.integers(-5, 120),
    scale=st.sampled_from(["linear", "powers"]),
    ratios=st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e3)), min_size=6, max_size=6),
)
def test_never_outside_never_twice_and_always_an_end(low, span, predicted, scale, ratios):
    searched = Search(Knob("k", predicted, low, low + span, scale))
    asked = []
    while (value := searched.next()) is not None:
        assert searched.next() == value
        assert low <= value <= low + span
        assert value not in asked
        asked.append(value)
        searched.tell(value, ratios[len(asked) - 1])  # a seventh would raise
    assert searched.best() in asked
    assert [one.value for one in searched.tried] == asked
