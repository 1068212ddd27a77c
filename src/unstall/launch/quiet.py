"""Whether other programs leave the training its cores, and waiting until they do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

OTHERS_SHARE = 0.25  # of the usable cores; where others take more of them, it is worth waiting
GLANCE_S = 0.4  # over which the machine is looked at
PAUSE_S = 1.0  # between two looks


def taken(others_busy: float, usable: float, share: float = OTHERS_SHARE) -> bool:
    """Return whether other programs keep the training from more than *share* of the cores that it may use.

    Args:
        others_busy: cores that they keep busy, of all of the machine; usable: cores that the training may use.
    """
    left = (os.cpu_count() or 1) - others_busy
    return left < (1 - share) * usable


def await_quiet(
    usable: float, most_s: float, busy: Callable[[], float | None] | None = None, pause_s: float = PAUSE_S
) -> float:
    """Wait until other programs leave the training its cores, at most *most_s*; return the seconds waited.

    To be called while no process of the training runs: all that is busy is others'.  A look takes 0.4 s and counts as
    waiting only where it found others busy.

    Args:
        busy: looks at the machine and returns the busy cores; None where they cannot be told.
    """
    look, begun, waited = busy or busy_cores, time.monotonic(), 0.0
    while True:
        cores = look()
        if cores is None or not taken(cores, usable):
            return waited
        waited = time.monotonic() - begun
        if waited >= most_s:
            return waited
        time.sleep(pause_s)


def busy_cores() -> float | None:
    """Return how many cores were busy over a glance; None where the kernel does not tell."""
    before, at = _busy_ticks(), time.monotonic()
    time.sleep(GLANCE_S)
    after, passed = _busy_ticks(), time.monotonic() - at
    if before is None or after is None:
        return None
    return (after - before) / (os.sysconf("SC_CLK_TCK") or 100) / passed


def _busy_ticks() -> int | None:
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(field) for field in file.readline().split()[1:]]
    except (OSError, ValueError):
        return None
    if len(ticks) < 8:
        return None
    user, nice, system, _idle, _iowait, irq, softirq = ticks[:7]
    return user + nice + system + irq + softirq
