"""Largest remainder: whole nanoseconds divided by shares."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from unstall.accounts.largest_remainder import divide

totals = st.integers(0, 10**17)  # three years of ns
weights = st.lists(st.floats(0, 1e9), min_size=1, max_size=8).map(np.array)


@given(totals, weights)
def test_parts_add_up_exactly_and_none_is_negative(total: int, shares: np.ndarray) -> None:
    parts = divide(total, shares)
    assert int(parts.sum()) == total
    assert (parts >= 0).all()


@given(st.integers(0, 10**6), st.lists(st.integers(0, 1000), min_size=1, max_size=6))
def test_each_part_is_within_one_of_its_exact_share(total: int, shares: list[int]) -> None:
    if sum(shares):
        for part, share in zip(divide(total, np.array(shares, float)), shares, strict=True):
            assert abs(Fraction(int(part)) - Fraction(total * share, sum(shares))) < 1 + Fraction(1, 1000)


@given(st.integers(0, 2**52), weights)  # beyond, a float's own steps are longer than 1 ns
def test_a_larger_weight_gets_no_smaller_part(total: int, shares: np.ndarray) -> None:
    assume(shares.any())  # no weight at all gives everything to the first part
    parts = divide(total, shares)
    order = np.argsort(shares, kind="stable")
    assert (
        np.diff(parts[order]) >= -1
    ).all()  # of two weights that float rounding makes equal, the first gets the odd one


def test_a_part_without_weight_gets_nothing() -> None:
    assert divide(10**9 + 1, np.array([0.0, 3.0, 0.0, 7.0]))[[0, 2]].tolist() == [0, 0]


def test_no_weight_at_all_gives_everything_to_the_first() -> None:
    assert divide(7, np.zeros(3)).tolist() == [7, 0, 0]


@given(st.integers(1, 10**6), st.lists(st.integers(1, 100), min_size=1, max_size=5))
def test_equal_parts_differ_by_one_at_most(total: int, sizes: list[int]) -> None:
    parts = divide(total, np.ones(len(sizes)))
    assert max(Counter(parts.tolist())) - min(Counter(parts.tolist())) <= 1
