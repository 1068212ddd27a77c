"""The account over time, for a viewer of traces: steps, what the host did in which phase, what the device did meanwhile.

Shape legend: N slices, W pieces of device work.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.assign import ACTIVITY_OF
from unstall.model.events import MAIN
from unstall.model.report import Track
from unstall.model.run import Rank, Run
from unstall.model.steps import Steps
from unstall.model.trace import Work
from unstall.model.wire import Device, Phase

Times = NDArray[np.int64]
PHASES = tuple(phase.name.lower() for phase in Phase)
ON_DEVICE = ("compute", "collective", "copy", "idle")


def tracks(run: Run, steps: Steps) -> tuple[Track, ...]:
    """Return the tracks of every rank; those of one name belong together, the later nested in the earlier."""
    return tuple(track for r, rank in enumerate(run.ranks) for track in _of_rank(rank, steps, r))


def _of_rank(rank: Rank, steps: Steps, r: int) -> Iterator[Track]:
    warming = np.where(steps.steady_S, 0, 1).astype(np.int32)
    yield Track(rank.rank, "steps", steps.start_SR[:, r], steps.end_SR[:, r], warming, ("step", "warm-up step"))
    if rank.rows is not None:
        phases = _merged(
            rank.rank, "host", rank.rows.mark_start_ns, rank.rows.mark_end_ns, rank.rows.mark_phase, PHASES
        )
        yield phases
        yield _activities(rank, np.unique(np.concatenate([phases.start_ns, phases.end_ns])))
    if rank.trace is not None and rank.trace.work.start_ns.size:
        yield device(rank.rank, rank.trace.work, rank.start_ns, rank.end_ns)


def device(rank: int, work: Work, start_ns: int, end_ns: int) -> Track:
    """Return what the device did from *start_ns* to *end_ns*: a kernel hides collectives, and these hide copies."""
    edges = np.unique(np.concatenate([work.start_ns, work.end_ns, [start_ns, end_ns]]))
    label = np.full(edges.size, ON_DEVICE.index("idle"), np.int32)
    for n, kind in reversed(tuple(enumerate((Device.COMPUTE, Device.COLLECTIVE, Device.COPY)))):
        of_kind = work.kind == kind
        open_pieces = np.zeros(edges.size + 1, np.int64)
        np.add.at(open_pieces, np.searchsorted(edges, work.start_ns[of_kind]), 1)
        np.add.at(open_pieces, np.searchsorted(edges, work.end_ns[of_kind]), -1)
        label[np.cumsum(open_pieces[:-1]) > 0] = n
    return _merged(rank, "device", edges[:-1], edges[1:], label[:-1], ON_DEVICE)


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
