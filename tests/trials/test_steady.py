"""The warm-up ends where the length of a step last changes its level; single long steps are no level."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.trials.steady import warmup_of

MS = 1_000_000


def noisy(level_ms, count, seed=0, spread=0.03):
    return (level_ms * MS * np.exp(np.random.default_rng(seed).normal(0, spread, count))).astype(np.int64)


def test_a_long_start_of_a_few_steps_is_left_out():
    assert warmup_of(np.concatenate([noisy(80, 3), noisy(10, 57)])) == 3


def test_a_long_warm_up_is_left_out_to_its_end():
    assert warmup_of(np.concatenate([noisy(15, 25), noisy(10, 75)])) == pytest.approx(25, abs=2)


def test_of_several_levels_the_last_one_is_compared():
    warm = warmup_of(np.concatenate([noisy(30, 15), noisy(5, 20, 1), noisy(10, 65, 2)]))
    assert warm is not None and 34 <= warm <= 42  # rather a few steps too late than too early


def test_a_checkpoint_every_ten_steps_is_no_change_of_level():
    steps = noisy(10, 80)
    steps[9::10] *= 8
    assert warmup_of(steps) == 1


def test_a_drift_of_some_percent_is_no_change_of_level():
    assert warmup_of((noisy(10, 90) * np.linspace(1, 1.06, 90)).astype(np.int64)) == 1


def test_a_level_that_changes_late_is_no_steady_state():
    assert warmup_of(np.concatenate([noisy(10, 70), noisy(20, 30)])) is None


def test_of_many_short_steps_a_disturbed_moment_is_no_change_of_level():
    steps = noisy(1, 2000)
    steps[1800:1830] *= 2
    assert warmup_of(steps) == 1


def test_a_warm_up_too_short_for_blocks_is_left_out_all_the_same():
    warm = warmup_of(np.concatenate([noisy(2, 40), noisy(1, 1960, 1)]))
    assert warm is not None and 38 <= warm <= 60


def test_a_level_that_changes_late_is_no_steady_state_of_many_steps_either():
    assert warmup_of(np.concatenate([noisy(1, 1500), noisy(2, 500)])) is None


@given(st.integers(0, 200), st.integers(0, 50))
def test_the_warm_up_lies_within_the_run_and_leaves_a_third_of_it(count, seed):
    steps = np.random.default_rng(seed).integers(1, 40, count) * MS
    warm = warmup_of(steps)
    assert warm is None or 1 <= warm <= max(1, 2 / 3 * count)
