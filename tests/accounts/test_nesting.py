"""Nests of calls against a stack that is walked call by call."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unstall.accounts.nesting import Nest


def nest_of(pairs):
    pairs = sorted(pairs, key=lambda pair: (pair[0], -pair[1]))
    start, end = np.array(pairs, np.int64).reshape(-1, 2).T
    return Nest.of(np.arange(start.size), start, end)


@st.composite
def nested(draw, depth=4, begin=0, end=40):
    """Draw intervals that nest."""
    found = []
    at = begin
    while at < end and draw(st.booleans()):
        start = draw(st.integers(at, end - 1))
        stop = draw(st.integers(start + 1, end))
        found.append((start, stop))
        if depth:
            found += draw(nested(depth - 1, start, stop))
        at = stop
    return found


@given(nested())
def test_the_innermost_call_is_the_last_that_began_of_those_open(pairs):
    pairs = list(dict.fromkeys(pairs))  # of two over the same stretch either is the innermost
    nest = nest_of(pairs)
    for at, place in zip(range(42), nest.innermost(np.arange(42)).tolist()):
        open_ = [(start, end) for start, end in pairs if start <= at < end]
        innermost = min(open_, key=lambda pair: pair[1] - pair[0], default=None)
        assert (None if place < 0 else (int(nest.start[place]), int(nest.end[place]))) == innermost


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=14))
def test_calls_that_overlap_are_cut_to_what_they_lie_in(pairs):
    nest = nest_of([(start, start + length) for start, length in pairs])
    has = nest.parent >= 0
    assert (nest.end > nest.start).all()
    assert (nest.start[nest.parent[has]] <= nest.start[has]).all()
    assert (nest.end[nest.parent[has]] >= nest.end[has]).all()
    covered = {t for start, length in pairs for t in range(start, start + length)}
    assert {t for t in range(42) if nest.innermost(np.array([t]))[0] >= 0} <= covered


def test_a_call_that_begins_with_another_and_is_shorter_lies_in_it():
    nest = nest_of([(0, 10), (0, 4), (4, 10)])
    assert nest.parent.tolist() == [-1, 0, 0]
    assert nest.innermost(np.array([0, 4, 9, 10])).tolist() == [1, 2, 2, -1]
