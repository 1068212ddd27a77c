"""What the interpreter runs though compilation was asked for: how long, and what of it is taken for lost.

How much faster a program is when compiled shows only in a trial. Taken for lost is a low part, and it is said so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from unstall.model.finding import Stake
from unstall.model.ledger import Activity, Phase
from unstall.model.tables import Tables

LEFT_LOST = 0.1  # of what runs uncompiled
MOST_OF_PASS = 0.5  # of a pass, at most; the bound of what fusion saves (45 ms fused, 89 ms where fusion was lost)
PASSES = (Phase.FORWARD, Phase.BACKWARD)
COMPILED = ("torch._dynamo.", "torch._functorch.", "torch._inductor.")
_RUNNING = (Activity.COMPUTE, Activity.PYTHON, Activity.UNKNOWN)


def uncompiled_ns(frames: Sequence[str], tables: Tables) -> dict[Phase, int]:
    """Return the steady time, by pass, in which the functions at *frames* (FILE:LINE:FUNCTION) run uncompiled.

    Samples of the forward pass tell which part of it; of the backward pass it is taken to be the same part.
    """
    places = [tables.place(frame) for frame in frames]
    functions = {(place.file, place.function) for place in places if place is not None}
    forward = [hot for hot in tables.lines if hot.phase is Phase.FORWARD]
    eager_ns = 0
    for hot in forward:
        if any((caller.file, caller.function.rpartition(".")[2]) in functions for caller in hot.chain):
            plain = sum(share for names, share in hot.paths if not any(name.startswith(COMPILED) for name in names))
            eager_ns += int(hot.spent_ns * plain)
    share = eager_ns / max(1, sum(hot.spent_ns for hot in forward))
    return {phase: int(share * held_ns(phase, tables.steady_parts)) for phase in PASSES}


def held_ns(phase: Phase, parts: Mapping[tuple[Phase, Activity], int]) -> int:
    """Return the time in which *phase* ran on a CPU."""
    return sum(parts.get((phase, activity), 0) for activity in _RUNNING)


def stakes_in(phase: Phase, ns: int, parts: Mapping[tuple[Phase, Activity], int]) -> Iterator[Stake]:
    """Yield *ns*, but no more than half of what the pass ran, over its entries in proportion."""
    held = held_ns(phase, parts)
    ns = min(ns, int(MOST_OF_PASS * held))
    for activity in _RUNNING:
        here = parts.get((phase, activity), 0)
        if here and ns:
            part = ns * here // held
            ns, held = ns - part, held - here
            yield Stake(phase, activity, part)
