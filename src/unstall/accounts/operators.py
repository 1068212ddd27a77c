"""Host and device time by operator, from the calls of a profiler's trace.

Shape legend: C calls, K calls kept, W pieces of device work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.model.run import Rank, Run
from unstall.model.steps import Steps
from unstall.model.trace import NONE, Call, Calls

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator over the steady steps, all ranks.

    Attributes:
        ns: from its begin to its end, operators that it calls included, summed; where it calls itself counted once.
        self_ns: host time in which it was the innermost operator; runtime_ns: of that in calls of the device's runtime.
        device_ns, pieces: device work launched while it was the innermost operator.
    """

    name: str
    count: int
    ns: int
    self_ns: int
    runtime_ns: int
    device_ns: int
    pieces: int


def parents(calls: Calls, rows: Rows) -> NDArray[np.intp]:
    """Return for each of *rows* the place in *rows* of the innermost other one around it on its thread, or NONE.

    Args:
        rows: intp (K,), ascending: the calls that count; all others are looked through.
    Returns:
        intp (K,). Calls that overlap without nesting, as rounded times make them, belong to the one that began before.
    Cost: O(K log K + K depth).
    """
    found = np.full(rows.size, NONE, np.intp)
    for thread in np.unique(calls.thread[rows]):
        here = np.flatnonzero(calls.thread[rows] == thread)
        start, end = calls.start_ns[rows[here]], calls.end_ns[rows[here]]
        depth = _depths(start, end)
        for level in range(1, int(depth.max(initial=0)) + 1):
            inner, outer = np.flatnonzero(depth == level), np.flatnonzero(depth == level - 1)
            found[here[inner]] = here[outer[np.searchsorted(outer, inner) - 1]]
    return found


def _depths(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many earlier calls are still open when each begins.

    At one instant what ends makes room for what begins; a call that takes no time ends after its own beginning.
    """
    count = start.size
    time = np.concatenate([start, end])
    kind = np.concatenate([np.ones(count, np.int8), np.where(end > start, np.int8(0), np.int8(2))])
    order = np.lexsort((np.arange(2 * count), kind, time))
    change = np.where(order < count, 1, -1)
    depth = np.empty(2 * count, np.int64)
    depth[order] = np.cumsum(change) - 1
    return depth[:count]


def operators(run: Run, steps: Steps) -> tuple[Operator, ...]:
    """Return what each operator took in the steady steps, the one with most host time of its own first."""
    total: dict[str, NDArray[np.int64]] = {}
    for r, rank in enumerate(run.ranks):
        for name, numbers in _of_rank(rank, steps, r):
            total[name] = total.get(name, np.zeros(numbers.size, np.int64)) + numbers
    made = [Operator(name, *map(int, numbers)) for name, numbers in total.items()]
    return tuple(sorted(made, key=lambda one: (-one.self_ns, one.name)))


def _of_rank(rank: Rank, steps: Steps, r: int) -> Iterable[tuple[str, NDArray[np.int64]]]:
    """Yield an operator's name and the numbers of `Operator`, in its order."""
    trace = rank.trace
    if trace is None:
        return
    calls = trace.calls
    rows = np.flatnonzero(np.isin(calls.call, (Call.OPERATOR, Call.RUNTIME)) & _steady(calls.start_ns, steps, r))
    length = calls.end_ns[rows] - calls.start_ns[rows]
    operator = calls.call[rows] == Call.OPERATOR
    owner = _owners(parents(calls, rows), operator)
    inner = owner >= 0
    children = np.zeros(rows.size, np.int64)
    np.add.at(children, owner[inner & operator], length[inner & operator])
    runtime, device, pieces = (np.zeros(rows.size, np.int64) for _ in range(3))
    of_runtime = inner & ~operator
    np.add.at(runtime, owner[of_runtime], length[of_runtime])
    place = np.full(calls.start_ns.size, NONE, np.intp)
    place[rows] = np.arange(rows.size)
    launched = np.flatnonzero(trace.work.launch >= 0)
    by = place[trace.work.launch[launched]]
    by = np.where(by >= 0, np.where(operator[by], by, owner[by]), NONE)
    np.add.at(device, by[by >= 0], (trace.work.end_ns - trace.work.start_ns)[launched][by >= 0])
    np.add.at(pieces, by[by >= 0], 1)
    outermost = _not_in_itself(owner, calls.name[rows])
    own = np.maximum(0, length - children)
    columns = np.stack(
        [np.ones_like(length), length * outermost, own, np.minimum(runtime, own), device, pieces], axis=1
    )
    names, which = np.unique(calls.name[rows][operator], return_inverse=True)
    sums = np.zeros((names.size, columns.shape[1]), np.int64)
    np.add.at(sums, which, columns[operator])
    for n, name in enumerate(names):
        yield trace.names[int(name)], sums[n]


def _steady(at_ns: NDArray[np.int64], steps: Steps, r: int) -> NDArray[np.bool_]:
    """Return which times lie in a steady step."""
    if not steps.start_SR.shape[0]:
        return np.zeros(at_ns.size, np.bool_)
    step = np.searchsorted(steps.start_SR[:, r], at_ns, side="right") - 1
    within = (step >= 0) & (at_ns < steps.end_SR[np.maximum(step, 0), r])
    return np.asarray(within & steps.steady_S[np.maximum(step, 0)], np.bool_)


def _owners(parent: NDArray[np.intp], operator: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the innermost operator around each call: a runtime call may lie within another."""
    owner = parent.copy()
    while (astray := (owner >= 0) & ~operator[np.maximum(owner, 0)]).any():
        owner[astray] = parent[owner[astray]]
    return owner


def _not_in_itself(owner: NDArray[np.intp], name: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which operators have none of the same name around them."""
    free = np.ones(owner.size, np.bool_)
    above = owner.copy()
    while (above >= 0).any():
        has = above >= 0
        free[has] &= name[above[has]] != name[has]
        above[has] = owner[above[has]]
    return free
