"""A number of a graph that differs from start to start: what the recorder found of earlier starts in the cache's folder."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.causes._configured import is_library
from unstall.model.finding import Line
from unstall.model.run import Run
from unstall.model.tables import Tables


@dataclass(frozen=True, slots=True)
class Drifting:
    """A number that made the key of compiled code another one.

    Attributes:
        line: at which the graph has it, else the function that was compiled.
        starts: earlier ones whose code differs from this one's in its fractions alone.
        said: the number now and before, in words.
    """

    line: Line
    starts: int
    said: str


def drifting(run: Run, tables: Tables) -> Drifting | None:
    """Return the number that differs from most earlier starts; None where the recorder found none, or no line of the user's."""
    graphs = [graph for graph in run.ranks[0].facts.family("fusion").values() if graph.number("earlier")]
    places = (tables.place(graph.text(name) or "") for name in ("at", "frame") for graph in graphs)
    line = next((line for line in places if line is not None and not is_library(line.file)), None)
    if line is None:
        return None
    said = f"{(graphs[0].text('now') or '')[:8]} now, {(graphs[0].text('then') or '')[:8]} before"
    return Drifting(line, max(int(graph.number("earlier") or 0) for graph in graphs), said)
