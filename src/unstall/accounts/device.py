"""What the host and the device did at every moment, and the ledger of both.

Shape legend: N stretches, W pieces of device work, E entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.accounts import assign
from unstall.accounts.host import Host, from_calls
from unstall.accounts.told import Told, tell
from unstall.model import intervals
from unstall.model.ledger import OUTSIDE, Ledger
from unstall.model.run import Rank, Run
from unstall.model.steps import Steps
from unstall.model.trace import Work
from unstall.model.wire import ACTIVITIES, PHASES, Device, Kind

Times = NDArray[np.int64]
SHOWN = (Device.COMPUTE, Device.COLLECTIVE, Device.COPY)  # of several at once the first counts
_DEVICES, _BASES = len(Device), 3


@dataclass(frozen=True, slots=True)
class States:
    """What one rank's host and devices did, each in stretches without gap or overlap from its start to its end.

    Attributes:
        host: the host's; told: what its calls are about, None where the run was drawn and has none.
        edge: int64 (N + 1,), ns; state: uint8 (N,), `Device`; the work of all devices and streams of the rank together.
        step_begin, step_end: int64 (S,), its steps; steady: bool (S,).
    """

    host: Host
    told: Told | None
    edge: Times
    state: NDArray[np.uint8]
    step_begin: Times
    step_end: Times
    steady: NDArray[np.bool_]

    def during(self, *states: Device) -> Times:
        """Return when the device was in one of *states*, int64 (M, 2)."""
        chosen = np.isin(self.state, states)
        return intervals.union(self.edge[:-1][chosen], self.edge[1:][chosen])

    @property
    def steady_time(self) -> Times:
        """The steady steps, int64 (M, 2); steps that follow at once are one stretch."""
        return intervals.union(self.step_begin[self.steady], self.step_end[self.steady])

    def step_of(self, at: Times) -> NDArray[np.int32]:
        """Return the step of each moment, or OUTSIDE."""
        step = np.searchsorted(self.step_begin, at, side="right") - 1
        if not self.step_begin.size:
            return np.full(at.size, OUTSIDE, np.int32)
        within = (step >= 0) & (at < self.step_end[np.maximum(step, 0)])
        return np.where(within, step, OUTSIDE).astype(np.int32)


def states_of(run: Run, steps: Steps) -> tuple[States, ...]:
    """Return what each rank's host and devices did.

    Cost: O(C log C) for C calls and pieces of work.
    """
    return tuple(_states(rank, steps, r) for r, rank in enumerate(run.ranks))


def _states(rank: Rank, steps: Steps, r: int) -> States:
    trace, told = rank.trace, None
    if trace is not None and not (rank.events.kind != Kind.STEP).any():
        told = tell(trace)
        host = from_calls(rank, trace, told, steps, r)
    else:
        host = assign.from_events(rank, steps, r)
    edge, state = device_states(trace.work if trace is not None else Work.empty(), rank.start_ns, rank.end_ns)
    return States(host, told, edge, state, steps.start_SR[:, r], steps.end_SR[:, r], steps.steady_S)


def device_states(work: Work, start_ns: int, end_ns: int) -> tuple[Times, NDArray[np.uint8]]:
    """Return what the devices did from *start_ns* to *end_ns*: edges int64 (N + 1,) and states uint8 (N,).

    A moment in which some kernel runs is COMPUTE, else one with a collective COLLECTIVE, else one with a copy COPY, else
    IDLE; without any work all is NONE.
    Cost: O(W log W).
    """
    bounds = np.array([start_ns, end_ns], np.int64)
    if not work.start_ns.size:
        return bounds, np.full(1, Device.NONE, np.uint8)
    found = []
    for kind in SHOWN:
        of_kind = work.kind == kind
        found.append(intervals.union(work.start_ns[of_kind], work.end_ns[of_kind]))
    edge = intervals.distinct(bounds, *(busy.ravel() for busy in found))
    edge = edge[(edge >= start_ns) & (edge <= end_ns)]
    state = np.select([intervals.inside(edge[:-1], busy) for busy in found], SHOWN, Device.IDLE)
    return edge, state.astype(np.uint8)


def ledger_of(run: Run, states: tuple[States, ...]) -> Ledger:
    """Return the ledger: the host's state and the device's state of every nanosecond, cut at the steps."""
    parts = [_entries(one) for one in states]
    sizes = [part.shape[1] for part in parts]
    rank = np.repeat(np.arange(len(parts)), sizes)
    step, phase, activity, device, basis, ns = np.concatenate(parts, axis=1)
    small = np.uint8
    return Ledger(
        step.astype(np.int32), rank.astype(small), phase.astype(small), activity.astype(small), device.astype(small),
        basis.astype(small), ns, np.array([rank.end_ns - rank.start_ns for rank in run.ranks], np.int64),
    )  # fmt: skip


def _entries(states: States) -> NDArray[np.int64]:
    """Return step, phase, activity, device, basis and ns of the entries of one rank, int64 (6, E)."""
    host, start, end = states.host, states.edge[0], states.edge[-1]
    edge = intervals.distinct(host.edge, states.edge, states.step_begin, states.step_end)
    edge = edge[(edge >= start) & (edge <= end)]
    at, ns = edge[:-1], np.diff(edge)
    h = host.at(at)
    d = np.searchsorted(states.edge, at, side="right") - 1
    key = states.step_of(at).astype(np.int64) + 1  # OUTSIDE is -1
    for column, size in (
        (host.phase[h], PHASES), (host.activity[h], ACTIVITIES), (states.state[d], _DEVICES), (host.basis[h], _BASES)
    ):  # fmt: skip
        key = key * size + column
    keys, which = np.unique(key, return_inverse=True)
    # float64 adds whole numbers below 2**53 exactly: 104 days of ns
    spent = np.bincount(which, ns, keys.size).astype(np.int64) if ns.size else np.zeros(0, np.int64)
    columns = []
    for size in (_BASES, _DEVICES, ACTIVITIES, PHASES):
        keys, column = np.divmod(keys, size)
        columns.append(column)
    basis, device, activity, phase = columns
    return np.stack([keys - 1, phase, activity, device, basis, spent])
