"""What Inductor fused and what it left out, with the time of each; over the steady steps, all ranks."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.model.finding import Line
from unstall.model.ledger import Phase


@dataclass(frozen=True, slots=True)
class Unfused:
    """An operator that stands in a compiled graph as a call to other code.

    Attributes:
        operator: as ``mine.leaky.default``; line: the user's line that it stands for, None where the graph named none.
        calls: in the code of the graphs; before, after: of these, calls that take what a generated kernel gave, and whose
            result one takes. A call that is both stands in the way of one fused kernel.
        taken, given: bytes of their tensors; 0 where the shapes were not numbers.
        alike: it takes tensors of the shape that it gives, or smaller ones that expand to it.
        pointwise: torch says that it works element by element; None for operators that are not torch's.
        spent: ns by phase, from stack samples; samples: how many.
        codes: the user's lines of Python that it was seen in, the hottest first; none for one that is not Python.
    """

    operator: str
    line: Line | None
    calls: int
    before: int
    after: int
    taken: int
    given: int
    alike: bool
    pointwise: bool | None
    spent: tuple[tuple[Phase, int], ...] = ()
    samples: int = 0
    codes: tuple[str, ...] = ()

    @property
    def ns(self) -> int:
        return sum(ns for _, ns in self.spent)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of Inductor that is not as it comes; line: where it is set, None where that was not found."""

    name: str
    value: str
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class Fusion:
    """The fusion of all compiled graphs.

    Attributes:
        graphs, kernels: how many; nodes: operations before fusion, None where not counted; externs: calls to libraries of
            matrix products.
        moved: bytes that the kernels take and give; least: what they would were they one kernel.
        kernel_spent: ns in generated kernels by phase, from stack samples; samples: how many.
    """

    graphs: int
    kernels: int
    externs: int
    moved: int
    least: int
    nodes: int | None = None
    kernel_spent: tuple[tuple[Phase, int], ...] = ()
    samples: int = 0
    unfused: tuple[Unfused, ...] = ()
    settings: tuple[Setting, ...] = ()

    @property
    def kernel_ns(self) -> int:
        return sum(ns for _, ns in self.kernel_spent)


@dataclass(frozen=True, slots=True)
class Apart:
    """An operator that one graph leaves to other code.

    Attributes:
        line: the user's, None where the graph named none; calls, taken, given: as in `Unfused`.
    """

    operator: str
    line: Line | None
    calls: int
    taken: int
    given: int

    @property
    def nbytes(self) -> int:
        return self.taken + self.given


@dataclass(frozen=True, slots=True)
class Graph:
    """What Inductor made of one graph, the fusion manifest.

    Attributes:
        file, function: of what was compiled, as ``train.py`` and ``Net.forward``; "" where not known.
        kind: "forward", "backward" or "inference".
        kernels, externs, nodes, moved, least: as in `Fusion`.
        patterns: calls of kernels by what is fused in them; libraries: calls of matrix products by name.
    """

    file: str
    function: str
    kind: str
    kernels: int
    externs: int
    nodes: int | None
    moved: int
    least: int
    patterns: tuple[tuple[str, int], ...] = ()
    libraries: tuple[tuple[str, int], ...] = ()
    apart: tuple[Apart, ...] = ()
