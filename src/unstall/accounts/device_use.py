"""What the device did in the steady steps, all ranks: the tables that causes of the device stand on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unstall.accounts import device_tables
from unstall.accounts.critical import path
from unstall.accounts.device import States
from unstall.accounts.idling import pieces
from unstall.accounts.rank_view import RankView
from unstall.model import intervals
from unstall.model.device import DeviceUse
from unstall.model.run import Run
from unstall.model.trace import Call
from unstall.model.wire import Device


def device_use(run: Run, states: tuple[States, ...]) -> DeviceUse | None:
    """Return what the device did, or None where no rank has a trace with device work.

    Cost: O(C log C) for C calls and pieces of work.
    """
    views = [
        RankView.of(rank.trace, of_rank, run.project)
        for rank, of_rank in zip(run.ranks, states)
        if rank.trace is not None and rank.trace.work.start_ns.size
    ]
    if not views:
        return None
    paths = [path(view.states, view.trace, view.waits) for view in views]
    gaps = [pieces(view.states, view.calls, view.work) for view in views]
    spent = {state: sum(_spent(view, state) for view in views) for state in Device}
    dilations = [view.trace.dilation for view in views if view.trace.dilation is not None]
    return DeviceUse(
        busy_ns=spent[Device.COMPUTE] + spent[Device.COLLECTIVE] + spent[Device.COPY],
        compute_ns=spent[Device.COMPUTE],
        collective_ns=spent[Device.COLLECTIVE],
        copy_ns=spent[Device.COPY],
        idle_ns=spent[Device.IDLE],
        idling=device_tables.idling(views, gaps),
        kernels=device_tables.kernels(views, paths),
        copies=device_tables.copies(views),
        syncs=device_tables.syncs(views, gaps),
        collectives=device_tables.collectives(views),
        critical=device_tables.critical(views, paths),
        launches_per_step=_launches_per_step(views),
        launch_ns=_launch_ns(views),
        dilation=max(dilations, default=None),
    )


def _spent(view: RankView, state: Device) -> int:
    return intervals.total(intervals.intersect(view.states.during(state), view.states.steady_time))


def _launches_per_step(views: Sequence[RankView]) -> float:
    """Return how often the host launched something in a steady step, median; a replayed graph is one launch."""
    counts = []
    for view in views:
        launch = np.unique(view.work.launch[view.work.launch >= 0])
        at = view.calls.start_ns[launch] if launch.size else view.work.start_ns
        step = view.states.step_of(at)
        counts.append(np.bincount(step[step >= 0], minlength=view.states.step_begin.size)[view.states.steady])
    every = np.concatenate(counts)
    return float(np.median(every)) if every.size else 0.0


def _launch_ns(views: Sequence[RankView]) -> int:
    """Return the host time of one call that launches kernels, median."""
    lengths = []
    for view in views:
        kernels = (view.work.launch >= 0) & (view.work.kind == Device.COMPUTE)
        launch = np.unique(view.work.launch[kernels])
        if launch.size:
            launch = launch[view.calls.call[launch] == Call.RUNTIME]
            launch = launch[intervals.inside(view.calls.start_ns[launch], view.states.steady_time)]
            lengths.append(view.calls.end_ns[launch] - view.calls.start_ns[launch])
    every = np.concatenate(lengths) if lengths else np.zeros(0)
    return int(np.median(every)) if every.size else 0
