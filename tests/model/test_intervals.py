"""Intervals against sets of moments."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unstall.model import intervals

raw = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12).map(
    lambda pairs: np.array([(start, start + length) for start, length in pairs], np.int64).reshape(-1, 2)
)
disjoint = raw.map(lambda pairs: intervals.union(pairs[:, 0], pairs[:, 1]))


def moments(pairs):
    return {at for start, end in pairs.tolist() for at in range(start, end)}


def is_canonical(pairs):
    return (pairs[:, 1] > pairs[:, 0]).all() and (pairs[1:, 0] > pairs[:-1, 1]).all()


@given(raw)
def test_a_union_covers_what_some_interval_covers(pairs):
    made = intervals.union(pairs[:, 0], pairs[:, 1])
    assert moments(made) == moments(pairs)
    assert is_canonical(made)
    assert intervals.total(made) == len(moments(pairs))


@given(disjoint, disjoint)
def test_minus_and_intersect_are_those_of_sets(a, b):
    assert moments(intervals.minus(a, b)) == moments(a) - moments(b)
    assert moments(intervals.intersect(a, b)) == moments(a) & moments(b)
    assert is_canonical(intervals.minus(a, b)) and is_canonical(intervals.intersect(a, b))


@given(raw, disjoint)
def test_overlap_counts_the_moments_in_common(pairs, a):
    found = intervals.overlap(pairs[:, 0], pairs[:, 1], a)
    assert found.tolist() == [len(moments(pairs[n : n + 1]) & moments(a)) for n in range(len(pairs))]


@given(disjoint)
def test_a_moment_is_inside_from_the_start_until_before_the_end(a):
    at = np.arange(-2, 42)
    assert {int(t) for t in at[intervals.inside(at, a)]} == moments(a)


@given(raw)
def test_each_moment_goes_to_the_first_that_came(pairs):
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    begin, end = intervals.first_come(pairs[:, 0], pairs[:, 1])
    kept = [moments(np.array([pair])) for pair in zip(begin.tolist(), end.tolist())]
    assert set().union(*kept) == moments(pairs)
    assert sum(map(len, kept)) == len(moments(pairs))
    assert all(part <= moments(pairs[n : n + 1]) for n, part in enumerate(kept))
