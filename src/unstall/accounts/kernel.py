"""What the operating system's kernel did in the steady steps, from readings of the training's process."""

from __future__ import annotations

import numpy as np

from unstall.model.run import Gauges
from unstall.model.steps import Steps
from unstall.model.tables import Kernel


def read_between(gauges: Gauges, steps: Steps) -> tuple[int, int] | None:
    """Return the first and the last reading within the steady steps; None where there are not two."""
    if not steps.steady_S.any():
        return None
    steady = steps.steady
    begin, end = int(steps.start_SR[steady[0], 0]), int(steps.end_SR[steady[-1], 0])
    inside = np.flatnonzero((gauges.at_ns >= begin) & (gauges.at_ns <= end))
    return None if inside.size < 2 else (int(inside[0]), int(inside[-1]))


def kernel_of(gauges: Gauges | None, steps: Steps) -> Kernel | None:
    """Return what the kernel did in the steady steps; None where it was not read twice in them."""
    if gauges is None or gauges.system_ns is None or gauges.page_faults is None:
        return None
    between = read_between(gauges, steps)
    if between is None:
        return None
    first, last = between
    ends, count = steps.end_SR[:, 0], np.cumsum(steps.weight_S)
    made = float(np.diff(np.interp(gauges.at_ns[[first, last]], ends, count))[0])
    cpu_ns = float(gauges.team_cpu_ns[last] - gauges.team_cpu_ns[first])
    if made <= 0 or cpu_ns <= 0:
        return None
    system_ns = float(gauges.system_ns[last] - gauges.system_ns[first])
    faults = float(gauges.page_faults[last] - gauges.page_faults[first])
    return Kernel(min(1.0, system_ns / cpu_ns), faults / made, cpu_ns / made)
