"""What the host did at every moment, from the calls of a profiler's trace.

Shape legend: N stretches, C calls, K calls of one thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.meaning import UNTOLD
from unstall.accounts.nesting import Rows
from unstall.accounts.told import Told
from unstall.model import intervals
from unstall.model.ledger import Basis
from unstall.model.run import Rank
from unstall.model.steps import Steps
from unstall.model.trace import NONE, Call, Trace
from unstall.model.wire import Activity, Phase

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Host:
    """What the host did, in stretches that follow one another without gap or overlap from the rank's start to its end.

    Attributes:
        edge: int64 (N + 1,), ns.
        phase, activity, basis: uint8 (N,).
        call: int32 (N,), row of the innermost call, on the training thread or the autograd engine's, or NONE.
        frame: int32 (N,), row of the user's innermost frame, or NONE.
    """

    edge: Times
    phase: NDArray[np.uint8]
    activity: NDArray[np.uint8]
    basis: NDArray[np.uint8]
    call: NDArray[np.int32]
    frame: NDArray[np.int32]

    def at(self, moment: Times) -> Rows:
        """Return the stretch that each of *moment*, int64 (K,), lies in; the nearest one for those outside."""
        place = np.searchsorted(self.edge, moment, side="right") - 1
        return np.clip(place, 0, max(0, self.phase.size - 1)).astype(np.intp)


def from_calls(rank: Rank, trace: Trace, told: Told, steps: Steps, r: int) -> Host:
    """Return what the host did, from the calls on the thread that trains and on the autograd engine's threads.

    Where both are in a call, the training thread's counts if it is an operator or a runtime call: else it waits for the
    engine. docs/traces.md tells how each phase and activity is known.
    Cost: O(C log C).
    """
    calls, begin, end = trace.calls, steps.start_SR[:, r], steps.end_SR[:, r]
    main = told.nests.get(trace.main)
    backward = _backward(trace, told, np.concatenate([begin, end]))
    forward = _forward(trace, told, backward, begin, end)
    engines = [nest for thread, nest in told.nests.items() if thread != trace.main and told.engine[nest.row].any()]
    nests = [nest for nest in (main, *engines) if nest is not None]
    marks = [begin, end, backward.ravel(), forward.ravel(), np.array([rank.start_ns, rank.end_ns], np.int64)]
    edge = intervals.distinct(*marks, *(nest.start for nest in nests), *(nest.end for nest in nests))
    edge = edge[(edge >= rank.start_ns) & (edge <= rank.end_ns)]
    at = edge[:-1]
    of_main = np.full(at.size, NONE, np.int32)
    if main is not None:
        of_main = _rows(main.row, main.innermost(at))
    call, in_backward = of_main.copy(), intervals.inside(at, backward)
    busy = (
        (of_main >= 0) & np.isin(calls.call[of_main], (Call.OPERATOR, Call.RUNTIME)) if calls.call.size else call >= 0
    )
    for nest in engines:
        of_engine = _rows(nest.row, nest.innermost(at))
        acts = (of_engine >= 0) & ~busy & in_backward
        call = np.where(acts, of_engine, call)
        busy = busy | acts
    known = call >= 0
    activity = np.full(at.size, Activity.UNKNOWN, np.uint8)
    phase = np.full(at.size, UNTOLD, np.int16)
    frame = np.full(at.size, NONE, np.int32)
    activity[known], phase[known] = told.activity[call[known]], told.phase[call[known]]
    frame[known] = told.frame[call[known]]
    lacks = (frame < 0) & (of_main >= 0)
    frame[lacks] = told.frame[of_main[lacks]]
    rest = np.select([in_backward, intervals.inside(at, forward)], [Phase.BACKWARD, Phase.FORWARD], Phase.BETWEEN)
    phase = np.where(phase == UNTOLD, rest, phase)
    if begin.size:
        phase = np.select([at < begin[0], at >= end[-1]], [Phase.STARTUP, Phase.SHUTDOWN], phase)
    basis = np.where(activity == Activity.UNKNOWN, Basis.RESIDUAL, Basis.MEASURED)
    return Host(edge, phase.astype(np.uint8), activity, basis.astype(np.uint8), call, frame)


def _rows(row: Rows, place: Rows) -> NDArray[np.int32]:
    """Return the rows at *place*, NONE where that is NONE."""
    if not row.size:
        return np.full(place.size, NONE, np.int32)
    return np.where(place >= 0, row[np.maximum(place, 0)], NONE).astype(np.int32)


def _backward(trace: Trace, told: Told, cuts: Times) -> Times:
    """Return from when to when the autograd engine was at work, int64 (M, 2).

    Between two of its functions it still is, unless the training thread began something else, or a step ended.
    """
    calls = trace.calls
    rows = np.flatnonzero(told.engine)
    found = intervals.union(calls.start_ns[rows], calls.end_ns[rows])
    if found.shape[0] < 2:
        return found
    others = (calls.thread == trace.main) & (calls.call != Call.FRAME) & (told.phase != Phase.BACKWARD) & ~told.aside
    breaks = np.sort(np.concatenate([calls.start_ns[others], cuts]))
    apart = np.searchsorted(breaks, found[1:, 0], "right") > np.searchsorted(breaks, found[:-1, 1], "left")
    first = np.flatnonzero(np.concatenate([[True], apart]))
    return np.stack([found[first, 0], found[np.append(first[1:], found.shape[0]) - 1, 1]], axis=1)


def _forward(trace: Trace, told: Told, backward: Times, begin: Times, end: Times) -> Times:
    """Return from when to when the forward passes ran, int64 (M, 2), where no frame of a module tells it.

    One runs from the first operator after the last batch was got, or the last backward or optimizer ended, until the
    next backward begins; in a step without any, until its last operator ends.
    """
    calls, of_main = trace.calls, trace.calls.thread == trace.main
    if (of_main & (calls.call == Call.FRAME) & (told.phase == Phase.FORWARD)).any():
        return np.zeros((0, 2), np.int64)
    rows = np.flatnonzero(of_main & (calls.call == Call.OPERATOR) & (told.phase == UNTOLD))
    ends = np.isin(told.phase, (Phase.FETCH, Phase.OPTIMIZER)) & of_main
    resets = np.sort(np.concatenate([calls.end_ns[ends], backward[:, 1]]))
    starts, last = calls.start_ns[rows], np.maximum.accumulate(calls.end_ns[rows])
    found: list[tuple[int, int]] = []
    for since, until in zip(begin.tolist(), end.tolist()):
        passes = backward[(backward[:, 0] >= since) & (backward[:, 0] < until), 0].tolist()
        if not passes:
            n = int(np.searchsorted(starts, until)) - 1
            passes = [min(until, int(last[n]))] if n >= 0 and starts[n] >= since else []
            place = -1
        for to in passes:
            place = int(np.searchsorted(resets, to, "right")) - 1
            after = max(since, int(resets[place])) if place >= 0 and resets[place] < to else since
            n = int(np.searchsorted(starts, after))
            if n < starts.size and starts[n] < to:
                found.append((int(starts[n]), to))
    columns = np.array(found, np.int64).reshape(-1, 2)
    return intervals.union(columns[:, 0], columns[:, 1])
