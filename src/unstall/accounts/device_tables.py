"""Sum up what the device did by name, operator and line.

Shape legend: W pieces of device work, K rows that are grouped, Q columns that are summed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.critical import Path
from unstall.accounts.idling import REASONS, Pieces
from unstall.accounts.nesting import at_rows
from unstall.accounts.rank_view import RankView
from unstall.model import intervals
from unstall.model.device import Copies, Critical, DeviceCollectives, Idle, Idling, Kernels, Syncs
from unstall.model.finding import Line
from unstall.model.trace import NONE
from unstall.model.wire import Activity, Device, Phase

# float64 adds whole numbers below 2**53 exactly: 104 days of ns, 9 PB
Sums = NDArray[np.float64]


def idling(views: Sequence[RankView], gaps: Sequence[Pieces]) -> tuple[Idling, ...]:
    """Return the idle time by reason, by what the host did and at which line, the longest first.

    A gap in which the host did several things counts in parts, so that all rows together count each gap once.
    """
    sums: dict[tuple[int, int, int, Line | None, str], Sums] = defaultdict(lambda: np.zeros(2))
    for view, found in zip(views, gaps):
        host, at = view.states.host, found.stretch
        columns = (found.why, host.phase[at], host.activity[at], view.stretch_place()[at], view.stretch_call()[at])
        for (why, phase, activity, place, call), spent in _grouped(columns, (found.ns, found.counts())):
            sums[why, phase, activity, view.lines[place], view.trace.names[call]] += spent
    counts = np.diff(np.rint(np.cumsum([spent[1] for spent in sums.values()])), prepend=0).tolist() if sums else []
    rows = [
        Idling(REASONS[why], Phase(phase), Activity(activity), int(spent[0]), int(count), line, call)
        for ((why, phase, activity, line, call), spent), count in zip(sums.items(), counts)
    ]
    return tuple(sorted(rows, key=lambda row: -row.ns))


def kernels(views: Sequence[RankView], paths: Sequence[Path]) -> tuple[Kernels, ...]:
    """Return the work by name, operator, inputs and line, the longest first."""
    sums: dict[tuple[str, int, str, str, Line | None], Sums] = defaultdict(lambda: np.zeros(3))
    for view, path in zip(views, paths):
        rows, work, names = np.flatnonzero(view.steady), view.work, view.trace.names
        operator, detail = view.kernel_operator()
        on_path = np.zeros(work.name.size, np.int64)
        np.add.at(on_path, [row for row, _ in path.visits], [ns for _, ns in path.visits])
        columns = (work.name[rows], work.kind[rows], operator[rows], detail[rows], view.work_place[rows])
        numbers = (np.ones(rows.size), (work.end_ns - work.start_ns)[rows], on_path[rows])
        for (name, kind, of, given, place), spent in _grouped(columns, numbers):
            sums[names[name], kind, names[of], names[given], view.lines[place]] += spent
    found = []
    for (label, kind, by, inputs, line), spent in sums.items():
        count, ns, critical_ns = map(int, spent)
        found.append(Kernels(label, Device(kind), count, ns, critical_ns, by, inputs, line))
    return tuple(sorted(found, key=lambda row: -row.ns))


def copies(views: Sequence[RankView]) -> tuple[Copies, ...]:
    """Return the copies by name, phase, operator and line, the longest first."""
    sums: dict[tuple[str, int, str, Line | None], Sums] = defaultdict(lambda: np.zeros(6))
    for view in views:
        work, calls, names = view.work, view.calls, view.trace.names
        rows = np.flatnonzero(view.steady & (work.kind == Device.COPY))
        operator, _ = view.kernel_operator()
        held = at_rows(work.launch[rows], calls.end_ns) - at_rows(work.launch[rows], calls.start_ns)
        known = work.nbytes[rows] != NONE
        columns = (work.name[rows], view.work_phase[rows], operator[rows], view.work_place[rows])
        numbers = (
            np.ones(rows.size), (work.end_ns - work.start_ns)[rows], _shown(view, Device.COPY)[rows], held,
            np.where(known, work.nbytes[rows], 0), known,
        )  # fmt: skip
        for (name, phase, of, place), spent in _grouped(columns, numbers):
            sums[names[name], phase, names[of], view.lines[place]] += spent
    found = []
    for (label, phase, by, line), spent in sums.items():
        count, ns, exposed, host, nbytes, sized = map(int, spent)
        size = nbytes if sized else NONE
        found.append(Copies(label, count, ns, exposed, host, size, Phase(phase), by, line))
    return tuple(sorted(found, key=lambda row: -row.ns))


def syncs(views: Sequence[RankView], gaps: Sequence[Pieces]) -> tuple[Syncs, ...]:
    """Return the host's waits for the device by call, operator, phase and line, the longest first.

    A gap counts as following the wait during which the device ran out of work; of it that counts in which the host was
    still in the wait, or had not launched anew.
    """
    sums: dict[tuple[str, str, int, Line | None], Sums] = defaultdict(lambda: np.zeros(3))
    steps = 0
    for view, found in zip(views, gaps):
        calls, names, states = view.calls, view.trace.names, view.states
        rows = view.waits if states.told is None else view.waits[states.told.activity[view.waits] == Activity.SYNC]
        rows = rows[intervals.inside(calls.start_ns[rows], states.steady_time)]
        idle = _idle_after(calls.start_ns[rows], calls.end_ns[rows], found)
        steps += int(states.steady.sum())
        stretch = states.host.at(calls.start_ns[rows])
        place = view.place[rows]
        place = np.where(place > 0, place, view.stretch_place()[stretch])
        columns = (calls.name[rows], view.operator[rows], states.host.phase[stretch], place)
        numbers = (np.ones(rows.size), calls.end_ns[rows] - calls.start_ns[rows], idle)
        for (name, of, phase, at), spent in _grouped(columns, numbers):
            sums[names[name], names[of], phase, view.lines[at]] += spent
    made = []
    for (label, by, phase, line), spent in sums.items():
        count, ns, idle_ns = map(int, spent)
        made.append(Syncs(label, by, Phase(phase), count, count / max(1, steps), ns, idle_ns, line))
    return tuple(sorted(made, key=lambda row: -row.ns))


def _idle_after(start: NDArray[np.int64], end: NDArray[np.int64], gaps: Pieces) -> NDArray[np.int64]:
    """Return how long the device idled because of each wait, given by *start* and *end* in order of start."""
    idle = np.zeros(start.size, np.int64)
    lost = gaps.ns_of(Idle.SYNC, Idle.HOST)
    began = gaps.gaps[:, 0]
    place = np.searchsorted(start, began, side="right") - 1
    during = (place >= 0) & (lost > 0)
    during[during] = end[place[during]] >= began[during]
    np.add.at(idle, place[during], lost[during])
    return idle


def collectives(views: Sequence[RankView]) -> tuple[DeviceCollectives, ...]:
    """Return the collectives by name, phase and line, the longest first."""
    sums: dict[tuple[str, int, Line | None], Sums] = defaultdict(lambda: np.zeros(6))
    for view, waited in zip(views, _waited(views)):
        work, names = view.work, view.trace.names
        rows = _collectives(view)
        known = work.nbytes[rows] != NONE
        columns = (work.name[rows], view.work_phase[rows], view.work_place[rows])
        numbers = (
            np.ones(rows.size), (work.end_ns - work.start_ns)[rows], _shown(view, Device.COLLECTIVE)[rows],
            np.where(known, work.nbytes[rows], 0), np.maximum(waited, 0), waited < 0,
        )  # fmt: skip
        for (name, phase, place), spent in _grouped(columns, numbers):
            sums[names[name], phase, view.lines[place]] += spent
    found = []
    for (label, phase, line), spent in sums.items():
        count, ns, exposed, nbytes, late, unknown = map(int, spent)
        found.append(
            DeviceCollectives(label, count, ns, exposed, nbytes, None if unknown else late, Phase(phase), line)
        )
    return tuple(sorted(found, key=lambda row: -row.ns))


def _collectives(view: RankView) -> NDArray[np.intp]:
    return np.flatnonzero(view.steady & (view.work.kind == Device.COLLECTIVE))


def _waited(views: Sequence[RankView]) -> list[NDArray[np.int64]]:
    """Return how long each collective waited for the last rank, NONE where that is not known.

    All ranks leave a collective together, and the last to come finds the others there: so what it takes on a rank beyond
    what it takes on the one where it is shortest is waiting. No clock is compared. The n-th of a name on one rank is taken
    for the n-th of that name on the others, where all have as many.
    """
    found = [np.full(_collectives(view).size, NONE, np.int64) for view in views]
    if len(views) < 2:
        return found
    lengths = [(view.work.end_ns - view.work.start_ns)[_collectives(view)] for view in views]
    names = [[view.trace.names[n] for n in view.work.name[_collectives(view)].tolist()] for view in views]
    for name in set().union(*names):
        rows = [np.array([n for n, known in enumerate(of_rank) if known == name], np.intp) for of_rank in names]
        if len({of_rank.size for of_rank in rows}) == 1:
            least = np.min([of_rank[at] for of_rank, at in zip(lengths, rows)], axis=0)
            for waited, of_rank, at in zip(found, lengths, rows):
                waited[at] = of_rank[at] - least
    return found


def critical(views: Sequence[RankView], paths: Sequence[Path]) -> tuple[Critical, ...]:
    """Return the critical path by phase and by what the host or the device does on it, the longest first."""
    sums: dict[tuple[int, int, int], int] = defaultdict(int)
    for view, path in zip(views, paths):
        for key, ns in _on_path(view, path):
            sums[key] += ns
    found = [
        Critical(Phase(phase), None if activity == NONE else Activity(activity), Device(device), ns)
        for (phase, activity, device), ns in sums.items()
        if ns
    ]
    return tuple(sorted(found, key=lambda row: -row.ns))


def _on_path(view: RankView, path: Path) -> Iterator[tuple[tuple[int, int, int], int]]:
    """Yield phase, activity or NONE, what the device does, and ns, of the parts of one rank's path."""
    host, work = view.states.host, view.work
    on_host = np.array(sorted(path.host), np.int64).reshape(-1, 2)
    ns = intervals.overlap(host.edge[:-1], host.edge[1:], on_host)
    key = host.phase.astype(np.int64) * len(Activity) + host.activity
    for number, spent in enumerate(np.bincount(key, ns).tolist() if key.size else ()):
        phase, activity = divmod(number, len(Activity))
        yield (phase, activity, int(Device.IDLE)), int(spent)
    for row, length in path.visits:
        yield (int(view.work_phase[row]), NONE, int(work.kind[row])), length
    for row, length in path.waits:
        yield (int(view.work_phase[row]), NONE, int(Device.IDLE)), length


def _shown(view: RankView, state: Device) -> NDArray[np.int64]:
    """Return how long each piece of work was what the device is said to have done; of several at once, the first."""
    work = view.work
    found = np.zeros(work.name.size, np.int64)
    rows = np.flatnonzero(work.kind == state)
    begin, end = intervals.first_come(work.start_ns[rows], work.end_ns[rows])
    found[rows] = intervals.overlap(begin, end, view.states.during(state))
    return found


def _grouped(
    columns: Sequence[NDArray[np.integer]], numbers: Sequence[NDArray[np.generic]]
) -> Iterator[tuple[tuple[int, ...], Sums]]:
    """Yield each different row of *columns*, (K,) each and not negative, and the sums of *numbers* over its like, (Q,)."""
    key = np.zeros(columns[0].size, np.int64)
    sizes = [int(column.max(initial=0)) + 1 for column in columns]
    for column, size in zip(columns, sizes):
        key = key * size + column
    keys, which = np.unique(key, return_inverse=True)
    if not keys.size:
        return
    sums = np.stack([np.bincount(which, column, keys.size) for column in numbers], axis=1)
    parts: list[list[int]] = []
    for size in reversed(sizes):
        keys, part = np.divmod(keys, size)
        parts.append(part.tolist())
    yield from zip(zip(*reversed(parts)), sums)
