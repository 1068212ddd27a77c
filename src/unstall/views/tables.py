"""The tables of a report: to the terminal the largest rows in what fits, to a file all rows and all columns."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

from unstall.model.errors import UnstallError
from unstall.views import _words as words

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table as Grid
    from rich.text import Text

    from unstall.model.report import Column, Report, Table, Value

NAME = "tables"
ROWS_SHOWN = 20
LEAST_TEXT = 12  # columns of a terminal; a text cut shorter than that tells nothing
FIRST = 0.6  # weight of the first column's width: the name is what a row is looked for by, so it is cut less
GAP = 2  # between two columns
FORMATS = (".csv", ".parquet")


class NoParquet(UnstallError):
    """Parquet was asked for and pyarrow is not installed."""


def render(report: Report, *, width: int = 100, colour: bool = False, verbose: bool = False) -> str:
    """Return every table of *report*, one below the other; *verbose* shows all rows."""
    from rich.console import Console
    from rich.text import Text

    page = io.StringIO()
    console = Console(
        file=page, width=width, force_terminal=colour, no_color=not colour, color_system="standard" if colour else None,
        legacy_windows=False, force_jupyter=False, highlight=False, markup=False, emoji=False, _environ={},
    )  # fmt: skip
    for number, table in enumerate(report.tables):
        if number:
            console.print()
        console.print(_heading(report, table))
        if not table.count:
            console.print(f"  no rows: {_why_empty(report)}", style="dim")
            continue
        shown = table.count if verbose else min(table.count, ROWS_SHOWN)
        console.print(_grid(table, shown, width))
        if shown < table.count:
            console.print(f"+{table.count - shown} more (-v shows them; --to FILE.csv writes all columns)", style="dim")
    for warning in report.warnings:
        console.print(Text.assemble(("! ", "bold yellow"), (warning, "yellow")))
    return words.finish("\n".join(line.rstrip() for line in page.getvalue().splitlines()) + "\n")


def _heading(report: Report, table: Table) -> Text:
    from rich.text import Text

    over = words.count(report.steady_steps, "steady step")
    ranks = f" of {len(report.rank_wall_ns)} ranks" if len(report.rank_wall_ns) > 1 else ""
    return Text.assemble((table.name, "bold"), f" · {table.title}\n", (f"summed over {over}{ranks}\n", "dim"))


def _why_empty(report: Report) -> str:
    from unstall.model.run import Sensor

    if not report.steady_steps:
        return "no steady step was found"
    unseen = report.missing.get(Sensor.DEVICE)
    return f"the device was not observed ({unseen})" if unseen else "there were none in the steady steps"


def _grid(table: Table, shown: int, width: int) -> Grid:
    """Return the first *shown* rows; what is left of *width* beside the numbers is shared by the texts."""
    from rich.table import Table as Grid
    from rich.text import Text

    columns = [column for column in table.columns if not column.wide]
    cells = [[_cell(column, value) for value in column.values[:shown]] for column in columns]
    rooms = _rooms(columns, cells, width)
    grid = Grid.grid(padding=(0, GAP, 0, 0))
    kept = [n for n, room in enumerate(rooms) if room]
    columns, cells, rooms = [columns[n] for n in kept], [cells[n] for n in kept], [rooms[n] for n in kept]
    for column, room in zip(columns, rooms):
        grid.add_column(justify="right" if column.unit else "left", no_wrap=True, width=room)
    grid.add_row(*(Text(_fit(_title(column), room), "dim") for column, room in zip(columns, rooms)))
    for n in range(shown):
        grid.add_row(*(Text(_fit(of[n], room, column)) for of, room, column in zip(cells, rooms, columns)))
    return grid


def _rooms(columns: list[Column], cells: list[list[str]], width: int) -> list[int]:
    """Return the width of each column: numbers get what they need, the longest texts are cut first.

    Where that is not enough, columns are left out from the right, the place last: they get no width.
    """
    rooms = [max(len(_title(column)), *map(len, of)) for column, of in zip(columns, cells)]
    texts = [n for n, column in enumerate(columns) if not column.unit]
    while sum(rooms) + GAP * sum(map(bool, rooms)) > width + GAP:
        longest = max(texts, key=lambda n: rooms[n] * (1 if n else FIRST))
        if rooms[longest] > LEAST_TEXT:
            rooms[longest] -= 1
            continue
        left = [n for n in range(1, len(rooms)) if rooms[n]]
        if not left:
            break
        rooms[max(left, key=lambda n: (columns[n].name != "line", n))] = 0
    return rooms


def _title(column: Column) -> str:
    name = column.name.removesuffix("_ns")
    return {"nbytes": "size", "of_steps": "of steps"}.get(name, name.replace("_", " "))


def _cell(column: Column, value: Value) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        return short(value)
    return words.finish(words.measured(value, column.unit))


def short(name: str) -> str:
    """Return a name without what C++ wraps around it: return type, unnamed namespaces, arguments, the engine."""
    name = name.replace("autograd::engine::evaluate_function: ", "backward of ")
    name = re.sub(r"^(void|auto) ", "", name).replace("(anonymous namespace)::", "").replace("at::native::", "")
    depth = 0
    for at, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and at and "<" in name[:at]:
            return name[:at]
    return name


def _fit(text: str, room: int, column: Column | None = None) -> str:
    """Return *text* in *room* columns; a place is cut on its left, where files are alike, all else on the right."""
    if len(text) <= room:
        return text
    return words.shorten(text, room) if column is not None and column.name == "line" else text[: room - 1] + "…"


def save(table: Table, path: Path) -> None:
    """Write all rows to *path*, as its name ends: CSV or Parquet. The columns are named as in `Table`, times in ns.

    Raises:
        NoParquet: When Parquet is asked for and cannot be written here.
        UnstallError: When the name ends otherwise, or the file cannot be written.
    """
    check(path)
    data = _csv(table) if path.suffix.lower() == ".csv" else _parquet(table)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UnstallError(f"{path}: the table could not be written ({error.strerror}).") from error


def check(path: Path) -> None:
    """Say before the work what would be found out only after it.

    Raises:
        NoParquet, UnstallError: As `save`.
    """
    if path.suffix.lower() not in FORMATS:
        raise UnstallError(f"{path}: a table is written as CSV or Parquet.\nName the file *.csv or *.parquet.")
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise NoParquet(
                f"{path}: Parquet is written by pyarrow, which is not installed.\n"
                "Install it (pip install 'unstall[parquet]'), or name the file *.csv."
            ) from None


def _csv(table: Table) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(column.name for column in table.columns)
    writer.writerows(zip(*(column.values for column in table.columns)))  # None is written as nothing
    return text.getvalue().encode()


def _parquet(table: Table) -> bytes:
    import pyarrow
    import pyarrow.parquet

    kinds = {"": pyarrow.string(), "share": pyarrow.float64(), "bytes/s": pyarrow.float64()}
    arrays = {
        column.name: pyarrow.array(
            column.values,
            kinds.get(column.unit) or (pyarrow.float64() if column.name == "per_step" else pyarrow.int64()),
        )
        for column in table.columns
    }
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(arrays), sink, compression="zstd")
    return bytes(sink.getvalue())
