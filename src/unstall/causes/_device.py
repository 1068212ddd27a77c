"""Ledger time by what the device did: the arithmetic that the causes of the device share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from unstall.model.device import Idling
from unstall.model.finding import Line, Operator, Stake, Where
from unstall.model.ledger import Activity, Device, Phase
from unstall.model.run import Run
from unstall.model.trace import Call

Parts = Mapping[tuple[Phase, Activity, Device], int]

DILATED = 1.05  # times as long under the profiler; beyond it the host looks slower than it is


def idle_stakes(rows: Iterable[Idling], ns: int | None = None) -> tuple[Stake, ...]:
    """Return stakes on the idle time of *rows*: *ns* of it, taken from the first rows first; all where it is None."""
    taken: defaultdict[tuple[Phase, Activity], int] = defaultdict(int)
    left = ns
    for row in rows:
        part = row.ns if left is None else min(row.ns, left)
        taken[row.phase, row.activity] += part
        left = None if left is None else left - part
    return tuple(Stake(phase, activity, part, device=Device.IDLE) for (phase, activity), part in taken.items() if part)


def spread(ns: int, parts: Parts, device: Device, first: Phase | None = None) -> tuple[Stake, ...]:
    """Return stakes of *ns* on the time in which the device did *device*, in proportion to what the host did meanwhile.

    The time of the phase *first* is taken before that of others; no more than there is. The parts add up to the
    nanosecond.
    """
    held = [(entry, there) for entry, there in sorted(parts.items()) if entry[2] == device and there]
    of_phase = [(entry, there) for entry, there in held if entry[0] is first]
    others = [(entry, there) for entry, there in held if entry[0] is not first]
    stakes = []
    for group in (of_phase, others):
        whole = sum(there for _, there in group)
        part = min(ns, whole)
        ns -= part
        for (phase, activity, _), there in group:
            here = part * there // whole
            part, whole = part - here, whole - there
            if here:
                stakes.append(Stake(phase, activity, here, device=device))
    return tuple(stakes)


def merged(stakes: Iterable[Stake]) -> tuple[Stake, ...]:
    """Return *stakes* with those on one entry put together."""
    sums: defaultdict[tuple[Phase, Activity, Device | None], int] = defaultdict(int)
    for stake in stakes:
        sums[stake.phase, stake.activity, stake.device] += stake.ns
    return tuple(Stake(phase, activity, ns, device=device) for (phase, activity, device), ns in sums.items())


def total(stakes: Sequence[Stake]) -> int:
    return sum(stake.ns for stake in stakes)


def where(line: Line | None, name: str, phase: Phase) -> Where:
    """Return the user's line, or what can be named where no stack was recorded."""
    return line if line is not None else Operator(name, phase.name.lower())


def has_stacks(run: Run) -> bool:
    """Return whether the profiler recorded Python frames, which slows the host down by a factor."""
    return any(rank.trace is not None and bool((rank.trace.calls.call == Call.FRAME).any()) for rank in run.ranks)


def percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"
