"""The compiled regions of a training: what each holds, how often a step enters it, and what entering takes."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.model.finding import Line
from unstall.model.ledger import Phase


@dataclass(frozen=True, slots=True)
class Region:
    """A function that was compiled, all its variants together.

    Attributes:
        frame: its first line; site: the user's line that asked for its compilation, None where that was not found.
        operators: calls of torch in its graph, mean over the variants; guards: of all variants, None where not counted.
        entries: a step, in the one step that was counted.
    """

    frame: Line
    site: Line | None
    operators: float
    guards: int | None
    entries: float


@dataclass(frozen=True, slots=True)
class Entering:
    """What the steady steps spend around compiled code: guards, and the runtime's wrappers in both passes.

    Attributes:
        graphs: entered a step, of both passes.
        spent: ns by phase, from stack samples, all ranks; samples: how many.
    """

    regions: tuple[Region, ...]
    graphs: float
    spent: tuple[tuple[Phase, int], ...]
    samples: int

    @property
    def ns(self) -> int:
        return sum(ns for _, ns in self.spent)
