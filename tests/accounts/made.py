"""Rows, samples and gauges made by hand, for tests of the accounting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from unstall.model.events import Events
from unstall.model.run import Coverage, Facts, Gauges, Place, Rank, Rows, Run, Samples, Sensor
from unstall.model.wire import ACTIVITIES, ENDS_OUTSIDE, PHASES, Activity, Phase

MS = 1_000_000
Cells = Mapping[tuple[Phase, Activity], int]
F, B, OPT, N, D, E, C, U = (
    (phase, Activity.UNKNOWN)
    for phase in (
        Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.BETWEEN, Phase.FETCH, Phase.EVALUATE, Phase.CHECKPOINT, Phase.STARTUP,
    )
)  # fmt: skip
LOADING, WAITING = (Phase.FETCH, Activity.LOAD), (Phase.FETCH, Activity.WAIT_DATA)


def row(cells: Cells, closer: int = 0, steps: int = 1, cpu_ns: int = 0, flags: int = 0) -> dict[str, object]:
    """Return a row whose phases follow one another as *cells* (ns) lists them."""
    return {"cells": dict(cells), "closer": closer, "steps": steps, "cpu_ns": cpu_ns, "flags": flags}


def outside(cells: Cells) -> dict[str, object]:
    """Return a row of no step: before the first or after the last."""
    return row(cells, ENDS_OUTSIDE, 0)


def rows(given: Sequence[dict[str, object]], start_ns: int = 0) -> Rows:
    """Return *given* one after the other from *start_ns* on; rolled-up rows have no marks."""
    spent = np.zeros((len(given), PHASES, ACTIVITIES), np.int64)
    marks: list[tuple[int, int, int, int]] = []
    at, starts, ends, first = start_ns, [], [], 0
    firsts = []
    for n, one in enumerate(given):
        starts.append(at)
        firsts.append(first)
        first += int(str(one["steps"]))
        cells = one["cells"]
        assert isinstance(cells, dict)
        for (phase, activity), ns in cells.items():
            spent[n, phase, activity] += ns
            if int(str(one["steps"])) <= 1:
                marks.append((n, phase, at, at + ns))
            at += ns
        ends.append(at)

    def column(name: str, dtype: type) -> np.ndarray:
        return np.array([one[name] for one in given], dtype)

    mark = np.array(marks, np.int64).reshape(-1, 4).T
    return Rows(
        np.array(firsts, np.int64), column("steps", np.int32), column("closer", np.uint16), column("flags", np.uint16),
        np.array(starts, np.int64), np.array(ends, np.int64), column("cpu_ns", np.int64), spent,
        mark[0].astype(np.int32), mark[1].astype(np.uint8), mark[2], mark[3],
    )  # fmt: skip


def rank(
    table: Rows,
    number: int = 0,
    before_ns: int = 0,
    after_ns: int = 0,
    samples: Samples | None = None,
    gauges: Gauges | None = None,
    events: Events | None = None,
    facts: Mapping[str, object] | None = None,
) -> Rank:
    """Return a rank seen from its first row to its last; *before_ns* and *after_ns* are the edges that no one saw."""
    begin, end = int(table.start_ns[0]), int(table.end_ns[-1])
    return Rank(
        number, 100 + number, begin - before_ns, end + after_ns, begin, end, events or Events.empty(), table, samples,
        gauges=gauges, facts=Facts(facts or {}),  # type: ignore[arg-type]
    )  # fmt: skip


def run(*ranks: Rank) -> Run:
    return Run(ranks, Facts(), Coverage(frozenset(Sensor)))


Stack = tuple[Place, ...]


def sampled(
    seen: Sequence[tuple[int, Stack]],
    held: Mapping[Stack, int] | None = None,
    active: Mapping[Stack, int] | None = None,
    hz: float = 25.0,
) -> Samples:
    """Return samples at (ns, stack), each weighing one period; *held* and *active* count at the same rate."""
    stacks = tuple(dict.fromkeys(stack for _, stack in seen))
    at = np.array([ns for ns, _ in seen], np.int64)
    number = np.array([stacks.index(stack) for _, stack in seen], np.int32)
    weight = np.full(at.size, int(1e9 / hz), np.int64)
    return Samples(at, weight, number, stacks, hz, held, hz, active, hz)


def gauges(
    at_ns: Sequence[int], cpu_ns: Sequence[int], queued_ns: Sequence[int], team_queued_ns: Sequence[int] = ()
) -> Gauges:
    """Return readings of a process that has one thread of note."""
    at, cpu, queued = (np.array(column, np.int64) for column in (at_ns, cpu_ns, queued_ns))
    team = np.array(team_queued_ns, np.int64) if len(team_queued_ns) else np.zeros_like(at)
    none = np.zeros_like(at)
    return Gauges(at, none, cpu, cpu, queued, team, none, np.zeros(at.size), none)
