"""What each call of a trace is about: its phase, activity, operator and the user's frame, each with what it lies in.

Shape legend: C calls, K calls of one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.meaning import UNTOLD, Meaning
from unstall.accounts.nesting import Nest, Rows
from unstall.model.trace import NONE, Call, Trace
from unstall.model.wire import Activity, Device, Phase

_KEPT = (Activity.COLLECTIVE, Activity.COMPILE, Activity.GUARD, Activity.GC)  # whatever they are made of
_PARTS = (Activity.PYTHON, Activity.COMPUTE, Activity.LAUNCH, Activity.IO)  # what they may be made of


@dataclass(frozen=True, slots=True)
class Told:
    """Per call of a trace; a call without length says nothing but its own activity.

    Attributes:
        phase: int16 (C,), `Phase`, or UNTOLD where neither it nor what it lies in tells one.
        activity: uint8 (C,), `Activity` of the call's own time.
        operator: int32 (C,), row of the outermost operator that it is or lies in, or NONE.
        frame: int32 (C,), row of the innermost frame of the user's that it is or lies in, or NONE.
        engine: bool (C,), an operator by which the autograd engine is told.
        waits: bool (C,), a runtime call that ends when the device has done something.
        nests: the calls of each thread.
    """

    phase: NDArray[np.int16]
    activity: NDArray[np.uint8]
    operator: NDArray[np.int32]
    frame: NDArray[np.int32]
    engine: NDArray[np.bool_]
    waits: NDArray[np.bool_]
    aside: NDArray[np.bool_]
    nests: Mapping[int, Nest]


def tell(trace: Trace) -> Told:
    """Return what each call of *trace* is about.

    Cost: O(C log C).
    """
    calls, meaning = trace.calls, Meaning.of(trace)
    own_phase, own = meaning.phase[calls.call, calls.name], meaning.activity[calls.call, calls.name]
    runtime = calls.call == Call.RUNTIME
    own = own.copy()
    held = runtime & meaning.copies[calls.name] & _holding(trace)
    back = np.array(["DtoH" in name or "DeviceToHost" in name for name in trace.names], np.bool_)
    reads = np.zeros(calls.name.size, np.bool_)
    launched = trace.work.launch >= 0
    reads[trace.work.launch[launched]] = back[trace.work.name[launched]]
    own[held] = np.where(reads[held], Activity.SYNC, Activity.COPY)
    waits = runtime & np.isin(own, (Activity.SYNC, Activity.COPY))
    engine = (calls.call == Call.OPERATOR) & (own_phase == Phase.BACKWARD)
    users = (calls.call == Call.FRAME) & meaning.users[calls.name]
    aside = (calls.call == Call.ANNOTATION) & meaning.aside[calls.name]
    phase, activity = own_phase.copy(), np.where(own == UNTOLD, Activity.UNKNOWN, own).astype(np.uint8)
    operator, frame = (np.full(calls.name.size, NONE, np.int32) for _ in range(2))
    nests: dict[int, Nest] = {}
    for thread, rows in _by_thread(calls.thread):
        start, end = calls.start_ns[rows], calls.end_ns[rows]
        operates = calls.call[rows] == Call.OPERATOR
        own[rows[operates & (own[rows] == Activity.COMPUTE) & _holds(start, end, runtime[rows])]] = Activity.LAUNCH
        operator[rows[operates]] = rows[operates]
        frame[rows[users[rows]]] = rows[users[rows]]
        activity[rows] = np.where(own[rows] == UNTOLD, Activity.UNKNOWN, own[rows])
        nest = nests[thread] = Nest.of(rows, start, end)
        for level in nest.levels():
            _descend(nest, level, own_phase, own, (phase, activity, operator, frame))
    return Told(phase, activity, operator, frame, engine, waits, aside, nests)


def _descend(
    nest: Nest,
    level: Rows,
    own_phase: NDArray[np.int16],
    own: NDArray[np.int16],
    told: tuple[NDArray[np.int16], NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]],
) -> None:
    """Tell the calls of one level what those that they lie in are about."""
    phase, activity, operator, frame = told
    place = level[nest.parent[level] >= 0]
    row = nest.row[place]
    if row.size:
        outer = nest.row[nest.parent[place]]
        stays = np.isin(phase[outer], (Phase.BACKWARD, Phase.FETCH)) & (own_phase[row] == Phase.FORWARD)
        phase[row] = np.where((own_phase[row] == UNTOLD) | stays, phase[outer], own_phase[row])
        mine, around = own[row], activity[outer].astype(np.int16)
        part = np.isin(mine, _PARTS)
        launching = (mine == Activity.COMPUTE) & (around == Activity.LAUNCH)
        kept = (mine == UNTOLD) | (part & np.isin(around, _KEPT)) | launching
        activity[row] = np.where(kept, around, mine)
        operator[row] = np.where(operator[outer] >= 0, operator[outer], operator[row])
        frame[row] = np.where(frame[row] >= 0, frame[row], frame[outer])
    rows = nest.row[level]
    fetching = phase[rows] == Phase.FETCH
    if fetching.any():
        _fetch(nest, level[fetching], own, activity)


def _fetch(nest: Nest, level: Rows, own: NDArray[np.int16], activity: NDArray[np.uint8]) -> None:
    """Tell calls within a fetch apart: operators make the batch, and all else is as the fetch itself."""
    row, parent = nest.row[level], nest.parent[level]
    around = np.where(parent >= 0, activity[nest.row[parent]], Activity.WAIT_DATA)
    around = np.where(np.isin(around, (Activity.LOAD, Activity.WAIT_DATA)), around, Activity.WAIT_DATA)
    mine = activity[row]
    works = np.isin(mine, (Activity.COMPUTE, Activity.LAUNCH))
    idles = np.isin(mine, (Activity.PYTHON, Activity.IO, Activity.UNKNOWN))
    activity[row] = np.where(works, Activity.LOAD, np.where(idles, around, mine))


def _by_thread(thread: NDArray[np.int32]) -> list[tuple[int, Rows]]:
    order = np.argsort(thread, kind="stable")
    threads, first = np.unique(thread[order], return_index=True)
    return list(zip(threads.tolist(), np.split(order, first[1:])))


def _holds(start: NDArray[np.int64], end: NDArray[np.int64], inner: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which calls one of *inner* begins in, after their own beginning; all of one thread, by start."""
    before = np.concatenate([[0], np.cumsum(inner)])
    after = np.searchsorted(start, end, side="left")
    here = np.arange(start.size) + 1
    return np.asarray(before[np.maximum(after, here)] > before[here], np.bool_)


def _holding(trace: Trace) -> NDArray[np.bool_]:
    """Return which calls last until the half at least of what they copy is copied.

    A call that copies from pageable memory returns when the last of it has been put into the driver's buffer. One that
    copies pinned memory never waits; it may last longer than a copy of a few bytes for all that.
    """
    calls, work = trace.calls, trace.work
    alone = np.array([any(part in name for part in ("Pinned", "DtoD", "DeviceToDevice")) for name in trace.names])
    rows = np.flatnonzero((work.launch >= 0) & (work.kind == Device.COPY) & ~alone[work.name])
    launch = work.launch[rows]
    done = np.zeros(calls.start_ns.size, np.bool_)
    done[launch] = calls.end_ns[launch] >= (work.start_ns + (work.end_ns - work.start_ns) // 2)[rows]
    return done
