"""The account over time, for a viewer of traces: steps, what the host did in which phase, what the device did meanwhile.

Shape legend: N slices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.assign import ACTIVITY_OF
from unstall.accounts.device import States
from unstall.model.events import MAIN
from unstall.model.report import Track
from unstall.model.run import Rank, Run
from unstall.model.steps import Steps
from unstall.model.wire import Activity, Device, Phase

Times = NDArray[np.int64]
PHASES = tuple(phase.name.lower() for phase in Phase)
ACTIVITIES = tuple(activity.name.lower() for activity in Activity)
DEVICES = tuple(state.name.lower() for state in Device)


def tracks(run: Run, steps: Steps, states: tuple[States, ...]) -> tuple[Track, ...]:
    """Return the tracks of every rank; those of one name belong together, the later nested in the earlier.

    Args:
        states: by rank; empty for a live recording.
    """
    found: list[Track] = []
    for r, rank in enumerate(run.ranks):
        warming = np.where(steps.steady_S, 0, 1).astype(np.int32)
        found.append(
            Track(rank.rank, "steps", steps.start_SR[:, r], steps.end_SR[:, r], warming, ("step", "warm-up step"))
        )
        found += _recorded(rank) if not states else _traced(rank.rank, states[r])
    return tuple(found)


def _traced(rank: int, states: States) -> Iterator[Track]:
    """Yield what the host and the device did; an activity is cut where the phase changes."""
    host, start, end = states.host, states.host.edge[:-1], states.host.edge[1:]
    yield _merged(rank, "host", start, end, host.phase, PHASES)
    which = host.phase.astype(np.int64) * len(ACTIVITIES) + host.activity
    labels = tuple(activity for _ in PHASES for activity in ACTIVITIES)
    yield _merged(rank, "host", start, end, which, labels)
    if (states.state != Device.NONE).any():
        yield _merged(rank, "device", states.edge[:-1], states.edge[1:], states.state, DEVICES)


def _recorded(rank: Rank) -> Iterator[Track]:
    """Yield the phases of a live recording, and what was timed in them."""
    if rank.rows is None:
        return
    phases = _merged(rank.rank, "host", rank.rows.mark_start_ns, rank.rows.mark_end_ns, rank.rows.mark_phase, PHASES)
    yield phases
    yield _activities(rank, np.unique(np.concatenate([phases.start_ns, phases.end_ns])))


def _merged(
    rank: int, name: str, start: Times, end: Times, label: NDArray[np.integer], labels: tuple[str, ...]
) -> Track:
    """Return slices in order, those that touch and say the same made one."""
    lasting = end > start
    start, end, kept = start[lasting], end[lasting], label[lasting].astype(np.int32)
    if not start.size:
        return Track(rank, name, start, end, kept, labels)
    first = np.flatnonzero(np.concatenate([[True], (kept[1:] != kept[:-1]) | (start[1:] != end[:-1])]))
    last = np.append(first[1:], start.size) - 1
    return Track(rank, name, start[first], end[last], kept[first], labels)


def _activities(rank: Rank, edges: Times) -> Track:
    """Return what a live recording timed on the training thread, cut at *edges*."""
    events, kinds = rank.events, tuple(ACTIVITY_OF)
    rows = np.flatnonzero((events.lane == MAIN) & np.isin(events.kind, [int(kind) for kind in kinds]))
    place = {int(kind): n for n, kind in enumerate(kinds)}
    label = np.array([place[kind] for kind in events.kind[rows].tolist()], np.int64)
    pieces = _innermost(events.start_ns[rows], events.end_ns[rows], label)
    return _merged(rank.rank, "host", *_cut(*pieces, edges), tuple(ACTIVITY_OF[kind].name.lower() for kind in kinds))


def _innermost(start: Times, end: Times, label: Times) -> tuple[Times, Times, Times]:
    """Return disjoint slices, in order: of spans that lie in one another the innermost."""
    pieces: list[tuple[int, int, int]] = []
    open_spans: list[tuple[int, int]] = []  # end, label
    at = 0
    for begin, stop, what in [*zip(start.tolist(), end.tolist(), label.tolist()), (np.iinfo(np.int64).max, 0, 0)]:
        while open_spans and open_spans[-1][0] <= begin:
            until, inner = open_spans.pop()
            pieces.append((at, until, inner))
            at = max(at, until)
        if open_spans:
            pieces.append((at, begin, open_spans[-1][1]))
            stop = min(stop, open_spans[-1][0])
        at = begin
        open_spans.append((stop, what))
    columns = np.array(pieces, np.int64).reshape(-1, 3)
    columns = columns[columns[:, 1] > columns[:, 0]]
    return columns[:, 0], columns[:, 1], columns[:, 2]


def _cut(start: Times, end: Times, label: Times, edges: Times) -> tuple[Times, Times, Times]:
    """Return the slices, those that an edge lies in made two: a slice that spans two others nests in neither."""
    first, after = np.searchsorted(edges, start, side="right"), np.searchsorted(edges, end, side="left")
    inside = np.maximum(after - first, 0)
    which = np.repeat(np.arange(start.size), inside)
    place = np.arange(which.size) - np.repeat(np.cumsum(inside) - inside, inside)
    at = edges[first[which] + place]
    starts, owner = np.concatenate([start, at]), np.concatenate([np.arange(start.size), which])
    order = np.lexsort((starts, owner))
    starts, owner = starts[order], owner[order]
    last = np.append(owner[1:] != owner[:-1], True) if owner.size else np.zeros(0, np.bool_)
    ends = np.where(last, end[owner], np.append(starts[1:], 0) if owner.size else starts)
    return starts, ends, label[owner]
