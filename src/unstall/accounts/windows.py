"""Bring what a window of a live run shows of the device into the account of its steady steps.

The window's steps are left out of the statistics, so what they show is a sample: each phase of the steady steps is divided
by what the device did in that phase in the window.  Shape legend: E entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unstall.accounts import holdings
from unstall.accounts.device import States, ledger_of, states_of
from unstall.accounts.device_use import device_use
from unstall.accounts.largest_remainder import divide
from unstall.accounts.segment import Segments
from unstall.model.device import Copies, Critical, DeviceCollectives, DeviceUse, Idling, Kernels, Syncs
from unstall.model.events import Events
from unstall.model.ledger import Activity, Basis, Device, Ledger, Phase
from unstall.model.run import Rank, Run
from unstall.model.steps import Steps
from unstall.model.trace import Trace
from unstall.model.wire import PROFILED, Kind

LEAST_STEPS = 2  # in a window; fewer show nothing of what is usual
NATIVE = (
    Activity.COMPUTE,
    Activity.UNKNOWN,
)  # what samples say of code that is not Python's; they do not see the device
CALLS = (Activity.COMPUTE, Activity.LAUNCH, Activity.SYNC, Activity.COPY, Activity.COLLECTIVE)  # what that code may be
Row = TypeVar("Row", DeviceUse, Idling, Kernels, Copies, Syncs, DeviceCollectives, Critical)
_SUMS = ("ns", "gaps", "count", "nbytes")  # fields that grow with the number of steps, as all do that end in _ns


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a run, one a rank, as a run of their own.

    Attributes:
        dilation: how many times longer a step took in the window than the steady steps do.
    """

    run: Run
    steps: Steps
    states: tuple[States, ...]
    ledger: Ledger
    dilation: float


def windows_of(recorded: Run, segments: Segments) -> Windows | None:
    """Return the windows of *recorded*; None where a rank has none with device work and whole steps in it."""
    traces = [rank.trace for rank in recorded.ranks if rank.trace is not None and rank.trace.work.start_ns.size]
    found = [_whole_steps(rank, trace) for rank, trace in zip(recorded.ranks, traces)]
    count = min((len(bounds) for bounds in found), default=0)
    if len(traces) < len(recorded.ranks) or count < LEAST_STEPS:
        return None
    bounds = np.stack([of_rank[:count] for of_rank in found])
    steady = np.ones(count, np.bool_)
    steps = Steps(bounds[:, :, 0].T, bounds[:, :, 1].T, steady, np.ones(count, np.int32))
    usual = segments.steps.usual_ns
    dilation = steps.usual_ns / usual if usual else 1.0
    ranks = tuple(
        _window(rank, replace(trace, dilation=dilation), of_rank[:count])
        for rank, trace, of_rank in zip(recorded.ranks, traces, found)
    )
    run = replace(recorded, ranks=ranks)
    states = states_of(run, steps)
    return Windows(run, steps, states, ledger_of(run, states), dilation)


def _whole_steps(rank: Rank, trace: Trace) -> NDArray[np.int64]:
    """Return begin and end, int64 (S, 2), of the marked rows that lie wholly between the trace's first and last call."""
    rows = rank.rows
    if rows is None or not trace.calls.start_ns.size:
        return np.zeros((0, 2), np.int64)
    begin, end = int(trace.calls.start_ns[0]), int(trace.calls.end_ns.max())
    inside = (rows.flags & PROFILED > 0) & (rows.steps == 1) & (rows.start_ns >= begin) & (rows.end_ns <= end)
    return np.stack([rows.start_ns[inside], rows.end_ns[inside]], axis=1)


def _window(rank: Rank, trace: Trace, bounds: NDArray[np.int64]) -> Rank:
    """Return *rank* as its window alone shows it."""
    times = (trace.calls.start_ns, trace.work.start_ns, bounds[:, 0])
    begin = min(int(column.min()) for column in times if column.size)
    times = (trace.calls.end_ns, trace.work.end_ns, bounds[:, 1])
    end = max(int(column.max()) for column in times if column.size)
    zeros = np.zeros(len(bounds), np.int32)
    kind = np.full(len(bounds), Kind.STEP, np.uint8)
    steps = Events(bounds[:, 0], bounds[:, 1], kind, zeros, zeros, zeros - 1, zeros.astype(np.int64))
    return Rank(rank.rank, rank.pid, begin, end, begin, end, steps, facts=rank.facts, trace=trace)


def cost(rank: Rank) -> str:
    """Return what opening and writing the windows of *rank* took, in words; "" where there were none.

    All of it lies in marked steps, which are left out of the statistics.
    """
    started = [one.number("started_in_ns") or 0.0 for one in rank.facts.family("window").values()]
    written = [one.number("written_in_ns") or 0.0 for one in rank.facts.family("window_end").values()]
    if not started:
        return ""
    windows = f"{len(started)} windows" if len(started) > 1 else "a window"
    return f"; {windows} of the profiler took {sum(started + written) / 1e9:.2g} s, outside the steps that count"


def with_device(ledger: Ledger, steps: Steps, windows: Windows) -> Ledger:
    """Return *ledger* with the entries of the steady steps divided by what the window shows of their phase.

    Native code that no probe named (COMPUTE or UNKNOWN by the samples) is divided by what host and device did at the
    same time in the window; entries that are known by their activity, by what the device did. A phase that the window
    does not show is divided as the whole step is.
    """
    shown = windows.ledger
    table = holdings.table(shown, shown.rows(steps=windows.steps.steady))
    steady = ledger.rows(steps=steps.steady)
    parts = [[column[~steady] for column in _columns(ledger)]]
    for e in np.flatnonzero(steady):
        of_phase = table[ledger.phase[e]] if table[ledger.phase[e]].any() else table.sum(axis=0)
        shares = _joint(of_phase, Activity(int(ledger.activity[e])))
        spent = divide(int(ledger.ns[e]), shares.ravel()).reshape(shares.shape)
        of_activity, of_device = np.nonzero(spent)
        entry = [np.repeat(column[e], of_device.size) for column in _columns(ledger)]
        entry[3:5], entry[6] = (of_activity.astype(np.uint8), of_device.astype(np.uint8)), spent[of_activity, of_device]
        entry[5] = np.maximum(entry[5], np.uint8(Basis.SAMPLED))
        parts.append(entry)
    step, rank, phase, activity, device, basis, ns = _joined(parts)
    return Ledger(step, rank, phase, activity, device, basis, ns, ledger.wall_R)


def _joined(parts: list[list[NDArray[Any]]]) -> list[NDArray[Any]]:
    return [np.concatenate(column) for column in zip(*parts)]


def _columns(ledger: Ledger) -> list[NDArray[Any]]:
    return [ledger.step, ledger.rank, ledger.phase, ledger.activity, ledger.device, ledger.basis, ledger.ns]


def _joint(of_phase: NDArray[np.float64], activity: Activity) -> NDArray[np.float64]:
    """Return what share of an entry's time goes to which activity and device, (A, D); not all zero."""
    shares = np.zeros_like(of_phase)
    if activity in NATIVE and of_phase[list(CALLS)].any():
        shares[list(CALLS)] = of_phase[list(CALLS)]
        return shares
    alike = of_phase[activity]
    shares[activity] = alike if alike.any() else of_phase.sum(axis=0)
    return shares


def use_of(windows: Windows, ledger: Ledger, steps: Steps) -> DeviceUse | None:
    """Return what the device did in the steady steps, as the window shows it: times and counts in proportion.

    Args:
        ledger: as `with_device` returned it. Idle time stands on the activities that it has in the same phase.
    """
    used = device_use(windows.run, windows.states)
    if used is None:
        return None
    steady, shown = ledger.total_ns(steps=steps.steady), windows.ledger.total_ns(steps=windows.steps.steady)
    scale = steady / shown if shown else 0.0
    idle = _idle(ledger, steps)
    return replace(
        scaled(used, scale),
        idling=tuple(part for one in used.idling for part in _placed(scaled(one, scale), idle)),
        kernels=tuple(scaled(one, scale) for one in used.kernels),
        copies=tuple(scaled(one, scale) for one in used.copies),
        syncs=tuple(scaled(one, scale) for one in used.syncs),
        collectives=tuple(scaled(one, scale) for one in used.collectives),
        critical=tuple(scaled(one, scale) for one in used.critical),
        launch_ns=used.launch_ns,
        dilation=windows.dilation,
    )


def scaled(row: Row, scale: float) -> Row:
    """Return *row* with the fields that grow with the number of steps times *scale*."""
    grows = [f.name for f in fields(row) if f.name in _SUMS or f.name.endswith("_ns")]
    return replace(row, **{name: round(value * scale) for name in grows if (value := getattr(row, name)) is not None})


def _idle(ledger: Ledger, steps: Steps) -> Mapping[Phase, Mapping[Activity, int]]:
    """Return the steady time in which the device idled, by phase and activity."""
    found: dict[Phase, dict[Activity, int]] = {}
    for e in np.flatnonzero(ledger.rows(steps=steps.steady) & (ledger.device == Device.IDLE)):
        of_phase = found.setdefault(Phase(int(ledger.phase[e])), {})
        activity = Activity(int(ledger.activity[e]))
        of_phase[activity] = of_phase.get(activity, 0) + int(ledger.ns[e])
    return found


def _placed(one: Idling, idle: Mapping[Phase, Mapping[Activity, int]]) -> list[Idling]:
    """Return *one* on the activities of its phase: its own where the steady steps have it, else all in proportion."""
    of_phase = idle.get(one.phase, {})
    if not of_phase or one.activity in of_phase:
        return [one]
    parts = divide(one.ns, np.array(list(of_phase.values()), float))
    return [replace(one, activity=activity, ns=int(ns)) for activity, ns in zip(of_phase, parts) if ns]
