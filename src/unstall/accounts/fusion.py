"""The fusion manifest joined to the clock: stack samples lie on the lines of the code that Inductor wrote."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.code import code_of, innermost_users, line_at, shown
from unstall.accounts.label import Labelled, Stack
from unstall.model.finding import Line
from unstall.model.fusion import Apart, Fusion, Graph, Setting, Unfused
from unstall.model.ledger import Activity, Ledger, Phase
from unstall.model.run import Fact, Facts, Place

KERNEL = ""  # stands for all generated kernels, where operators stand by their name
MOST_CODES = 5
Calls = dict[tuple[str, int], str]  # (file, line) of a call in generated code -> operator, or KERNEL


@dataclass
class _Seen:
    """Samples within one operator, or within generated kernels."""

    weight: Counter[int] = field(default_factory=Counter)  # by phase
    samples: int = 0
    codes: Counter[str] = field(default_factory=Counter)


def fusion(
    facts: Facts,
    labelled: Sequence[Labelled | None],
    inside: Sequence[NDArray[np.bool_]],
    ledger: Ledger,
    rows: NDArray[np.bool_],
    project: str,
) -> Fusion | None:
    """Return what was fused and what was not; None where nothing was compiled by Inductor.

    Args:
        inside: per rank bool (K,): the samples to count.
        rows: bool (E,): the ledger entries that those samples stand for.
    """
    graphs = _told(facts)
    if not graphs:
        return None
    seen, total = _gather(_calls(graphs), labelled, inside)
    there = {phase: _running_ns(ledger, rows, phase) for phase in total}

    def spent(of: _Seen) -> tuple[tuple[Phase, int], ...]:
        return tuple((Phase(p), int(there[p] * weight / total[p])) for p, weight in sorted(of.weight.items()))

    kernels = seen[KERNEL]
    return Fusion(
        len(graphs), sum(len(_numbers(told, "kernels")) for told in graphs),
        sum(len(_numbers(told, "externs")) for told in graphs), _sum(graphs, "moved"), _sum(graphs, "least"),
        _sum(graphs, "nodes") or None, spent(kernels), kernels.samples,
        tuple(
            _unfused(name, parts, spent(seen[name]), seen[name], _line_of(name, graphs, project))
            for name, parts in _left(graphs).items()
        ),
        _settings(graphs, facts, project),
    )  # fmt: skip


def _told(facts: Facts) -> list[Facts]:
    """Return what is told of each graph, once for each code that was written."""
    return list({told.text("file"): told for told in facts.family("fusion").values()}.values())


def graphs(facts: Facts, project: str) -> tuple[Graph, ...]:
    """Return the manifest of each graph that Inductor compiled or found in a cache, in order."""
    told = _told(facts)
    lines = {name: _line_of(name, told, project) for name in _left(told)}
    return tuple(_graph(one, lines, project) for one in told)


def _graph(told: Facts, lines: dict[str, Line | None], project: str) -> Graph:
    frame = Place.parse(told.text("frame") or "")
    nodes = told.number("nodes")
    return Graph(
        shown(frame.file, project) if frame is not None else "", frame.function if frame is not None else "",
        (told.text("graph") or "").partition("_")[2], len(_numbers(told, "kernels")), len(_numbers(told, "externs")),
        None if nodes is None else int(nodes), _sum([told], "moved"), _sum([told], "least"),
        _counted(told, "patterns"), _counted(told, "libraries"),
        tuple(
            Apart(name, lines[name], *(_sum(parts, what) for what in ("calls", "taken", "given")))
            for name, parts in _left([told]).items()
        ),
    )  # fmt: skip


def _counted(told: Facts, name: str) -> tuple[tuple[str, int], ...]:
    value = told.known.get(name)
    counts = value.items() if isinstance(value, dict) else ()
    return tuple((str(what), count) for what, count in counts if isinstance(count, int))


def _running_ns(ledger: Ledger, rows: NDArray[np.bool_], phase: int) -> int:
    return int(ledger.ns[rows & (ledger.phase == phase) & (ledger.activity != Activity.STARVED)].sum())


def _numbers(told: Facts, name: str) -> list[int]:
    value = told.known.get(name)
    return [n for n in value if isinstance(n, int)] if isinstance(value, list) else []


def _sum(graphs: Iterable[Facts], name: str) -> int:
    return int(sum(told.number(name) or 0 for told in graphs))


def _left(graphs: Iterable[Facts]) -> dict[str, list[Facts]]:
    """Return what is told of each operator that was left out, by its name."""
    left: dict[str, list[Facts]] = defaultdict(list)
    for told in graphs:
        operators = told.known.get("left")
        for name, about in operators.items() if isinstance(operators, dict) else ():
            if isinstance(about, dict):
                left[name].append(Facts(about))
    return left


def _calls(graphs: Iterable[Facts]) -> Calls:
    calls: Calls = {}
    for told in graphs:
        file = told.text("file") or ""
        calls |= {(file, line): KERNEL for line in _numbers(told, "kernels")}
        for name, parts in _left([told]).items():
            calls |= {(file, line): name for about in parts for line in _numbers(about, "lines")}
    return calls


def _gather(
    calls: Calls, labelled: Sequence[Labelled | None], inside: Sequence[NDArray[np.bool_]]
) -> tuple[dict[str, _Seen], Counter[int]]:
    """Return the samples by what they lie in, and the weight of all samples by phase."""
    seen: dict[str, _Seen] = defaultdict(_Seen)
    total: Counter[int] = Counter()
    for samples, chosen in zip(labelled, inside, strict=True):
        if samples is None:
            continue
        within = [_within(stack, calls) for stack in samples.stacks]
        for k in np.flatnonzero(chosen):
            number, phase, weight = int(samples.stack[k]), int(samples.phase[k]), int(samples.weight_ns[k])
            total[phase] += weight
            name, code = within[number]
            if name is not None:
                here = seen[name]
                here.weight[phase] += weight
                here.samples += 1
                here.codes[code] += weight
    return seen, total


def _within(stack: Stack, calls: Calls) -> tuple[str | None, str]:
    """Return what the innermost frame of generated code calls, and the user's line of code below it."""
    for n in range(len(stack) - 1, -1, -1):
        name = calls.get((stack[n].file, stack[n].line))
        if name is not None:
            below = stack[n + 1 :]
            users = innermost_users(below)
            return name, code_of(below[users].file, below[users].line) if users is not None else ""
    return None, ""


def _unfused(
    name: str, parts: Sequence[Facts], spent: tuple[tuple[Phase, int], ...], seen: _Seen, line: Line | None
) -> Unfused:
    said = [about.flag("pointwise") for about in parts]
    return Unfused(
        name, line, _sum(parts, "calls"), _sum(parts, "before"), _sum(parts, "after"), _sum(parts, "taken"),
        _sum(parts, "given"), all(about.flag("alike") for about in parts), said[0], spent, seen.samples,
        tuple(code for code, _ in seen.codes.most_common(MOST_CODES) if code),
    )  # fmt: skip


def _line_of(name: str, graphs: Sequence[Facts], project: str) -> Line | None:
    """Return the user's line that calls the operator; for one of the backward pass, that of the operator it belongs to."""
    space, _, own = name.partition(".")
    named: dict[str, str] = {}
    for other, parts in _left(graphs).items():
        at = next((at for about in parts if (at := about.text("at"))), "")
        if at and other.partition(".")[0] == space:
            named[other] = at
    if name not in named and space == "aten":
        return None
    alike = max(named, key=lambda other: (other == name, _alike(own, other.partition(".")[2])), default="")
    place = Place.parse(named.get(alike, ""))
    return line_at(place, project) if place is not None else None


def _alike(name: str, other: str) -> int:
    """Return how many letters both begin with: ``leaky_backward`` belongs to ``leaky``."""
    return next((n for n, (a, b) in enumerate(zip(name, other)) if a != b), min(len(name), len(other)))


def _settings(graphs: Iterable[Facts], facts: Facts, project: str) -> tuple[Setting, ...]:
    found: dict[str, Fact] = {}
    for told in graphs:
        changed = told.known.get("settings")
        found |= changed if isinstance(changed, dict) else {}
    return tuple(Setting(name, str(value), set_at(name, facts, project)) for name, value in sorted(found.items()))


def set_at(name: str, facts: Facts, project: str) -> Line | None:
    """Return the line that sets *name* (a configuration's, or a variable's) in a file that asks for compilation, or None.

    A build of an extension in C++ is one too.
    """
    asked = [*facts.family("compile").values(), *facts.family("extension").values()]
    sites = [told.text("site") or "" for told in asked]
    sign = re.compile(rf"(\.|[\"']|\b){re.escape(name)}[\"']?\]?\s*(=(?!=)|:|,|\()")
    for file in dict.fromkeys(place.file for site in sites if (place := Place.parse(site)) is not None):
        try:
            with open(file, encoding="utf-8", errors="replace") as opened:
                lines = opened.read(1_000_000).splitlines()
        except OSError:
            continue
        for number, text in enumerate(lines, 1):
            if sign.search(text.partition("#")[0]):
                return line_at(Place(file, number), project)
    return None
