"""Tell what the host did in a run that is known by its events alone: a drawn timeline.

Every nanosecond goes to the innermost event over it. Fed the same pushes and pops, this and the live accounting agree.
"""

from __future__ import annotations

import numpy as np

from unstall.accounts.enter import WITHIN_TORCH
from unstall.accounts.host import Host
from unstall.model.ledger import OUTSIDE, Basis
from unstall.model.run import Rank
from unstall.model.steps import Steps
from unstall.model.trace import NONE
from unstall.model.wire import Activity, Kind, Phase

PHASE_OF = {
    Kind.FETCH: Phase.FETCH,
    Kind.FORWARD: Phase.FORWARD,
    Kind.BACKWARD: Phase.BACKWARD,
    Kind.OPTIMIZER: Phase.OPTIMIZER,
    Kind.EVALUATE: Phase.EVALUATE,
    Kind.CHECKPOINT: Phase.CHECKPOINT,
    Kind.BETWEEN: Phase.BETWEEN,
    Kind.STARTUP: Phase.STARTUP,
}
ACTIVITY_OF = {
    Kind.LOAD: Activity.LOAD,
    Kind.WAIT_DATA: Activity.WAIT_DATA,
    Kind.COPY: Activity.COPY,
    Kind.COMPILE: Activity.COMPILE,
    Kind.SYNC: Activity.SYNC,
    Kind.COLLECTIVE: Activity.COLLECTIVE,
    Kind.GC: Activity.GC,
    Kind.IO: Activity.IO,
    Kind.PYTHON: Activity.PYTHON,
    Kind.COMPUTE: Activity.COMPUTE,
    Kind.LAUNCH: Activity.LAUNCH,
}
_PHASE_OF_FETCH = (Kind.LOAD, Kind.WAIT_DATA)  # outside any phase these are the fetch of a batch


def from_events(rank: Rank, steps: Steps, r: int) -> Host:
    """Return what the host did, from the events on the rank's training thread (its first lane).

    Cost: O(N log N).
    """
    events = rank.events
    rows = [
        int(n) for n in np.flatnonzero(events.lane == 0) if events.kind[n] in PHASE_OF or events.kind[n] in ACTIVITY_OF
    ]
    edges = {rank.start_ns, rank.end_ns, *steps.start_SR[:, r].tolist(), *steps.end_SR[:, r].tolist()}
    # an event nests in another that begins no later and ends no earlier; of two over the same stretch the phase is outside
    order = sorted(rows, key=lambda n: (events.start_ns[n], -events.end_ns[n], events.kind[n] in ACTIVITY_OF))
    for n in order:
        edges |= {int(events.start_ns[n]), int(events.end_ns[n])}
    cuts = sorted(edge for edge in edges if rank.start_ns <= edge <= rank.end_ns)
    named, open_events, at = [], list[int](), 0
    for begin in cuts[:-1]:
        while at < len(order) and events.start_ns[order[at]] <= begin:
            open_events.append(order[at])
            at += 1
        open_events = [n for n in open_events if events.end_ns[n] > begin]
        step = int(np.searchsorted(steps.start_SR[:, r], begin, side="right")) - 1
        if step >= 0 and begin >= steps.end_SR[step, r]:
            step = OUTSIDE if step + 1 < steps.start_SR.shape[0] or step < 0 else -2
        phase, activity = _named([Kind(int(events.kind[n])) for n in open_events], step)
        basis = _basis(activity, open_events)
        named.append((phase, activity if activity != Activity.UNKNOWN else _within(phase), basis))
    phases, activities, bases = np.array(named, np.uint8).reshape(-1, 3).T
    none = np.full(len(named), NONE, np.int32)
    return Host(np.array(cuts, np.int64), phases, activities, bases, none, none)


def _named(kinds: list[Kind], step: int) -> tuple[int, int]:
    phase = Phase.BETWEEN if step >= 0 else Phase.STARTUP if step == OUTSIDE else Phase.SHUTDOWN
    activity = Activity.UNKNOWN
    for n, kind in enumerate(kinds):
        if kind in PHASE_OF:
            phase, activity = PHASE_OF[kind], Activity.UNKNOWN
        else:
            activity = ACTIVITY_OF[kind]
            if kind in _PHASE_OF_FETCH and not any(outer in PHASE_OF for outer in kinds[:n]):
                phase = Phase.FETCH
    return phase, activity


def _basis(activity: int, open_events: list[int]) -> int:
    return Basis.MEASURED if open_events and activity != Activity.UNKNOWN else Basis.RESIDUAL


def _within(phase: int) -> int:
    """Return what a phase's own time is taken for where no sample tells more."""
    if phase in WITHIN_TORCH:
        return Activity.COMPUTE
    return {Phase.CHECKPOINT: Activity.IO, Phase.FETCH: Activity.LOAD}.get(Phase(phase), Activity.UNKNOWN)
