"""What the ledger holds for findings to stand on, by scope, and what their shares are shares of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unstall.model.finding import Scope
from unstall.model.ledger import Activity, Device, Ledger, Phase
from unstall.model.report import Job
from unstall.model.steps import Steps

Entry = tuple[Phase, Activity, Device]


def held(ledger: Ledger, steps: Steps) -> Mapping[Scope, Mapping[Entry, int]]:
    """Return ns by scope and entry, all ranks."""
    steady = ledger.rows(steps=steps.steady)
    found: dict[Scope, dict[Entry, int]] = {}
    for scope, rows in ((Scope.STEADY, steady), (Scope.STARTUP, ~steady), (Scope.PERIODIC, np.ones_like(steady))):
        spent = table(ledger, rows)
        found[scope] = {(Phase(p), Activity(a), Device(d)): int(spent[p, a, d]) for p, a, d in np.argwhere(spent)}
    return found


def table(ledger: Ledger, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return ns of *rows* by phase, activity and device, int64 (P, A, D)."""
    spent = np.zeros((len(Phase), len(Activity), len(Device)), np.int64)
    np.add.at(spent, (ledger.phase[rows], ledger.activity[rows], ledger.device[rows]), ledger.ns[rows])
    return spent


def wholes(ledger: Ledger, steps: Steps, job: Job | None = None) -> Mapping[Scope, int]:
    """Return by scope what a share of 1 would be, in ns of this run, all ranks.

    Where the job's length is known it is the job: start-up once, the steady step as often as the job makes it, periodic
    costs in proportion. Where it is not, the steady steps for what each of them costs, and for the others the loop so far
    (its warm-up included): it is the loop that waited for them.
    """
    steady = ledger.total_ns(steps=steps.steady)
    loop = ~((ledger.step < 0) & np.isin(ledger.phase, (Phase.STARTUP, Phase.SHUTDOWN)))
    in_loop = int(ledger.ns[loop].sum())
    length = _job_ns(ledger, steps, job, steady) if job is not None else None
    if length is None or not steps.steady_count:
        return {Scope.STEADY: steady, Scope.STARTUP: in_loop, Scope.PERIODIC: in_loop}
    job_ns, job_steps = length
    return {
        Scope.STEADY: int(job_ns * steps.steady_count / job_steps),
        Scope.STARTUP: int(job_ns),
        Scope.PERIODIC: int(job_ns * steps.count / job_steps),
    }


def _job_ns(ledger: Ledger, steps: Steps, job: Job, steady_ns: int) -> tuple[float, float] | None:
    """Return the job's length, ns of all ranks, and its steps; None where it is not known."""
    if not steps.steady_count or (job.steps is None and job.hours is None):
        return None
    mean = steady_ns / steps.steady_count
    once = float(ledger.ns[(ledger.step < 0) & (ledger.phase == Phase.STARTUP)].sum())
    if job.steps is not None:
        return once + job.steps * mean, float(job.steps)
    length = (job.hours or 0.0) * 3.6e12 * len(ledger.wall_R)
    return length, max(1.0, (length - once) / mean)
