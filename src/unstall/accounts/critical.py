"""The critical path: from the end of the steady steps back, each time to what came last before it could begin.

Nodes are the host's time line and the pieces of device work; what may come last before a piece of work is its launch, the
work before it on its stream, or work on another stream that it was made to wait for; the host goes on after a wait when
the work that it waited for has ended. The graph is that of Daydream (Zhu et al., USENIX ATC 2020) and of the critical
path analysis of Holistic Trace Analysis.

Shape legend: W pieces of device work that take time, H stretches of the host, V visits of a piece of work.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.device import States
from unstall.accounts.idling import LATENCY_NS
from unstall.accounts.nesting import at_rows
from unstall.model.trace import NONE, Trace, Work
from unstall.model.wire import Device

Times = NDArray[np.int64]
Rows = NDArray[np.intp]
_HOST = -1  # what came last: the launch, and so the host


@dataclass(slots=True)
class Path:
    """The critical path through the steady steps; its parts are disjoint and add up to these.

    Attributes:
        host: from when to when it runs over the host.
        visits: (row of `Work`, ns) of work on it; waits: (row of `Work`, ns) in which that work could have begun already.
    """

    host: list[tuple[int, int]] = field(default_factory=list)
    visits: list[tuple[int, int]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)


def path(states: States, trace: Trace, syncs: Rows) -> Path:
    """Return the critical path of one rank.

    Args:
        syncs: rows of `Calls` in which the host waits for the device, on the threads that the host's state is made of.
    Cost: O((C + W) log W), and 1 us for each piece of work on the path.
    """
    found, work = Path(), trace.work
    rows = np.flatnonzero(work.end_ns > work.start_ns)
    if not rows.size:
        found.host = [(int(a), int(b)) for a, b in states.steady_time]
        return found
    before, since = _before(trace, rows, syncs)
    joined, joins = _joins(trace, rows, syncs)
    graph = _Graph(
        rows.tolist(), work.start_ns[rows].tolist(), before.tolist(), since.tolist(), joined.tolist(), joins.tolist()
    )
    for begin, end in states.steady_time.tolist():
        graph.walk(found, begin, end, _running(work, rows, end))
    return found


@dataclass(frozen=True, slots=True)
class _Graph:
    """What came last before each piece of work: *before*, a piece or _HOST, at *since*; and where the host's waits end."""

    rows: list[int]
    start: list[int]
    before: list[int]
    since: list[int]
    joined: list[int]
    joins: list[int]

    def walk(self, found: Path, begin: int, at: int, piece: int) -> None:
        """Add to *found* the way from *at* back to *begin*; *piece* runs at its end, or _HOST."""
        while at > begin:
            if piece == _HOST:
                n = bisect_right(self.joined, at) - 1
                to = max(begin, self.joined[n]) if n >= 0 else begin
                if to < at:
                    found.host.append((to, at))
                at, piece = to, self.joins[n] if n >= 0 else _HOST
                continue
            row, to = self.rows[piece], max(begin, self.start[piece])
            if to < at:
                found.visits.append((row, at - to))
                at = to
            to = max(begin, min(at, self.since[piece]))
            if to < at:
                found.waits.append((row, at - to))
                at = to
            piece = self.before[piece]


def _before(trace: Trace, rows: Rows, syncs: Rows) -> tuple[Rows, Times]:
    """Return what came last before each piece of work, place in *rows* or _HOST, and when it ended, int64 (W,)."""
    work, calls = trace.work, trace.calls
    start, end, launch = work.start_ns[rows], work.end_ns[rows], work.launch[rows]
    launching = launch >= 0
    never = int(start.min()) - 2 * LATENCY_NS - 1  # before all else, and far from the bounds of int64
    done = np.where(launching, np.minimum(at_rows(launch, calls.end_ns), start), start)
    # a call that holds the host until its copy is done has handed it over at some time after its own beginning
    given = np.where(launching & np.isin(launch, syncs), np.minimum(at_rows(launch, calls.start_ns), done), done)
    stream = _on_stream(work, rows)
    has = stream >= 0
    stream_end = np.where(has, np.minimum(end[stream], start), never)
    by_end = np.argsort(end, kind="stable")
    place = np.searchsorted(end[by_end], start, side="right") - 1
    other = np.where(place >= 0, by_end[np.maximum(place, 0)], _HOST)
    other_end = np.where(other >= 0, end[other], never)
    ready = np.maximum(stream_end, np.where(launching, done, never))
    made_to = _waits_for_event(trace, launch, np.where(has, launch[stream], NONE))
    late = start - ready > LATENCY_NS
    from_other = (other_end > ready) & (start - other_end <= LATENCY_NS) & (made_to | late)
    queued = has & (launching & (stream_end >= given) | ~launching & (start - stream_end <= LATENCY_NS))
    before = np.select([from_other, queued], [other, stream], _HOST)
    since = np.select([from_other, queued], [other_end, stream_end], done)
    return before.astype(np.intp), since.astype(np.int64)


def _on_stream(work: Work, rows: Rows) -> Rows:
    """Return the piece before each on its stream, place in *rows*, or NONE."""
    device, stream = work.device[rows], work.stream[rows]
    order = np.lexsort((work.start_ns[rows], stream, device))
    same = (device[order[1:]] == device[order[:-1]]) & (stream[order[1:]] == stream[order[:-1]])
    found = np.full(rows.size, NONE, np.intp)
    found[order[1:]] = np.where(same, order[:-1], NONE)
    return found


def _waits_for_event(trace: Trace, launch: NDArray[np.int32], earlier: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return whether the host made some stream wait for an event between the launch *earlier* and *launch*.

    The trace does not say which stream and which event.
    """
    calls = trace.calls
    named = np.array(["StreamWaitEvent" in name for name in trace.names], np.bool_)
    at = calls.start_ns[named[calls.name]] if calls.name.size else np.zeros(0, np.int64)
    if not at.size:
        return np.zeros(launch.size, np.bool_)
    until = np.searchsorted(at, at_rows(launch, calls.start_ns))
    since = np.where(earlier >= 0, np.searchsorted(at, at_rows(earlier, calls.start_ns)), 0)
    return np.asarray((launch >= 0) & (until > since), np.bool_)


def _joins(trace: Trace, rows: Rows, syncs: Rows) -> tuple[Times, Rows]:
    """Return when waits of the host ended with a piece of work, int64, ascending, and which one, place in *rows*."""
    end = trace.work.end_ns[rows]
    by_end = np.argsort(end, kind="stable")
    place = np.searchsorted(end[by_end], trace.calls.end_ns[syncs], side="right") - 1
    piece = by_end[np.maximum(place, 0)]
    waited = (place >= 0) & (end[piece] > trace.calls.start_ns[syncs])
    pieces = np.unique(piece[waited])
    order = pieces[np.argsort(end[pieces], kind="stable")]
    return end[order], order


def _running(work: Work, rows: Rows, at: int) -> int:
    """Return the piece that runs until *at* or beyond, place in *rows*: a kernel if any does; _HOST where none runs."""
    open_ = np.flatnonzero((work.start_ns[rows] < at) & (work.end_ns[rows] >= at))
    if not open_.size:
        return _HOST
    kernels = open_[work.kind[rows[open_]] == Device.COMPUTE]
    return int(kernels[-1] if kernels.size else open_[-1])
