"""Read the windows in which torch.profiler watched the device of a live run: traces on the recorder's clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unstall.model.errors import UnstallError
from unstall.model.run import Fact
from unstall.model.trace import Calls, Trace, Work
from unstall.model.wire import CLOCK_MARK
from unstall.readers.kineto import read_trace

_CLOCK = re.compile(re.escape(CLOCK_MARK) + r"(\d+)")


def read(folder: Path, pid: int) -> tuple[Trace | None, Mapping[str, Fact]]:
    """Return the last window of process *pid* that can be read, in the recorder's time, and what it tells of the device.

    The first windows lie nearest the warm-up, so the last one is taken. A window without a mark of the clock, or that
    is damaged (the process was killed while it wrote), is left out; None where there is no other.
    """
    for path in sorted(folder.glob(f"window-{pid}-*.json.gz"), key=_number, reverse=True):
        try:
            rank = read_trace(path)
        except UnstallError:
            continue
        if rank.trace is not None and (offset := _offset(rank.trace)) is not None:
            gpu = {name: value for name, value in rank.facts.known.items() if name.startswith("gpu.")}
            return _shifted(rank.trace, offset), gpu
    return None, {}


def _number(path: Path) -> int:
    number = path.name.removesuffix(".json.gz").rpartition("-")[2]
    return int(number) if number.isdigit() else -1


def _offset(trace: Trace) -> int | None:
    """Return what to add to the trace's times, ns: the mean over its marks of the clock."""
    marks = {n: int(found[1]) for n, name in enumerate(trace.names) if (found := _CLOCK.fullmatch(name))}
    rows = np.flatnonzero(np.isin(trace.calls.name, list(marks)))
    if not rows.size:
        return None
    return round(sum(marks[int(trace.calls.name[row])] - int(trace.calls.start_ns[row]) for row in rows) / rows.size)


def _shifted(trace: Trace, by_ns: int) -> Trace:
    def moved(column: NDArray[np.int64]) -> NDArray[np.int64]:
        return column + by_ns

    calls, work = trace.calls, trace.work
    moved_calls: Calls = replace(calls, start_ns=moved(calls.start_ns), end_ns=moved(calls.end_ns))
    moved_work: Work = replace(work, start_ns=moved(work.start_ns), end_ns=moved(work.end_ns))
    return replace(trace, calls=moved_calls, work=moved_work)
