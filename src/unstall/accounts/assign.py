"""Make the ledger of a run that is known by its events alone: a drawn timeline, later a trace.

Every nanosecond goes to the innermost event over it. Fed the same pushes and pops, this and the live accounting agree.
"""

from __future__ import annotations

import numpy as np

from unstall.accounts.enter import WITHIN_TORCH
from unstall.model.ledger import OUTSIDE, Basis, Ledger
from unstall.model.run import Rank, Run
from unstall.model.steps import Steps
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
}
_PHASE_OF_FETCH = (Kind.LOAD, Kind.WAIT_DATA)  # outside any phase these are the fetch of a batch


def assign(run: Run, steps: Steps) -> Ledger:
    """Return the ledger of *run* from the events on each rank's training thread (its first lane).

    Cost: O(N log N).
    """
    entries = [
        (step, r, phase, activity, basis, ns)
        for r, rank in enumerate(run.ranks)
        for step, phase, activity, basis, ns in _slices(rank, steps, r)
    ]
    return Ledger.of(entries, [rank.end_ns - rank.start_ns for rank in run.ranks])


def _slices(rank: Rank, steps: Steps, r: int) -> list[tuple[int, int, int, int, int]]:
    """Return (step, phase, activity, basis, ns) of every stretch between two edges."""
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
    slices, open_events, at = [], list[int](), 0
    for begin, end in zip(cuts, cuts[1:]):
        while at < len(order) and events.start_ns[order[at]] <= begin:
            open_events.append(order[at])
            at += 1
        open_events = [n for n in open_events if events.end_ns[n] > begin]
        step = int(np.searchsorted(steps.start_SR[:, r], begin, side="right")) - 1
        if step >= 0 and begin >= steps.end_SR[step, r]:
            step = OUTSIDE if step + 1 < steps.start_SR.shape[0] or step < 0 else -2
        phase, activity = _named([Kind(int(events.kind[n])) for n in open_events], step)
        slices.append((max(step, OUTSIDE), phase, activity, _basis(activity, open_events), end - begin))
    return [(s, p, a if a != Activity.UNKNOWN else _within(p), b, ns) for s, p, a, b, ns in slices]


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
