"""Sets of moments as sorted, disjoint intervals: union, minus, intersect, and how much of one lies in another.

Shape legend: N, M intervals, K moments.  Integer nanoseconds; an interval holds its start and not its end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
Members = NDArray[np.bool_]


def union(start: Times, end: Times) -> Times:
    """Return the moments that some interval covers.

    Args:
        start, end: int64 (N,), ns, in any order; intervals may overlap, those without length are dropped.
    Returns:
        int64 (M, 2), sorted, disjoint; intervals that touch are made one.
    Cost: O(N log N), O(N) where they are sorted by start.
    """
    lasting = end > start
    start, end = start[lasting], end[lasting]
    if not start.size:
        return np.zeros((0, 2), np.int64)
    if (np.diff(start) < 0).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate([[True], start[1:] > reach[:-1]]))
    last = np.append(first[1:], start.size) - 1
    return np.stack([start[first], reach[last]], axis=1)


def distinct(*parts: Times) -> Times:
    """Return the moments of *parts*, int64 each, in order, each once.

    np.unique hashes from numpy 2.3 on, which took four times as long; the sort merges parts that are in order.
    """
    every = np.sort(np.concatenate(parts), kind="stable")
    return every[np.concatenate([[True], every[1:] != every[:-1]])] if every.size else every


def total(a: Times) -> int:
    """Return the ns that the disjoint intervals *a*, int64 (N, 2), cover."""
    return int((a[:, 1] - a[:, 0]).sum())


def intersect(a: Times, b: Times) -> Times:
    """Return the moments of both *a* and *b*, each int64 (N, 2), sorted and disjoint.

    Cost: O((N + M) log (N + M)).
    """
    return _where(a, b, lambda in_a, in_b: in_a & in_b)


def minus(a: Times, b: Times) -> Times:
    """Return the moments of *a* that are not in *b*, each int64 (N, 2), sorted and disjoint.

    Cost: O((N + M) log (N + M)).
    """
    return _where(a, b, lambda in_a, in_b: in_a & ~in_b)


def covered(a: Times, at: Times) -> Times:
    """Return how many ns of *a*, int64 (N, 2), sorted and disjoint, lie before each moment of *at*, int64 (K,)."""
    if not a.shape[0]:
        return np.zeros(at.size, np.int64)
    before = np.concatenate([[0], np.cumsum(a[:, 1] - a[:, 0])])
    begun = np.searchsorted(a[:, 0], at, side="right")
    last = np.maximum(begun, 1) - 1
    return np.asarray(before[begun] - np.where(begun > 0, np.maximum(0, a[last, 1] - at), 0), np.int64)


def overlap(start: Times, end: Times, a: Times) -> Times:
    """Return how many ns of *a* lie within each of the intervals from *start* to *end*, int64 (K,) each."""
    return covered(a, end) - covered(a, start)


def inside(at: Times, a: Times) -> Members:
    """Return which moments of *at*, int64 (K,), lie in *a*."""
    begun = np.searchsorted(a[:, 0], at, side="right") - 1
    if not a.shape[0]:
        return np.zeros(at.size, np.bool_)
    return np.asarray((begun >= 0) & (at < a[np.maximum(begun, 0), 1]), np.bool_)


def first_come(start: Times, end: Times) -> tuple[Times, Times]:
    """Return the intervals with each moment left to the one that began first: disjoint, some of no length.

    Args:
        start, end: int64 (N,), by start.
    """
    if not start.size:
        return start, end
    before = np.concatenate([start[:1], np.maximum.accumulate(end)[:-1]])
    begin = np.maximum(start, before)
    return begin, np.maximum(begin, end)


def _where(a: Times, b: Times, wanted: Callable[[Members, Members], Members]) -> Times:
    edges = distinct(a.ravel(), b.ravel())
    if edges.size < 2:
        return np.zeros((0, 2), np.int64)
    begin, end = edges[:-1], edges[1:]
    keep = wanted(inside(begin, a), inside(begin, b))
    return union(begin[keep], end[keep])
