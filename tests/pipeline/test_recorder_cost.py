"""What the report says of the recorder's own cost."""

from __future__ import annotations

import pytest

from unstall.pipeline import STEP_COSTS_NS, step_cost_ns


@pytest.mark.parametrize(("length", "cost"), STEP_COSTS_NS)
def test_a_step_as_long_as_a_measured_one_costs_what_was_measured(length: int, cost: int) -> None:
    assert step_cost_ns(length) == pytest.approx(cost)


def test_longer_steps_cost_more_and_less_of_themselves() -> None:
    lengths = [1, 10_000, 700_000, 2_000_000, 10_000_000, 300_000_000]
    costs = [step_cost_ns(length) for length in lengths]
    assert costs == sorted(costs)
    shares = [cost / length for cost, length in zip(costs, lengths, strict=True)]
    assert shares == sorted(shares, reverse=True)
