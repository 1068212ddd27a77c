"""The page of a comparison: how long a step takes in both runs, where it changed, which faults and which fusion."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from unstall.views import _words as words
from unstall.views.terminal import LEAST_WIDTH, MEASURE, MOST_WIDTH, cut, drawn, indented, title

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from unstall.model.compared import Comparison, Moved, OfGraph, Row, Side, Told
    from unstall.model.fusion import Graph

NAME = "compared"
GRAPHS_SHOWN, KERNELS_SHOWN = 6, 6  # --verbose shows all
_NUMBER = 12  # columns of a number
UNPAIRED = (
    "One run after the other, not in turns: a difference, and no proof of one. unstall fix proves a change in pairs."
)


def render(compared: Comparison, *, width: int = 100, colour: bool = False, verbose: bool = False) -> str:
    """Return the page, *width* columns wide (60 to 160), ending in a newline."""
    width = max(LEAST_WIDTH, min(width, MOST_WIDTH))
    return drawn(_page(compared, min(width, MEASURE), verbose), width, colour)


def _page(compared: Comparison, width: int, verbose: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text("unstall compare", "bold")
    for letter, side in (("A", compared.a), ("B", compared.b)):
        yield Text.assemble((f"  {letter}  ", "bold"), cut(_run(side), 2 * width))
    yield Text("")
    yield from map(indented, _headline(compared))
    yield from _times(compared, width)
    yield from _told("Named in B, and not in A", compared.appeared)
    yield from _told("Named in A, and not in B", compared.gone)
    yield from _fusion(compared, width, verbose)
    yield from _differing(compared)


def _run(side: Side) -> str:
    command = " ".join(side.command)
    steps = f"{words.count(side.steady_steps, 'steady step')}"
    ranks = f", {words.count(side.ranks, 'rank')}" if side.ranks > 1 else ""
    return f"{side.name} · {command + ' · ' if command else ''}{steps}{ranks}"


def _headline(compared: Comparison) -> Iterator[RenderableType]:
    from rich.text import Text

    a, b = compared.a.step_ns, compared.b.step_ns
    if a is not None and b is not None and compared.ratio is not None:
        said = f"A step takes {words.duration(a.median)} in A and {words.duration(b.median)} in B"
        ranges = "; ".join(f"{words.duration_range(one.p10, one.p90)}" for one in (a, b))
        met = "which do not meet" if compared.apart else "which overlap"
        yield Text.assemble((f"{said}: {_ratio(compared.ratio)}", "bold"), f" (medians; p10-p90 {ranges}, {met}).")
    if compared.free_ratio is not None:
        a_ns, b_ns = compared.a.free_ns, compared.b.free_ns
        said = f"Without the time in which no core was free: {words.duration(a_ns)} and {words.duration(b_ns)}"
        yield Text(f"{said} (means): {_ratio(compared.free_ratio)}.")
    yield Text(UNPAIRED, "dim")
    for note in compared.notes:
        yield Text.assemble(("! ", "bold yellow"), (f"{note}.", "yellow"))


def _ratio(ratio: float) -> str:
    if 0.995 <= ratio < 1.005:
        return "B takes as long"
    return f"B takes {ratio:.2f} times as long"


# ------------------------------------------------------------------ time


def _times(compared: Comparison, width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    parts = (("What changed in the mean step", compared.rows), ("What changed outside the steps", compared.outside))
    for heading, rows in parts:
        if rows:
            yield Text("")
            yield _table(heading, rows, width, lambda name, value: words.duration(value))
    if not compared.rows and compared.ratio is not None:
        yield Text("")
        yield indented(Text("No part of the step differs by 2 % of it."))


def _table(heading: str, rows: Sequence[Row], width: int, said: Callable[[str, int], str]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=max(24, width - 3 * (_NUMBER + 2) - 4))
    for _ in range(3):
        grid.add_column(justify="right", width=_NUMBER, no_wrap=True)
    grid.add_row(title(heading), *(Text(name, "dim") for name in ("A", "B", "change")))
    for row in rows:
        a, b = ("-" if value is None else said(row.name, value) for value in (row.a, row.b))
        grid.add_row(f"  {row.name}", a, b, _change(row, said))
    return grid


def _change(row: Row, said: Callable[[str, int], str]) -> Text:
    from rich.text import Text

    if not row.change:
        return Text("")
    return Text(f"{'+' if row.change > 0 else '-'}{said(row.name, abs(row.change))}")


# ------------------------------------------------------------------ faults


def _told(heading: str, told: Sequence[Told]) -> Iterator[RenderableType]:
    from rich.text import Text

    if not told:
        return
    yield Text("")
    yield title(heading)
    for one in told:
        kind = "" if one.fault else "  candidate, unproved"
        time = f"  {words.duration(one.a_step_ns)} a step" if one.a_step_ns else ""
        yield indented(Text.assemble((one.cause, "bold"), f"  {one.place}{time}", (kind, "dim")))
        yield indented(Text(one.title), 4)
        if one.code and one.fault:
            yield indented(Text(one.code, "dim"), 4)


# ------------------------------------------------------------------ fusion


def _fusion(compared: Comparison, width: int, verbose: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    if not compared.fusion:
        return
    yield Text("")
    yield _table("What the compiler made", compared.fusion, width, _counted)
    for one in compared.operators:
        yield indented(_moved(one))
        if one.code:
            yield indented(Text(one.code, "dim"), 4)
    shown = compared.graphs if verbose else compared.graphs[:GRAPHS_SHOWN]
    for pair in shown:
        yield from map(indented, _graph(pair, width - 2, verbose))
    hidden = len(compared.graphs) - len(shown)
    if hidden:
        yield indented(Text(f"and {words.count(hidden, 'graph')} more that differ (-v shows them)", "dim"))
    if compared.same_graphs:
        alike = "is" if compared.same_graphs == 1 else "are"
        yield indented(Text(f"{words.count(compared.same_graphs, 'graph')} {alike} alike", "dim"))


def _counted(name: str, value: int) -> str:
    return words.size_of(value) if name.startswith("bytes") else f"{value:,}"


def _moved(one: Moved) -> Text:
    from rich.text import Text

    where = f" at {one.place}" if one.place else ""
    calls = f"{words.count(one.calls, 'call')} to it in the graphs, {words.size_of(one.nbytes)} through memory"
    if one.stopped:
        return Text.assemble((f"{one.operator} is not fused in B", "bold"), f"{where}: {calls}")
    return Text.assemble((f"{one.operator} is called apart in A only", "bold"), f"{where}: {calls}")


def _graph(pair: OfGraph, width: int, verbose: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    graph = pair.either
    what = f"{graph.function or 'a graph'}, {graph.kind}" + (f" ({os.path.basename(graph.file)})" if graph.file else "")
    if pair.a is None or pair.b is None:
        only = "B" if pair.a is None else "A"
        yield Text(f"{what}: in {only} only, {_sizes(graph)}")
        return
    yield Text(f"{what}: {_changes(pair.a, pair.b)}")
    for sign, kernels in (("-", pair.kernels_gone), ("+", pair.kernels_new)):
        for name, count in kernels if verbose else kernels[:KERNELS_SHOWN]:
            times = f" ({words.count(count, 'call')})" if count > 1 else ""
            room = 10_000 if verbose else width - len(times) - 4
            yield Text(f"  {sign} {cut(name or 'a kernel', room)}{times}", "dim")


def _sizes(graph: Graph) -> str:
    return f"{words.count(graph.kernels, 'kernel')}, {words.size_of(graph.moved)} moved"


def _changes(a: Graph, b: Graph) -> str:
    """Return the numbers of both graphs, those that differ with an arrow."""
    pairs = (
        ("kernels", f"{a.kernels}", f"{b.kernels}"),
        ("operations before fusion", f"{a.nodes}", f"{b.nodes}"),
        ("moved", words.size_of(a.moved), words.size_of(b.moved)),
    )
    return ", ".join(f"{one} {name}" if one == other else f"{one} -> {other} {name}" for name, one, other in pairs)


# ------------------------------------------------------------------ what else differs


def _differing(compared: Comparison) -> Iterator[RenderableType]:
    from rich.text import Text

    if not compared.differing:
        return
    yield Text("")
    yield title("What else differs")
    for name, one, other in compared.differing:
        yield indented(Text.assemble((f"{name}: ", "dim"), f"{one or '(not set)'} -> {other or '(not set)'}"))
