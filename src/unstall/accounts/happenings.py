"""Compile windows, garbage collections and checkpoints, each with the line that caused it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import numpy as np

from unstall.accounts.code import code_of, line_at
from unstall.accounts.segment import Segments
from unstall.model.events import Events
from unstall.model.finding import Line
from unstall.model.run import Facts, Place, Rank
from unstall.model.steps import Steps
from unstall.model.tables import Collections, Compile, Saves
from unstall.model.wire import Kind, Phase

_COLLECTS = re.compile(r"\bcollect\(")
_FILE_LINE = re.compile(r"([\w./\\-]+\.py):(\d+)")


def _users_line(name: str, project: str) -> Line | None:
    """Return the line of a name ``FILE:LINE:FUNCTION|LIBRARY FRAME``."""
    user, _, library = name.partition("|")
    place = Place.parse(user)
    return line_at(place, project, library or None) if place is not None else None


def compiles(rank: Rank, steps: Steps, project: str) -> tuple[Compile, ...]:
    """Return the compile windows of *rank* in time order."""
    events = rank.events
    reasons = {facts.text("id"): facts for facts in rank.facts.family("recompile").values()}
    sites = rank.facts.family("compile")
    found = []
    for n in events.of(Kind.COMPILE):
        identity, _, called_from = events.name_of(n).partition("|")
        told = reasons.get(identity.split("_")[0])
        frame = Place.parse(told.text("frame") or "") if told is not None else None
        caller = _users_line(called_from, project)
        site = _site(frame, sites, project) or caller
        reason = _first_reason(told)
        at, step = int(events.start_ns[n]), _step_at(int(events.start_ns[n]), steps)
        inside = step >= 0 and bool(steps.steady_S[step]) and at < int(steps.end_SR[step, 0])
        found.append(
            Compile(
                at, int(events.end_ns[n] - events.start_ns[n]), int(events.value[n]), identity,
                line_at(frame, project) if frame is not None else None, site, reason, _guard(reason, frame, project),
                step, inside, _phase_at(at, rank),
            )
        )  # fmt: skip
    return tuple(found)


def _first_reason(told: Facts | None) -> str:
    reasons = told.known.get("reasons") if told is not None else None
    if isinstance(reasons, list):
        return str(reasons[0]) if reasons else ""
    return reasons if isinstance(reasons, str) else ""


def _site(frame: Place | None, sites: dict[int, Facts], project: str) -> Line | None:
    """Return the line that asked for *frame*'s compilation; where only one line asks for any, that one."""
    target = f"{frame.file}:{frame.line}" if frame is not None else None
    matching = [facts for facts in sites.values() if target and facts.text("target") == target]
    chosen = matching or (list(sites.values()) if len({facts.text("site") for facts in sites.values()}) == 1 else [])
    place = Place.parse(chosen[0].text("site") or "") if chosen else None
    return line_at(place, project) if place is not None else None


def _guard(reason: str, frame: Place | None, project: str) -> Line | None:
    """Return the line that the failed guard names: the guard cites a file by its base name."""
    for match in _FILE_LINE.finditer(reason):
        if frame is not None and frame.file.endswith(match[1].rsplit("/", 1)[-1]):
            return line_at(Place(frame.file, int(match[2]), frame.function), project)
    return None


def _phase_at(at_ns: int, rank: Rank) -> Phase:
    """Return the phase that the live accounting (or, where there is none, a phase event) has at *at_ns*."""
    rows, events = rank.rows, rank.events
    if rows is not None and rows.mark_start_ns.size:
        return Phase(int(rows.mark_phase[max(0, int(np.searchsorted(rows.mark_start_ns, at_ns, side="right")) - 1)]))
    named = {Kind.BACKWARD: Phase.BACKWARD, Kind.OPTIMIZER: Phase.OPTIMIZER, Kind.EVALUATE: Phase.EVALUATE}
    for kind, phase in named.items():
        within = events.of(kind)
        if ((events.start_ns[within] <= at_ns) & (at_ns < events.end_ns[within])).any():
            return phase
    return Phase.FORWARD


def _step_at(at_ns: int, steps: Steps) -> int:
    if not steps.start_SR.shape[0]:
        return -1
    return int(np.searchsorted(steps.start_SR[:, 0], at_ns, side="right")) - 1


def collections(rank: Rank, segments: Segments, project: str) -> tuple[Collections, ...]:
    """Return the collections of the steady steps by the line that set them off."""
    events, steps = rank.events, segments.steps
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for n in events.of(Kind.GC):
        step = _step_at(int(events.start_ns[n]), steps)
        if step >= 0 and steps.steady_S[step] and events.start_ns[n] < steps.end_SR[step, 0]:
            groups[(events.name_of(n), int(events.value[n]))].append(n)
    found = []
    for (name, generation), rows in groups.items():
        line = _users_line(name, project)
        if line is None:
            continue
        library = Place.parse(name.partition("|")[2])
        asks = [
            code_of(place.file, place.line)
            for place in (library, Place.parse(name.partition("|")[0]))
            if place is not None
        ]
        spent = int((events.end_ns[rows] - events.start_ns[rows]).sum())
        explicit = generation == 2 and any(_COLLECTS.search(code) for code in asks)
        phase = _mostly_in(events, rows, rank)
        found.append(Collections(line, explicit, len(rows), spent, generation, phase, str(library) if library else ""))
    return tuple(sorted(found, key=lambda group: -group.spent_ns))


def _mostly_in(events: Events, rows: list[int], rank: Rank) -> Phase:
    """Return the phase in which the events of *rows* spent most of their time."""
    spent: Counter[Phase] = Counter()
    for n in rows:
        spent[_phase_at(int(events.start_ns[n]), rank)] += int(events.end_ns[n] - events.start_ns[n])
    return spent.most_common(1)[0][0]


def saves(rank: Rank, steps: Steps, project: str) -> tuple[Saves, ...]:
    """Return the checkpoints of *rank* by the line that wrote them."""
    events = rank.events
    groups: dict[str, list[int]] = defaultdict(list)
    for n in events.of(Kind.CHECKPOINT):
        groups[events.name_of(n)].append(n)
    found = []
    for name, rows in groups.items():
        line = _users_line(name, project)
        if line is None:
            continue
        lengths = events.end_ns[rows] - events.start_ns[rows]
        at = np.array([_step_at(int(events.start_ns[n]), steps) for n in rows])
        inside = np.array(
            [s >= 0 and bool(steps.steady_S[s]) and events.start_ns[n] < steps.end_SR[s, 0] for n, s in zip(rows, at)]
        )
        between = float(np.median(np.diff(at))) if at.size > 1 else float(steps.count)
        found.append(
            Saves(
                line,
                len(rows),
                int(lengths.sum()),
                int(inside.sum()),
                int(lengths[inside].sum()),
                int(events.value[rows].sum()),
                between,
            )
        )
    return tuple(sorted(found, key=lambda group: -group.spent_ns))
