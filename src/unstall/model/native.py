"""Extensions in C++ that a training builds or calls: how they were compiled, and the time in them."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.model.finding import Line
from unstall.model.ledger import Activity, Phase


@dataclass(frozen=True, slots=True)
class Build:
    """One call of ``torch.utils.cpp_extension.load`` or ``load_inline``, over the whole run.

    Attributes:
        line: the user's line that calls it; ns: time in the compiler and linker; phase: in which.
        inline: its source is text in the script; folder: where it is built.
        named: what names that folder: "argument", "variable" (TORCH_EXTENSIONS_DIR), or "" where torch chose it.
        rebuilt: it was compiled, and not only loaded; had: the folder held a library of that name; builds: how often it
            was linked there before.
        rewritten: a source was written by this run; edited: the user's code, a source or torch is newer than that library.
        namesakes: other extensions of that name that this run built in that folder, from other sources.
        loops: a source walks over elements itself; device: it is for a GPU.
    """

    name: str
    line: Line
    ns: int
    phase: Phase
    folder: str
    flags: tuple[str, ...] = ()
    named: str = ""
    inline: bool = False
    rebuilt: bool = True
    had: bool = False
    builds: int = 0
    rewritten: bool = False
    edited: bool = False
    namesakes: int = 0
    loops: bool = True
    device: bool = False


@dataclass(frozen=True, slots=True)
class Native:
    """An extension as the steady steps use it, all ranks.

    Attributes:
        name: of the module; file: of its library, as shown.
        flags: it was compiled by; None where its compiler noted none. build: None where it was built elsewhere.
        calls: the user's lines that call it, the hottest first.
        spent: ns by phase, activity and FILE:LINE on those lines where they call no Python, from stack samples: other
            operations on the line are in it; samples: how many.
    """

    name: str
    file: str
    flags: tuple[str, ...] | None
    build: Build | None = None
    calls: tuple[Line, ...] = ()
    spent: tuple[tuple[Phase, Activity, str, int], ...] = ()
    samples: int = 0

    @property
    def ns(self) -> int:
        return sum(ns for *_, ns in self.spent)
