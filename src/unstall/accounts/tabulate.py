"""Tables for analysts, of what the device and the host's calls did in the steady steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar

from unstall.accounts.operators import operators
from unstall.model.device import DeviceUse
from unstall.model.finding import Line
from unstall.model.report import Column, Table, Value
from unstall.model.run import Run
from unstall.model.steps import Steps

Row = TypeVar("Row")
Cell = Callable[[Row], Value]


def _place(line: Line | None) -> str | None:
    return None if line is None else f"{line.file}:{line.line}"


def _known(nbytes: int) -> int | None:
    return nbytes if nbytes > 0 else None


def _table(
    name: str, title: str, rows: Sequence[Row], *columns: tuple[str, str, Cell[Row]] | tuple[str, str, Cell[Row], bool]
) -> Table:
    made = tuple(
        Column(heading, unit, tuple(cell(row) for row in rows), *wide) for heading, unit, cell, *wide in columns
    )
    # a column that no row has anything in says only that it was not recorded; a file keeps it, for those who join files
    return Table(name, title, tuple(c if any(v not in (None, "") for v in c.values) else _hidden(c) for c in made))


def _hidden(column: Column) -> Column:
    return Column(column.name, column.unit, column.values, True)


def kernels(use: DeviceUse, whole_ns: int) -> Table:
    rows = sorted(use.kernels, key=lambda row: -row.ns)
    return _table(
        "kernels", "Work on the device, by name and by the operator that launched it", rows,
        ("kernel", "", attrgetter("name")),
        ("kind", "", lambda row: row.kind.name.lower(), True),
        ("count", "count", attrgetter("count")),
        ("device_ns", "ns", attrgetter("ns")),
        ("of_steps", "share", lambda row: row.ns / whole_ns),
        ("mean_ns", "ns", lambda row: row.ns // max(1, row.count)),
        ("critical_ns", "ns", attrgetter("critical_ns")),
        ("operator", "", attrgetter("operator")),
        ("inputs", "", lambda row: row.detail or None, True),
        ("line", "", lambda row: _place(row.line)),
    )  # fmt: skip


def collectives(use: DeviceUse, whole_ns: int) -> Table:
    rows = sorted(use.collectives, key=lambda row: -row.ns)
    return _table(
        "collectives", "Collectives on the device, and what of them no computation hid", rows,
        ("collective", "", attrgetter("name")),
        ("count", "count", attrgetter("count")),
        ("device_ns", "ns", attrgetter("ns")),
        ("of_steps", "share", lambda row: row.ns / whole_ns),
        ("exposed_ns", "ns", attrgetter("exposed_ns")),
        ("waited_ns", "ns", attrgetter("waited_ns")),
        ("nbytes", "bytes", lambda row: _known(row.nbytes)),
        ("phase", "", lambda row: row.phase.name.lower()),
        ("line", "", lambda row: _place(row.line)),
    )  # fmt: skip


def copies(use: DeviceUse, whole_ns: int) -> Table:
    rows = sorted(use.copies, key=lambda row: -row.ns)
    return _table(
        "copies", "Copies and fills, what of them nothing hid, and how long the host was held", rows,
        ("copy", "", attrgetter("name")),
        ("count", "count", attrgetter("count")),
        ("device_ns", "ns", attrgetter("ns")),
        ("of_steps", "share", lambda row: row.ns / whole_ns),
        ("exposed_ns", "ns", attrgetter("exposed_ns")),
        ("host_ns", "ns", attrgetter("host_ns")),
        ("nbytes", "bytes", lambda row: _known(row.nbytes)),
        ("rate", "bytes/s", lambda row: row.nbytes / row.ns * 1e9 if row.nbytes > 0 and row.ns else None),
        ("phase", "", lambda row: row.phase.name.lower(), True),
        ("operator", "", attrgetter("operator")),
        ("line", "", lambda row: _place(row.line)),
    )  # fmt: skip


def syncs(use: DeviceUse, whole_ns: int) -> Table:
    rows = sorted(use.syncs, key=lambda row: -row.ns)
    return _table(
        "syncs", "Where the host waits for the device, and how long the device idled after it", rows,
        ("call", "", attrgetter("call")),
        ("operator", "", attrgetter("operator")),
        ("phase", "", lambda row: row.phase.name.lower()),
        ("count", "count", attrgetter("count")),
        ("per_step", "count", attrgetter("per_step")),
        ("host_ns", "ns", attrgetter("ns")),
        ("of_steps", "share", lambda row: row.ns / whole_ns),
        ("idle_ns", "ns", attrgetter("idle_ns")),
        ("line", "", lambda row: _place(row.line)),
    )  # fmt: skip


def idle(use: DeviceUse, whole_ns: int) -> Table:
    rows = sorted(use.idling, key=lambda row: -row.ns)
    return _table(
        "idle", "Time in which the device had nothing to do, and what the host did meanwhile", rows,
        ("why", "", lambda row: row.why.value),
        ("phase", "", lambda row: row.phase.name.lower()),
        ("activity", "", lambda row: row.activity.name.lower().replace("_", " ")),
        ("call", "", lambda row: row.call or None),
        ("gaps", "count", attrgetter("gaps")),
        ("idle_ns", "ns", attrgetter("ns")),
        ("of_steps", "share", lambda row: row.ns / whole_ns),
        ("line", "", lambda row: _place(row.line)),
    )  # fmt: skip


def operators_table(run: Run, steps: Steps, whole_ns: int) -> Table:
    return _table(
        "operators", "Operators by the host time of their own, and the work that they launched", operators(run, steps),
        ("operator", "", attrgetter("name")),
        ("count", "count", attrgetter("count")),
        ("self_ns", "ns", attrgetter("self_ns")),
        ("of_steps", "share", lambda row: row.self_ns / whole_ns),
        ("runtime_ns", "ns", attrgetter("runtime_ns")),
        ("total_ns", "ns", attrgetter("ns")),
        ("device_ns", "ns", attrgetter("device_ns")),
        ("pieces", "count", attrgetter("pieces")),
    )  # fmt: skip


OF_DEVICE = {"kernels": kernels, "collectives": collectives, "idle": idle, "copies": copies, "syncs": syncs}
NAMES = ("kernels", "operators", "collectives", "idle", "copies", "syncs")


def tabulate(name: str, run: Run, steps: Steps, use: DeviceUse | None) -> Table:
    """Return the table called *name*, one of NAMES; without rows where the device was not observed."""
    lengths = (steps.end_SR - steps.start_SR)[steps.steady_S]
    whole_ns = max(1, int(lengths.sum()))
    if name == "operators":
        return operators_table(run, steps, whole_ns)
    nothing = DeviceUse(0, 0, 0, 0, 0, (), (), (), (), (), ())
    return OF_DEVICE[name](use or nothing, whole_ns)
