"""Two runs side by side: what differs, and nothing of which is proved, since they ran one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unstall.model.fusion import Graph
from unstall.model.report import StepTimes

COMPARE_FORMAT = "unstall-compare/1"


@dataclass(frozen=True, slots=True)
class Entry:
    """Time under one name: of the mean steady step, or of the whole run where it is outside the steps."""

    name: str
    ns: int


@dataclass(frozen=True, slots=True)
class Told:
    """A fault or a candidate that a report names.

    Attributes:
        place: ``FILE:LINE``, or what else is to blame; code: the line's text, which stays where its number does not.
        a_step_ns: time a step; None for a candidate.
        fault: False for a candidate.
    """

    cause: str
    title: str
    place: str
    code: str
    a_step_ns: int | None
    fault: bool = True


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared of one run.

    Attributes:
        name: the path that the user gave.
        step_ns: None where no steady step was seen; entries: of the step, ``forward · compute``; outside: of the run.
        told: faults, then candidates. graphs: None where they are not told: of a trace, by an older version.
        facts: of the machine, the environment and the versions.
        others_busy: what else the machine did, in words; starved: share of the step without a free core.
    """

    name: str
    command: tuple[str, ...]
    steady_steps: int
    ranks: int
    step_ns: StepTimes | None
    entries: tuple[Entry, ...]
    outside: tuple[Entry, ...]
    told: tuple[Told, ...]
    graphs: tuple[Graph, ...] | None
    facts: Mapping[str, object]
    others_busy: str = ""
    starved: float = 0.0

    @property
    def free_ns(self) -> int:
        """Mean steady step without the time in which no core was free, ns."""
        return round(sum(entry.ns for entry in self.entries) * (1 - self.starved))


@dataclass(frozen=True, slots=True)
class Row:
    """One number of both runs; None where one has none of it."""

    name: str
    a: int | None
    b: int | None

    @property
    def change(self) -> int:
        """Of *b* over *a*; what one has none of counts as 0."""
        return (self.b or 0) - (self.a or 0)


@dataclass(frozen=True, slots=True)
class OfGraph:
    """The manifests of what was compiled in both runs, or in one of them.

    Attributes:
        kernels_gone, kernels_new: what is fused in kernels of the one and not of the other, with how many calls fewer or more.
    """

    a: Graph | None
    b: Graph | None
    kernels_gone: tuple[tuple[str, int], ...] = ()
    kernels_new: tuple[tuple[str, int], ...] = ()

    @property
    def either(self) -> Graph:
        graph = self.b or self.a
        assert graph is not None
        return graph


@dataclass(frozen=True, slots=True)
class Moved:
    """An operator that one run fuses, or does not have, and the other leaves to other code.

    Attributes:
        stopped: True where it is the second run that calls it apart.
        calls, nbytes: in all graphs of that run; place, code: the user's line that calls it, "" where not known.
    """

    operator: str
    stopped: bool
    calls: int
    nbytes: int
    place: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two runs.

    Attributes:
        ratio: the median step of *b* over that of *a*; None where one has none. free_ratio: the same of the mean steps
            without the time in which no core was free; None where cores were free in both.
        apart: whether the ranges of the steps (p10 to p90) of the two do not meet.
        rows: entries of the step that changed; outside: entries outside the steps that changed.
        appeared, gone: faults and candidates of *b* that *a* has not, and the other way round.
        fusion: totals over all graphs, whether they changed or not; empty where neither compiled. graphs: those that differ.
        same_graphs: how many do not.
        operators: that stopped or began to be fused.
        differing: settings, versions and facts of the machine that differ: name, of *a*, of *b*.
        notes: what keeps the two from being comparable, a sentence each.
    """

    a: Side
    b: Side
    ratio: float | None
    free_ratio: float | None
    apart: bool
    rows: tuple[Row, ...]
    outside: tuple[Row, ...]
    appeared: tuple[Told, ...]
    gone: tuple[Told, ...]
    fusion: tuple[Row, ...] = ()
    graphs: tuple[OfGraph, ...] = ()
    same_graphs: int = 0
    operators: tuple[Moved, ...] = ()
    differing: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()
