"""Growth of the step time, and its interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import MS, B, F, N, U, outside, rank, row, rows, run

from unstall.accounts.trend import slope_of
from unstall.model.tables import Trend
from unstall.model.wire import Phase
from unstall.pipeline import account


def trend_of(lengths_ms: list[float]) -> Trend | None:
    table = [outside({U: MS}), *[row({F: 5 * MS, B: int(ms * MS)}) for ms in lengths_ms], outside({N: MS})]
    return account(run(rank(rows(table))))[1].trend


def test_growth_is_told_with_its_interval_and_its_phase() -> None:
    found = trend_of([10 + 0.2 * n for n in range(60)])
    assert found is not None
    assert found.growth_ns_per_step == pytest.approx(0.2 * MS, rel=1e-6)
    assert found.growth_low == pytest.approx(0.2 * MS, rel=1e-6) and found.growth_high == pytest.approx(
        0.2 * MS, rel=1e-6
    )
    by_phase = dict(found.by_phase)
    assert by_phase[Phase.BACKWARD] == pytest.approx(0.2 * MS, rel=1e-6) and by_phase[Phase.FORWARD] == 0
    assert found.first_ns < found.last_ns


def test_a_few_wild_steps_are_no_growth() -> None:
    lengths = [10.0] * 80
    lengths[70] = lengths[75] = 400.0
    found = trend_of(lengths)
    assert found is not None and found.growth_ns_per_step == 0


def test_too_few_steps_tell_nothing() -> None:
    assert trend_of([10.0] * 12) is None  # the first is warm-up
    assert trend_of([10.0] * 13) is not None


def test_noise_alone_is_called_growth_no_more_often_than_the_interval_says() -> None:
    random = np.random.default_rng(0)
    x = np.arange(40.0)
    outside_zero = 0
    for _ in range(400):
        _, low, high = slope_of(x, random.normal(100, 10, 40))
        outside_zero += not low <= 0 <= high
    assert outside_zero <= 400 * 0.05 + 3 * np.sqrt(400 * 0.05 * 0.95)  # 5 % of the time, and three standard errors


def test_growth_in_noise_is_inside_the_interval_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    x = np.arange(40.0)
    inside = sum(
        low <= 2 <= high for _ in range(400) for _, low, high in [slope_of(x, 2 * x + random.normal(0, 30, 40))]
    )
    assert inside >= 400 * 0.95 - 3 * np.sqrt(400 * 0.05 * 0.95)


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=3, max_size=30), st.integers(-(10**6), 10**6))
def test_slope_moves_with_an_added_line_and_not_with_a_constant(y: list[int], by: int) -> None:
    x, values = np.arange(len(y), dtype=float), np.array(y, float)
    plain = slope_of(x, values)
    assert slope_of(x, values + 10**9) == pytest.approx(plain, abs=1e-3)
    assert slope_of(x, values + by * x) == pytest.approx(tuple(slope + by for slope in plain), abs=1e-3)


def test_many_steps_are_thinned_and_still_tell_the_slope() -> None:
    x = np.arange(5000.0)
    assert slope_of(x, 3 * x)[0] == pytest.approx(3)
