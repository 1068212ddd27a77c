"""Steps out of the ranges that a trace names, and the thread that trains.

Shape legend: C calls, T threads, S steps.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.model.events import Events
from unstall.model.trace import Call, Calls
from unstall.model.wire import Kind

_STEP = re.compile(r"ProfilerStep#\d+$")
_OPTIMIZER = re.compile(r"Optimizer\.step#")
_LOADER = re.compile(r"enumerate\(DataLoader\)#")
_AUTOGRAD = re.compile(r"autograd::engine::")
LEAST = 3  # times that a range of the user's must come back before it counts as a step


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of one rank: int64 (S,), ns, disjoint, in order.

    Attributes:
        name: int32 (S,), index into the trace's names.
        inferred: how they were told where the profiler names none, "" where it does.
        seen: False where there are none and the whole trace stands for one.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    name: NDArray[np.int32]
    inferred: str = ""
    seen: bool = True

    def events(self, names: tuple[str, ...]) -> Events:
        """Return the steps as events on the lane of the training thread."""
        count = self.start_ns.size
        return Events(
            self.start_ns, self.end_ns, np.full(count, Kind.STEP, np.uint8), np.zeros(count, np.int32),
            self.name, np.arange(count, dtype=np.int32), np.zeros(count, np.int64), ("main",), names,
        )  # fmt: skip


def main_thread(calls: Calls, names: tuple[str, ...], threads: int) -> int:
    """Return the thread that trains: the one whose ranges name the steps, else the one that calls most operators.

    The autograd engine's threads call many operators too, so a thread counts only with what it calls outside the
    engine; where there are no operators the runtime's calls tell, then frames.
    """
    for rows in (
        _named(calls, names, _STEP),
        _named(calls, names, _OPTIMIZER),
        _outside_autograd(calls, names, threads),
        np.flatnonzero(calls.call == Call.RUNTIME),
        np.flatnonzero(calls.call == Call.FRAME),
    ):
        if rows.size:
            return int(np.bincount(calls.thread[rows]).argmax())
    return 0


def _outside_autograd(calls: Calls, names: tuple[str, ...], threads: int) -> NDArray[np.intp]:
    engine_T = np.zeros(threads, bool)
    engine_T[calls.thread[_named(calls, names, _AUTOGRAD)]] = True
    operators = np.flatnonzero(calls.call <= Call.OPERATOR)
    outside = operators[~engine_T[calls.thread[operators]]]
    return outside if outside.size else operators


def find(calls: Calls, names: tuple[str, ...], main: int, start_ns: int, end_ns: int) -> Steps:
    """Return the steps; where nothing tells them the whole trace, *start_ns* to *end_ns*, is one."""
    ranges = _ranges(calls, names, main)
    return (
        _profiler_steps(calls, names, main)
        or _between_optimizers(calls, names, main)
        or _from_loader(calls, names, main, end_ns)
        or _from_range(calls, names, ranges)
        or Steps(
            np.array([start_ns], np.int64), np.array([end_ns], np.int64), np.zeros(1, np.int32),
            "nothing in the trace names a step: the whole of it counts as one", False,
        )
    )  # fmt: skip


def _profiler_steps(calls: Calls, names: tuple[str, ...], main: int) -> Steps | None:
    rows = _named(calls, names, _STEP, main)
    if not rows.size:
        return None
    return _disjoint(calls.start_ns[rows], calls.end_ns[rows], calls.name[rows], "")


def _between_optimizers(calls: Calls, names: tuple[str, ...], main: int) -> Steps | None:
    """Return steps that end with the optimizer; of several the one that comes most often, then the last of them."""
    rows = _named(calls, names, _OPTIMIZER, main)
    if not rows.size:
        return None
    counted = Counter(calls.name[rows].tolist())
    chosen = max(counted, key=lambda name: (counted[name], int(calls.start_ns[rows[calls.name[rows] == name][0]])))
    rows = rows[calls.name[rows] == chosen]
    if rows.size < 2:
        return None
    end = calls.end_ns[rows]
    return _disjoint(end[:-1], end[1:], calls.name[rows[1:]], f"from one {names[chosen]} to the next")


def _from_loader(calls: Calls, names: tuple[str, ...], main: int, end_ns: int) -> Steps | None:
    rows = _named(calls, names, _LOADER, main)
    if rows.size < 2:
        return None
    start = calls.start_ns[rows]
    return _disjoint(start, np.append(start[1:], end_ns), calls.name[rows], "from one batch of the loader to the next")


def _from_range(calls: Calls, names: tuple[str, ...], rows: NDArray[np.intp]) -> Steps | None:
    """Return steps that begin with the outermost range that comes back and takes most of the time."""
    spent: dict[int, int] = {}
    counted = Counter(calls.name[rows].tolist())
    for name, count in counted.items():
        if count >= LEAST:
            chosen = rows[calls.name[rows] == name]
            spent[name] = int((calls.end_ns[chosen] - calls.start_ns[chosen]).sum())
    if not spent:
        return None
    name = max(spent, key=lambda key: spent[key])
    rows = rows[calls.name[rows] == name]
    start = calls.start_ns[rows]
    end = np.append(start[1:], calls.end_ns[rows[-1]])
    return _disjoint(start, end, calls.name[rows], f"from one range {names[name]!r} to the next")


def _ranges(calls: Calls, names: tuple[str, ...], main: int) -> NDArray[np.intp]:
    """Return the ranges on the training thread that lie in no other range."""
    rows = np.flatnonzero((calls.call == Call.ANNOTATION) & (calls.thread == main))
    if not rows.size:
        return rows
    latest = np.maximum.accumulate(calls.end_ns[rows])
    outermost = np.ones(rows.size, bool)
    outermost[1:] = calls.start_ns[rows[1:]] >= latest[:-1]
    return rows[outermost]


def _disjoint(start: NDArray[np.int64], end: NDArray[np.int64], name: NDArray[np.int32], inferred: str) -> Steps | None:
    """Return the steps in order; one that reaches into the next ends where that begins."""
    order = np.argsort(start, kind="stable")
    start, end, name = start[order], end[order].copy(), name[order]
    end[:-1] = np.minimum(end[:-1], start[1:])
    lasting = end > start
    return Steps(start[lasting], end[lasting], name[lasting], inferred) if lasting.any() else None


def _named(
    calls: Calls, names: tuple[str, ...], pattern: re.Pattern[str], thread: int | None = None
) -> NDArray[np.intp]:
    """Return the rows of operators and ranges whose name begins as *pattern* says."""
    known = np.fromiter([bool(pattern.match(name)) for name in names], bool, len(names))
    rows = np.flatnonzero(known[calls.name] & ((calls.call == Call.ANNOTATION) | (calls.call == Call.OPERATOR)))
    return rows if thread is None else rows[calls.thread[rows] == thread]
