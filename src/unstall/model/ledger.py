"""The ledger: every nanosecond of every rank, entered once.

Shape legend: E entries.  The table is sparse: one row an entry, because of the
PHASE x ACTIVITY x DEVICE cells of a step nine in ten are empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from unstall.model.wire import Activity, Device, Phase

__all__ = ["OUTSIDE", "Activity", "Basis", "Device", "Ledger", "Phase"]

OUTSIDE = -1  # the `step` of time that lies before the first step, after the last, or between two


class Basis(IntEnum):
    """How an entry's label is known; its sum with the others is exact in any case."""

    MEASURED = 0  # an interval was timed
    SAMPLED = 1  # apportioned from stack samples or counters, largest remainder
    RESIDUAL = 2  # what is left of a timed interval, or time nobody could see


@dataclass(frozen=True, slots=True)
class Ledger:
    """Time by step, rank, phase, activity, device and basis.

    Attributes:
        step: int32 (E,), index into `Steps`, or OUTSIDE.
        rank, phase, activity, device, basis: uint8 (E,); rank is an index into `Run.ranks`.
        ns: int64 (E,), > 0.
        wall_R: int64 (R,), ns from spawn to reap of each rank; its entries add up to it exactly.

    Raises:
        ValueError: When a rank's entries do not add up to its wall time.
    """

    step: NDArray[np.int32]
    rank: NDArray[np.uint8]
    phase: NDArray[np.uint8]
    activity: NDArray[np.uint8]
    device: NDArray[np.uint8]
    basis: NDArray[np.uint8]
    ns: NDArray[np.int64]
    wall_R: NDArray[np.int64]

    def __post_init__(self) -> None:
        for r, wall in enumerate(self.wall_R):
            total = int(self.ns[self.rank == r].sum())
            if total != int(wall):
                raise ValueError(f"rank {r}: entries add up to {total} ns, the rank ran for {wall} ns")
        if (self.ns < 0).any():
            raise ValueError("an entry is negative")

    @classmethod
    def of(cls, entries: Iterable[tuple[int, int, int, int, int, int]], wall_ns: Sequence[int]) -> Ledger:
        """Return the ledger of *entries*: (step, rank, phase, activity, basis, ns), on a machine without a device."""
        step, rank, phase, activity, basis, ns = np.array(list(entries), np.int64).reshape(-1, 6).T
        small = np.uint8
        return cls(
            step.astype(np.int32), rank.astype(small), phase.astype(small), activity.astype(small),
            np.full(step.size, Device.NONE, small), basis.astype(small), ns, np.array(wall_ns, np.int64),
        )  # fmt: skip

    def rows(
        self,
        *,
        steps: Collection[int] | NDArray[np.integer] | None = None,
        rank: int | None = None,
        phase: Collection[Phase] | Phase | None = None,
        activity: Collection[Activity] | Activity | None = None,
    ) -> NDArray[np.bool_]:
        """Return bool (E,): the entries that match every argument given."""
        keep = np.ones(self.ns.size, dtype=np.bool_)
        if steps is not None:
            keep &= np.isin(self.step, np.asarray(list(steps) if not isinstance(steps, np.ndarray) else steps))
        if rank is not None:
            keep &= self.rank == rank
        for column, wanted in ((self.phase, phase), (self.activity, activity)):
            if wanted is not None:
                keep &= np.isin(column, [wanted] if isinstance(wanted, int) else list(wanted))
        return keep

    def total_ns(
        self,
        *,
        steps: Collection[int] | NDArray[np.integer] | None = None,
        rank: int | None = None,
        phase: Collection[Phase] | Phase | None = None,
        activity: Collection[Activity] | Activity | None = None,
    ) -> int:
        """Return the ns of the entries that match every argument given."""
        return int(self.ns[self.rows(steps=steps, rank=rank, phase=phase, activity=activity)].sum())
