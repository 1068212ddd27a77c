"""Which call lies in which on one thread, and which is the innermost at a moment.

Shape legend: K calls of one thread, M moments, L levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from unstall.model.trace import NONE

Times = NDArray[np.int64]
Rows = NDArray[np.intp]
Whole = TypeVar("Whole", np.int32, np.int64)
_ROUNDS = 8  # of cutting calls to what they lie in; two are enough for times that are rounded to a microsecond


@dataclass(frozen=True, slots=True)
class Nest:
    """Calls of one thread, those without length left out.

    Attributes:
        row: intp (K,), rows of `Calls`, ascending.
        start, end: int64 (K,), ns; a call that outlasts the one it lies in is cut to it.
        parent: intp (K,), place in this table of the call that it lies in, or NONE.
        depth: int64 (K,), how many calls it lies in.
    """

    row: Rows
    start: Times
    end: Times
    parent: Rows
    depth: Times

    @classmethod
    def of(cls, row: Rows, start: Times, end: Times) -> Nest:
        """Return the nest of the calls *row*; int64 start and end of these, by start, the longer first.

        Cost: O(K log K).
        """
        lasting = end > start
        row, start, end = row[lasting], start[lasting], end[lasting]
        depth, parent = _levels(start, end)
        for _ in range(_ROUNDS):
            until = np.where(parent >= 0, end[parent], end)
            astray = (end > until) & (until > start)
            if not astray.any():
                break
            end = np.where(astray, until, end)
            depth, parent = _levels(start, end)
        return cls(row, start, end, parent, depth)

    def levels(self) -> Iterator[Rows]:
        """Yield the places of the calls that lie in none, then of those that lie in one, and so on."""
        order = np.argsort(self.depth.astype(np.int16), kind="stable")
        yield from np.split(order, np.cumsum(np.bincount(self.depth))[:-1]) if order.size else ()

    def innermost(self, at: Times) -> Rows:
        """Return the place of the innermost call open at each moment of *at*, int64 (M,); NONE where none is.

        Cost: O(M log K), and once more for each level that is climbed.
        """
        found = np.searchsorted(self.start, at, side="right").astype(np.intp) - 1
        climbing = np.flatnonzero(found >= 0)
        while climbing.size:
            climbing = climbing[self.end[found[climbing]] <= at[climbing]]
            found[climbing] = self.parent[found[climbing]]
            climbing = climbing[found[climbing] >= 0]
        return found


def _levels(start: Times, end: Times) -> tuple[Times, Rows]:
    """Return how many calls each lies in, and the last one before it that is one level further out."""
    depth = np.arange(start.size) - np.searchsorted(np.sort(end), start, side="right")
    parent = np.full(start.size, NONE, np.intp)
    order = np.argsort(depth.astype(np.int16), kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(depth))])
    for level in range(1, bounds.size - 1):
        outer, inner = order[bounds[level - 1] : bounds[level]], order[bounds[level] : bounds[level + 1]]
        parent[inner] = outer[np.searchsorted(outer, inner) - 1]
    parent[(parent >= 0) & (end[parent] <= start)] = NONE  # it had ended: calls that overlap and do not nest
    return depth, parent


def at_rows(row: NDArray[np.int32], column: NDArray[Whole]) -> NDArray[Whole]:
    """Return *column* at each row, 0 where that is NONE."""
    if not column.size:
        return np.zeros(row.size, column.dtype)
    found = column[np.maximum(row, 0)]
    found[row < 0] = 0
    return found
