"""The account of a step as bars, and the table of ranks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from unstall.model.report import RankSummary, Share
from unstall.views import _words as words

LEAST_PART = 0.005  # of the step; a smaller part is shown with --verbose only
MARKED_PART = 0.05  # of the step; a part that is no tensor work and at least this is coloured in the text too
RANKS_SHOWN = 8  # a longer table does not fit beside the rest; --verbose shows all
_EIGHTHS = " ▏▎▍▌▋▊▉"

WORK, LOST, DARK = "blue", "yellow", "bright_black"


def _style(activity: str) -> str:
    key = activity.lower()
    return DARK if key == "unknown" else WORK if key in words.WORKING else LOST


def bar(row: Share, columns: int) -> Text:
    """Return *row* as a bar, a full one being *columns* wide; its activities in order, told apart by colour."""
    parts = row.parts or (row,)  # the last one takes what rounding leaves
    eighths = round(8 * columns * min(row.share, 1.0))
    text = Text()
    done = 0
    for number, part in enumerate(parts):
        end = eighths if number == len(parts) - 1 else min(eighths, done + round(8 * columns * part.share))
        whole = end // 8 - done // 8
        text.append("█" * whole, _style(part.name))
        done = end
    if eighths % 8 or (row.ns and not eighths):
        text.append(_EIGHTHS[max(eighths % 8, 1)], _style(parts[-1].name))
    return text


def _parts(row: Share, verbose: bool) -> Text:
    """Return the activities of *row*, with their shares of the same whole."""
    shown = [part for part in row.parts if verbose or part.share >= LEAST_PART]
    if len(shown) == 1 and shown[0].ns == row.ns and not shown[0].parts:
        return _part(shown[0], verbose, whole=True)
    return Text(" · ").join(_part(part, verbose) for part in shown)


def _part(part: Share, verbose: bool, whole: bool = False) -> Text:
    """Return an activity and its share, or only its name where it is the *whole* of its phase."""
    style = _style(part.name)
    text = Text()
    text.append(words.name(part.name), style if style == LOST and part.share >= MARKED_PART else "")
    if whole:
        return text
    text.append(f" {words.share(part.share)}")
    inner = [inner for inner in part.parts if verbose or inner.share >= LEAST_PART]
    if inner:
        said = ", ".join(f"{words.name(one.name)} {words.share(one.share)}" for one in inner)
        text.append(f" ({said})", "dim")
    return text


def chart(rows: Sequence[Share], width: int, verbose: bool, below: Sequence[Share] = ()) -> Table:
    """Return one bar a phase: its share, its time, and the activities in it; *below* a gap those of the device."""
    bars = max(8, min(40, width * 3 // 10))
    longest = max((row.share for row in (*rows, *below)), default=1.0)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, width=min(bars, max(4, round(bars * longest) + 1)))
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, justify="right", style="dim")
    table.add_column()
    for row in (*rows, *below):
        if below and row is below[0]:
            table.add_row()
        if verbose or row.share >= LEAST_PART / 10:
            table.add_row(
                Text(words.name(row.name), _label(row)),
                bar(row, bars),
                words.share(row.share),
                words.duration(row.ns),
                _parts(row, verbose),
            )
    return table


def _label(row: Share) -> str:
    return "bright_black" if row.name.lower() == "unknown" else ""


def outside(rows: Sequence[Share], verbose: bool) -> Text | None:
    """Return the sentence on the time outside the steps, or None where there was none."""
    shown = [row for row in rows if row.ns and (verbose or row.share >= LEAST_PART / 5)]
    if not shown:
        return None
    text = Text("outside the steps: ", "dim")
    text.append(" · ".join(f"{words.name(row.name)} {words.duration(row.ns)}" for row in shown))
    return text


def ranks(rows: Sequence[RankSummary], verbose: bool) -> Table:
    """Return the ranks side by side; the one with most work of its own is the one that the others wait for."""
    slowest = max(rows, key=lambda row: row.own_ns)
    shown = list(rows)
    if len(rows) > RANKS_SHOWN and not verbose:
        by_work = sorted(rows, key=lambda row: -row.own_ns)
        shown = [*by_work[: RANKS_SHOWN - 1], by_work[-1]]
    table = Table.grid(padding=(0, 3, 0, 0))
    titles = ("rank", "step", "own work", "waits")
    for _ in titles:
        table.add_column(justify="right", no_wrap=True)
    table.add_column()
    table.add_row(*(Text(title, "dim") for title in titles), "")
    for row in shown:
        bounds = row is slowest
        cells = (str(row.rank), *(words.duration(ns) for ns in (row.step_ns, row.own_ns, row.waits_ns)))
        table.add_row(*(Text(cell, "bold" if bounds else "") for cell in cells), "bounds the step" if bounds else "")
    if len(shown) < len(rows):
        table.add_row("", "", "", "", Text(f"{len(rows) - len(shown)} ranks between these: -v shows them", "dim"))
    return table
