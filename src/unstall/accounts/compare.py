"""What differs between two runs. The arithmetic is plain subtraction: two runs that were not made in turns prove nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from unstall.model.compared import Comparison, Entry, Moved, OfGraph, Row, Side, Told
from unstall.model.fusion import Apart, Graph

LEAST_OF_STEP = 0.02  # of the longer step, that an entry differs by; below, it is noise
LEAST_OUTSIDE_NS, LEAST_OF_OUTSIDE = 1_000_000_000, 0.2  # an entry outside the steps, and of the larger of the two
STARVED = 0.05  # of the step without a free core, from which on its length says more of the machine than of the run
# facts that say of what was run, not how it went
OF_INTEREST = ("torch", "python", "machine.cpu", "machine.cores", "machine.usable_cores", "machine.gpus", "machine.gpu")


def compare(a: Side, b: Side) -> Comparison:
    """Return what differs between *a* and *b*, which came later or is meant to be judged."""
    ratio, apart = _ratio(a, b)
    longest_ns = max((side.step_ns.median for side in (a, b) if side.step_ns), default=0)
    told = a.graphs is not None and b.graphs is not None
    of_a, of_b = ((a.graphs or (), b.graphs or ())) if told else ((), ())
    graphs = _graphs(of_a, of_b)
    appeared, gone = _findings(a.told, b.told)
    return Comparison(
        a, b, ratio, _free_ratio(a, b), apart,
        _rows(a.entries, b.entries, lambda row: abs(row.change) >= LEAST_OF_STEP * longest_ns > 0),
        _rows(a.outside, b.outside, _outside_changed), appeared, gone, tuple(_totals(of_a, of_b)),
        tuple(graph for graph in graphs if _differs(graph)), sum(not _differs(graph) for graph in graphs),
        tuple(_operators(of_a, of_b)), tuple(_differing(a, b)), tuple(_notes(a, b)),
    )  # fmt: skip


def _ratio(a: Side, b: Side) -> tuple[float | None, bool]:
    if a.step_ns is None or b.step_ns is None or not a.step_ns.median:
        return None, False
    apart = a.step_ns.p90 < b.step_ns.p10 or b.step_ns.p90 < a.step_ns.p10
    return b.step_ns.median / a.step_ns.median, apart


def _free_ratio(a: Side, b: Side) -> float | None:
    return b.free_ns / a.free_ns if max(a.starved, b.starved) >= STARVED and a.free_ns and b.free_ns else None


# ------------------------------------------------------------------ time


def _rows(a: Iterable[Entry], b: Iterable[Entry], changed: Callable[[Row], bool]) -> tuple[Row, ...]:
    """Return the entries that changed, the one that changed most first."""
    of_a, of_b = {one.name: one.ns for one in a}, {one.name: one.ns for one in b}
    rows = [Row(name, of_a.get(name), of_b.get(name)) for name in dict.fromkeys([*of_a, *of_b])]
    return tuple(sorted(filter(changed, rows), key=lambda row: -abs(row.change)))


def _outside_changed(row: Row) -> bool:
    return abs(row.change) >= max(LEAST_OUTSIDE_NS, LEAST_OF_OUTSIDE * max(row.a or 0, row.b or 0))


# ------------------------------------------------------------------ faults


def _findings(a: Sequence[Told], b: Sequence[Told]) -> tuple[tuple[Told, ...], tuple[Told, ...]]:
    """Return what *b* names and *a* does not, and the other way round.

    The same fault is one of the same cause on the same text; where its text was edited, the one that is left of its cause.
    A candidate that has become a fault has appeared.
    """
    keys: tuple[Callable[[Told], object], ...] = (
        lambda one: (one.fault, one.cause, one.code, one.place),
        lambda one: (one.fault, one.cause, one.code),
        lambda one: (one.fault, one.cause),
    )
    left_a, left_b = list(a), list(b)
    for key in keys:
        _strike_out(left_a, left_b, key)
    return tuple(left_b), tuple(left_a)


def _strike_out(a: list[Told], b: list[Told], key: Callable[[Told], object]) -> None:
    """Take out of both lists, pair by pair, what is alike by *key*."""
    waiting: dict[object, list[Told]] = defaultdict(list)
    for one in a:
        waiting[key(one)].append(one)
    for one in list(b):
        if waiting[key(one)]:
            a.remove(waiting[key(one)].pop(0))
            b.remove(one)


# ------------------------------------------------------------------ fusion


def _graphs(a: Sequence[Graph], b: Sequence[Graph]) -> list[OfGraph]:
    """Return the graphs joined: by file, function, pass and their order; then, as a file may be renamed, without it."""
    left_a, left_b, pairs = list(a), list(b), []
    for key in (lambda g: (g.file, g.function, g.kind), lambda g: (g.function, g.kind)):
        waiting: dict[object, list[Graph]] = defaultdict(list)
        for graph in left_a:
            waiting[key(graph)].append(graph)
        unmet = []
        for graph in left_b:
            if waiting[key(graph)]:
                pairs.append(_joined(waiting[key(graph)].pop(0), graph))
            else:
                unmet.append(graph)
        left_a, left_b = [graph for group in waiting.values() for graph in group], unmet
    return [*pairs, *(OfGraph(one, None) for one in left_a), *(OfGraph(None, one) for one in left_b)]


def _joined(a: Graph, b: Graph) -> OfGraph:
    of_a, of_b = Counter(dict(a.patterns)), Counter(dict(b.patterns))
    return OfGraph(a, b, tuple((of_a - of_b).most_common()), tuple((of_b - of_a).most_common()))


def _differs(pair: OfGraph) -> bool:
    if pair.a is None or pair.b is None:
        return True
    return any(
        getattr(pair.a, name) != getattr(pair.b, name) for name in ("kernels", "externs", "moved", "nodes")
    ) or bool(pair.kernels_gone or pair.kernels_new or _names(pair.a) != _names(pair.b))


def _names(graph: Graph) -> Counter[str]:
    return Counter({one.operator: one.calls for one in graph.apart})


def _totals(a: Sequence[Graph], b: Sequence[Graph]) -> Iterable[Row]:
    if not a and not b:
        return
    sums: tuple[tuple[str, Callable[[Graph], int]], ...] = (
        ("graphs", lambda graph: 1),
        ("kernels", lambda graph: graph.kernels),
        ("matrix products", lambda graph: graph.externs),
        ("calls left to other code", lambda graph: sum(one.calls for one in graph.apart)),
        ("bytes of these", lambda graph: sum(one.nbytes for one in graph.apart)),
        ("bytes that kernels move", lambda graph: graph.moved),
        ("bytes, were each graph one kernel", lambda graph: graph.least),
    )
    for name, of in sums:
        yield Row(name, sum(map(of, a)), sum(map(of, b)))


def _operators(a: Sequence[Graph], b: Sequence[Graph]) -> Iterable[Moved]:
    """Yield the operators that one run leaves to other code more often than the other, those of *b* first."""
    of_a, of_b = _apart(a), _apart(b)
    for here, there, stopped in ((of_b, of_a, True), (of_a, of_b, False)):
        for name, calls in sorted(here.items(), key=lambda pair: -sum(one.nbytes for one in pair[1])):
            more = sum(one.calls for one in calls) - sum(one.calls for one in there.get(name, ()))
            if more > 0:
                line = next((one.line for one in calls if one.line is not None), None)
                yield Moved(
                    name.removesuffix(".default"), stopped, more, sum(one.nbytes for one in calls),
                    f"{line.file}:{line.line}" if line is not None else "", line.code if line is not None else "",
                )  # fmt: skip


def _apart(graphs: Iterable[Graph]) -> dict[str, list[Apart]]:
    found: dict[str, list[Apart]] = defaultdict(list)
    for graph in graphs:
        for one in graph.apart:
            found[one.operator].append(one)
    return found


# ------------------------------------------------------------------ what else differs


def _differing(a: Side, b: Side) -> Iterable[tuple[str, str, str]]:
    if a.command != b.command:
        yield "command", " ".join(a.command), " ".join(b.command)
    if a.ranks != b.ranks:
        yield "ranks", str(a.ranks), str(b.ranks)
    for name in sorted({*a.facts, *b.facts}):
        if name in OF_INTEREST or name.startswith("env."):
            one, other = (_text(side.facts.get(name)) for side in (a, b))
            if one != other and (name.startswith("env.") or (one and other)):  # an older report may not tell the rest
                yield name.removeprefix("env."), one, other


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _notes(a: Side, b: Side) -> Iterable[str]:
    for side in (a, b):
        if side.step_ns is None:
            yield f"{side.name}: no steady step was seen, so there is no step time to compare"
        if side.starved >= STARVED:
            busy = f": {side.others_busy}" if side.others_busy else ""
            yield f"{side.name}: for {side.starved:.0%} of the step no core was free{busy}"
    told = [side for side in (a, b) if side.graphs is not None]
    if len(told) == 1:
        missing = b if told[0] is a else a
        yield f"{missing.name}: a trace, or a report of an older version, which tells no graphs: fusion is not compared"
