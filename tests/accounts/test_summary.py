"""Step times of rows that stand for several steps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unstall.accounts.summary import step_times
from unstall.model.report import StepTimes
from unstall.model.steps import Steps


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 9)), min_size=1, max_size=30))
def test_a_rolled_up_row_counts_as_often_as_it_has_steps(rows):
    length, weight = np.array(rows, np.int64).T
    end = np.cumsum(length * weight)
    start = end - length * weight
    steps = Steps(start[:, None], end[:, None], np.ones(len(rows), np.bool_), weight.astype(np.int32))
    p10, median, p90 = np.percentile(np.repeat(length, weight), (10, 50, 90))
    found = step_times(steps)
    assert found is not None
    for value, expected in zip((found.p10, found.median, found.p90), (p10, median, p90)):
        assert abs(value - expected) <= 1  # ns, of rounding


def test_a_row_of_a_billion_steps_takes_no_memory():
    many = 10**9
    steps = Steps(np.array([[0]]), np.array([[many * 1000]]), np.ones(1, np.bool_), np.array([many], np.int32))
    assert step_times(steps) == StepTimes(1000, 1000, 1000)
