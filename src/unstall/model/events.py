"""The one event model: what happened, on which lane, from when to when.

Shape legend: N events, L lanes.  Integer nanoseconds on one clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.model.wire import Kind

__all__ = ["Events", "Kind"]

MAIN = 0  # lane of the training thread


@dataclass(frozen=True, slots=True)
class Events:
    """A table of events in columns, sorted by start.

    Attributes:
        start_ns, end_ns: int64 (N,), ns; ``end_ns >= start_ns``.
        kind: uint8 (N,), values of `Kind`.
        lane: int32 (N,), index into *lanes*; lane 0 is the training thread.
        name: int32 (N,), index into *names*.
        step: int32 (N,), the step it began in, or -1.
        value: int64 (N,); what it holds depends on the kind, see `Kind`.
        lanes: one label a lane (L,).
        names: interned names.

    Raises:
        ValueError: When a column's length differs, starts are out of order or an end lies before its start.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kind: NDArray[np.uint8]
    lane: NDArray[np.int32]
    name: NDArray[np.int32]
    step: NDArray[np.int32]
    value: NDArray[np.int64]
    lanes: tuple[str, ...] = ("main",)
    names: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        n = self.start_ns.size
        if any(c.size != n for c in (self.end_ns, self.kind, self.lane, self.name, self.step, self.value)):
            raise ValueError("event columns differ in length")
        if n and ((np.diff(self.start_ns) < 0).any() or (self.end_ns < self.start_ns).any()):
            raise ValueError("events are out of order, or one ends before it starts")

    @classmethod
    def empty(cls) -> Events:
        i64, i32 = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return cls(i64, i64, np.zeros(0, np.uint8), i32, i32, i32, i64)

    def of(self, *kinds: Kind) -> NDArray[np.intp]:
        """Return the rows whose kind is one of *kinds*, in time order."""
        return np.flatnonzero(np.isin(self.kind, kinds))

    def spent_ns(self, *kinds: Kind) -> int:
        """Return the summed length of the events of *kinds* (overlaps counted twice)."""
        rows = self.of(*kinds)
        return int((self.end_ns[rows] - self.start_ns[rows]).sum())

    def name_of(self, row: int) -> str:
        return self.names[int(self.name[row])]
