"""Why the device idled: what ended each gap, when that was launched, and what the host did until then.

Shape legend: G gaps, P pieces of them, W pieces of device work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.device import States
from unstall.accounts.nesting import at_rows
from unstall.model import intervals
from unstall.model.device import Idle
from unstall.model.trace import NONE, Calls, Work
from unstall.model.wire import Activity, Device, Phase

Times = NDArray[np.int64]
LATENCY_NS = (
    20_000  # from a launch to its begin on an idle stream; 3 to 10 us are usual, copies and graphs take up to 20
)
REASONS = tuple(Idle)
_OF_HOST = {
    Activity.WAIT_DATA: Idle.DATA,
    Activity.LOAD: Idle.DATA,
    Activity.SYNC: Idle.SYNC,
    Activity.COPY: Idle.SYNC,
    Activity.COLLECTIVE: Idle.RANK,
}


@dataclass(frozen=True, slots=True)
class Pieces:
    """The idle time of the steady steps, cut where its reason or the host's state changes.

    Attributes:
        ns: int64 (P,).
        gap: int64 (P,), index into *gaps*.
        why: int64 (P,), index into REASONS.
        stretch: intp (P,), what the host did, index into the stretches of `Host`.
        gaps: int64 (G, 2), when the device idled, in steady steps and outside.
    """

    ns: Times
    gap: Times
    why: Times
    stretch: NDArray[np.intp]
    gaps: Times

    def counts(self) -> NDArray[np.float64]:
        """Return for each piece what part of a gap it is, so that the pieces of one gap count as one."""
        whole = np.bincount(self.gap, self.ns, self.gaps.shape[0])
        return np.asarray(self.ns / np.maximum(1, whole[self.gap]), np.float64)

    def ns_of(self, *reasons: Idle) -> Times:
        """Return how much of each gap, int64 (G,), has one of *reasons*."""
        chosen = np.isin(self.why, [REASONS.index(reason) for reason in reasons])
        return np.bincount(self.gap[chosen], self.ns[chosen], self.gaps.shape[0]).astype(np.int64)


def pieces(states: States, calls: Calls, work: Work) -> Pieces:
    """Return why the device idled in the steady steps.

    Until the call that launched the work that ends a gap has returned, the host was the reason; from then on, it is the
    delay between launch and begin, up to LATENCY_NS; what is beyond that is unexplained. Where nothing ends the gap, it is
    the host throughout. Where the launch is not known, only what the host certainly did not launch in is blamed on it.
    Cost: O(C log C) for C calls and pieces of work.
    """
    gaps, host = states.during(Device.IDLE), states.host
    launched, known = _launched(gaps, calls, work)
    late = np.minimum(launched + LATENCY_NS, gaps[:, 1])
    steady = states.steady_time
    edge = intervals.distinct(gaps.ravel(), launched, late, host.edge, steady.ravel())
    at, ns = edge[:-1], np.diff(edge)
    kept = intervals.inside(at, gaps) & intervals.inside(at, steady)
    at, ns = at[kept], ns[kept]
    gap = np.searchsorted(gaps[:, 0], at, side="right") - 1
    stretch = host.at(at)
    by_host = _by_host(host.activity[stretch], host.phase[stretch])
    # what began while the host still waited for the device was launched before the wait, or by another thread
    outlasted = (by_host == REASONS.index(Idle.SYNC)) & (host.edge[stretch + 1] >= gaps[gap, 1])
    by_host[~known[gap] & ((by_host == REASONS.index(Idle.HOST)) | outlasted)] = REASONS.index(Idle.UNEXPLAINED)
    why = np.select(
        [at < launched[gap], at < late[gap]], [by_host, REASONS.index(Idle.LATENCY)], REASONS.index(Idle.UNEXPLAINED)
    )
    return Pieces(ns, gap, why, stretch, gaps)


def _launched(gaps: Times, calls: Calls, work: Work) -> tuple[Times, NDArray[np.bool_]]:
    """Return when the work that ends each gap had been launched, within the gap, and whether that is known."""
    rows = np.flatnonzero(work.end_ns > work.start_ns)
    if not rows.size:
        return gaps[:, 1].copy(), np.ones(gaps.shape[0], np.bool_)
    place = np.searchsorted(work.start_ns[rows], gaps[:, 1], side="left")
    row = rows[np.minimum(place, rows.size - 1)]
    ended = (place < rows.size) & (work.start_ns[row] == gaps[:, 1])
    launch = np.where(ended, work.launch[row], NONE)
    done = at_rows(launch.astype(np.int32), calls.end_ns)
    when = np.where(launch >= 0, np.clip(done, gaps[:, 0], gaps[:, 1]), gaps[:, 1])
    return when, (launch >= 0) | ~ended


def _by_host(activity: NDArray[np.uint8], phase: NDArray[np.uint8]) -> Times:
    """Return the reason that the host's state is; what is neither data nor a wait is that it launched too slowly."""
    table = np.full(len(Activity), REASONS.index(Idle.HOST), np.int64)
    for of_host, reason in _OF_HOST.items():
        table[of_host] = REASONS.index(reason)
    why = table[activity]
    getting = (phase == Phase.FETCH) & (why == REASONS.index(Idle.HOST))
    return np.where(getting, REASONS.index(Idle.DATA), why)
