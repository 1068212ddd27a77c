"""Hot lines put together to spots: a loop that runs within a step, or a line by itself, and what kind of time it is."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from unstall.model.finding import Stake
from unstall.model.ledger import Activity, Phase
from unstall.model.tables import HotLine, Loop

NAMED = (Activity.PYTHON, Activity.COMPUTE, Activity.IO, Activity.LOAD)  # the rest has causes of its own
OUTSIDE = (Phase.EVALUATE, Phase.CHECKPOINT)
LEAST_PYTHON = (
    0.15  # of a loop's CPU time; tensor operations that are worth a call of their own leave less to the interpreter
)
MOST_MODULES = 0.3  # of a loop's time inside modules; above it the loop is the model's own, as over its layers
LEAST_WAITING = 0.6  # of a line's time off the CPU

_MODULE = re.compile(r"\.(Module\._(wrapped_)?call_impl|OptimizedModule\.__call__|_fn)$")
_COPIES = re.compile(r"\.copy\(|\bdeepcopy\(|\b(np|numpy)\.(concatenate|append|array|copy)\(|\.tolist\(")
_WAITS = re.compile(
    r"\b(sleep|wait|join|get|recv|read|readline|request|urlopen|open|print|flush|execute|query|fetch\w*)\("
)


class Kind(Enum):
    """What the time on a spot is."""

    LOOP = "a loop of the user's own code that the interpreter walks"
    COPIES = "arrays copied on the host"
    WAITS = "off the CPU"
    WORK = "work of the model, or of a library, as it was asked for"


@dataclass(frozen=True, slots=True)
class Spot:
    """Hot lines that belong together.

    Attributes:
        lines: the hottest first; a line may be there once a phase.
        turns: whether it is the loop's own call of backward or the optimizer, whose time the phases tell already.
        loop: the outermost loop within a step that they share, or None; depth: how many loops stand around the hottest.
    """

    lines: tuple[HotLine, ...]
    loop: Loop | None
    depth: int
    kind: Kind
    turns: bool = False

    @property
    def hottest(self) -> HotLine:
        return self.lines[0]

    @property
    def samples(self) -> int:
        return sum(line.samples for line in self.lines)

    @property
    def stakes(self) -> tuple[Stake, ...]:
        return tuple(
            Stake(line.phase, activity, ns, f"{line.line.file}:{line.line.line}")
            for line in self.lines
            for activity, ns in line.parts
            if activity in NAMED and ns
        )

    @property
    def spent_ns(self) -> int:
        return sum(stake.ns for stake in self.stakes)

    def part_ns(self, *activities: Activity) -> int:
        return sum(line.part_ns(*activities) for line in self.lines)


def spots(lines: Sequence[HotLine], steady_ns: int) -> tuple[Spot, ...]:
    """Return the spots that *lines* of the steady steps form, the one with the most time first."""
    engine = _engine(lines, steady_ns)
    groups: dict[tuple[str, int, int], list[HotLine]] = defaultdict(list)
    loops: dict[tuple[str, int, int], Loop] = {}
    for line in lines:
        if line.phase in OUTSIDE:
            continue
        inner = inner_loops(line, engine)
        key = (inner[0].file, inner[0].first, inner[0].last) if inner else (line.line.file, line.line.line, 0)
        groups[key].append(line)
        if inner:
            loops[key] = inner[0]
    found = [_spot(_hottest_first(group), loops.get(key), engine) for key, group in groups.items()]
    return tuple(sorted(found, key=lambda spot: -spot.spent_ns))


def _hottest_first(lines: Iterable[HotLine]) -> tuple[HotLine, ...]:
    """Return the lines by the time that each has in all phases, then by phase."""
    total: dict[int, int] = defaultdict(int)
    lines = tuple(lines)
    for line in lines:
        total[line.line.line] += line.spent_ns
    return tuple(sorted(lines, key=lambda line: (-total[line.line.line], line.line.line, -line.spent_ns)))


def _engine(lines: Sequence[HotLine], steady_ns: int) -> set[tuple[str, int]]:
    """Return (file, line) of what leads to backward and optimizer: a loop around one of them is a loop of steps.

    A sample near the edge of a phase may be entered in the next one, so a line has to spend much of its time there.
    """
    total: dict[tuple[str, int], int] = defaultdict(int)
    turning: dict[tuple[str, int], int] = defaultdict(int)
    chains: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    library: dict[tuple[str, int], bool] = {}
    for line in lines:
        place = (line.line.file, line.line.line)
        total[place] += line.spent_ns
        if line.phase in (Phase.BACKWARD, Phase.OPTIMIZER) and line.callee:
            turning[place] += line.spent_ns
            chains[place] |= {(outer.file, outer.line) for outer in line.chain} | {place}
            library[place] = not line.callee.startswith("torch.")
    engine: set[tuple[str, int]] = set()
    for place, ns in turning.items():
        if 2 * ns >= total[place] or (library[place] and ns >= 0.1 * steady_ns):
            engine |= chains[place]
    return engine


def inner_loops(line: HotLine, engine: set[tuple[str, int]]) -> tuple[Loop, ...]:
    """Return the loops around *line* that run within a step, outermost first.

    What a module calls in its forward is judged by itself: the loop over the layers that led to it is the model's.
    """
    chain = line.chain or (line.line,)
    forwards = [n for n, place in enumerate(chain) if _is_forward(place.function)]
    own = chain[forwards[-1] :] if forwards else chain
    return tuple(
        loop
        for loop in line.loops
        if any(_within(loop, place.file, place.line) for place in own)
        and not loop.turns
        and not any(_within(loop, file, number) for file, number in engine)
    )


def _within(loop: Loop, file: str, line: int) -> bool:
    return loop.file == file and loop.first <= line <= loop.last


def _is_forward(function: str) -> bool:
    return function.rpartition(".")[2] == "forward"


def _spot(lines: tuple[HotLine, ...], loop: Loop | None, engine: set[tuple[str, int]]) -> Spot:
    depth = len(inner_loops(lines[0], engine))
    turns = (lines[0].line.file, lines[0].line.line) in engine
    return Spot(lines, loop, depth, _kind(lines, depth, engine), turns)


def _kind(lines: tuple[HotLine, ...], depth: int, engine: set[tuple[str, int]]) -> Kind:
    hottest = lines[0]
    place = (hottest.line.file, hottest.line.line)
    if place in engine:
        return Kind.WORK
    in_forward = any(_is_forward(outer.function) for outer in hottest.chain or (hottest.line,))
    if depth and _in_modules(lines) <= MOST_MODULES and _is_walked(lines, depth, in_forward):
        return Kind.LOOP
    if in_forward:
        return Kind.WORK
    of_torch = hottest.callee.startswith("torch.")
    if (
        _COPIES.search(hottest.line.code)
        and not of_torch
        and hottest.phase in (Phase.BETWEEN, Phase.FETCH, Phase.FORWARD)
    ):
        return Kind.COPIES
    own = [line for line in lines if line.line == hottest.line]
    waiting = sum(line.part_ns(Activity.IO) for line in own) / max(1, sum(line.spent_ns for line in own))
    if waiting >= LEAST_WAITING and not of_torch and (hottest.callee or _WAITS.search(hottest.line.code)):
        return Kind.WAITS
    return Kind.WORK


def _in_modules(lines: tuple[HotLine, ...]) -> float:
    """Return the share of the lines' time that lies inside calls of modules."""
    inside = sum(line.spent_ns * share for line in lines for name, share in line.callees if _MODULE.search(name))
    return inside / max(1, sum(line.spent_ns for line in lines))


def _is_walked(lines: tuple[HotLine, ...], depth: int, in_forward: bool) -> bool:
    """Return whether the interpreter's part of a loop says that its iterations are too small.

    A single loop in a forward may be the model itself, as over layers or time; in the fetch of a batch, its samples.
    There, and where the loops are nested deeper, only loops within loops are named.
    """
    if lines[0].phase is Phase.FETCH:
        return depth >= 2
    if depth >= 2 and not in_forward:
        return True
    python = sum(line.part_ns(Activity.PYTHON) for line in lines)
    compute = sum(line.part_ns(Activity.COMPUTE) for line in lines)
    walked = python >= LEAST_PYTHON * max(1, python + compute)
    return walked and (depth >= 2 or not in_forward)
