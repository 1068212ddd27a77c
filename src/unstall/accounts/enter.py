"""Make the ledger of a recorded run: the live accounting's rows, with samples and counters naming what no probe could.

The rows are exact and stay so: samples only divide a cell that the recorder left UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.label import Labelled
from unstall.accounts.largest_remainder import divide
from unstall.accounts.segment import Segments
from unstall.model.ledger import OUTSIDE, Basis, Ledger
from unstall.model.run import Gauges, Rank, Run
from unstall.model.wire import PHASES, Activity, Phase

WITHIN_TORCH = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.EVALUATE)
NAMED = (Activity.PYTHON, Activity.COMPUTE, Activity.IO, Activity.COLLECTIVE)
RUNNABLE = (Activity.PYTHON, Activity.COMPUTE, Activity.UNKNOWN)  # what a thread without a CPU would have been at
LEAST_STARVED = 0.005  # of steady time; below it run-queue time is the scheduler's ordinary work


def enter(run: Run, segments: Segments, labelled: Sequence[Labelled | None]) -> Ledger:
    """Return the ledger of *run*; *labelled* are the samples of each rank.

    Cost: O(rows + samples).
    """
    entries: list[tuple[int, int, int, int, int, int]] = []
    for r, rank in enumerate(run.ranks):
        entries += _rank_entries(r, rank, segments, labelled[r], len(run.ranks) > 1)
    return Ledger.of(entries, [rank.end_ns - rank.start_ns for rank in run.ranks])


def _rank_entries(
    r: int, rank: Rank, segments: Segments, samples: Labelled | None, several: bool
) -> list[tuple[int, int, int, int, int, int]]:
    rows, of_row, steps = rank.rows, segments.step_of_row[r], segments.steps
    assert rows is not None
    spent = _relabelled(rows.spent_NPA, of_row, segments.teaches[r])
    steady = np.zeros(of_row.size, np.bool_)
    inside = of_row >= 0
    steady[inside] = steps.steady_S[of_row[inside]]
    shares = _shares(rows.start_ns, steady, rank, samples, several)
    starved = _starved(rank.gauges, steps.start_SR[:, r], steps.end_SR[:, r], steps.steady_S)
    found: dict[tuple[int, int, int, int], int] = {}

    def add(step: int, phase: int, activity: int, basis: int, ns: int) -> None:
        key = (step, phase, activity, basis)
        found[key] = found.get(key, 0) + ns

    for n in range(of_row.size):
        step, cells = int(of_row[n]), spent[n]
        for phase, activity in np.argwhere(cells):
            ns = int(cells[phase, activity])
            if activity != Activity.UNKNOWN:
                counted = phase == Phase.STARTUP and activity in (Activity.PYTHON, Activity.IO)
                add(step, phase, activity, Basis.SAMPLED if counted else Basis.MEASURED, ns)
                continue
            for named, part in _divided(
                ns, phase, shares[bool(steady[n])].get(int(phase)), starved if steady[n] else 0.0
            ):
                add(step, phase, named, _basis(named, phase, shares[bool(steady[n])]), part)
    edges = (rank.seen_start_ns - rank.start_ns, rank.end_ns - rank.seen_end_ns)
    for phase, ns in zip((Phase.STARTUP, Phase.SHUTDOWN), edges):
        add(OUTSIDE, phase, Activity.UNKNOWN, Basis.RESIDUAL, ns)
    return [(step, r, phase, activity, basis, ns) for (step, phase, activity, basis), ns in found.items() if ns]


def _relabelled(spent: NDArray[np.int64], of_row: NDArray[np.int32], teaches: bool) -> NDArray[np.int64]:
    """Return the rows with a teacher's forwards counted as FORWARD, and what follows the last step as SHUTDOWN."""
    spent = spent.copy()
    in_steps = of_row >= 0
    if teaches:
        spent[in_steps, Phase.FORWARD] += spent[in_steps, Phase.EVALUATE]
        spent[in_steps, Phase.EVALUATE] = 0
    last = np.flatnonzero(in_steps)
    if last.size:
        after = slice(int(last[-1]) + 1, None)
        spent[after, Phase.SHUTDOWN] += spent[after, Phase.BETWEEN]
        spent[after, Phase.BETWEEN] = 0
    return spent


Shares = dict[int, NDArray[np.float64]]


def _shares(
    row_start: NDArray[np.int64], steady: NDArray[np.bool_], rank: Rank, samples: Labelled | None, several: bool
) -> dict[bool, Shares]:
    """Return by (steady or not, phase) the shares of NAMED activities in time that no probe named."""
    if samples is None or not samples.at_ns.size or not samples.rates.any():
        return {True: {}, False: {}}
    row = np.clip(np.searchsorted(row_start, samples.at_ns, side="right") - 1, 0, row_start.size - 1)
    in_steady = steady[row]
    free = np.array([m is None for m in samples.measured])[samples.stack]
    result: dict[bool, Shares] = {}
    for wanted in (True, False):
        shares: Shares = {}
        for phase in range(PHASES):
            of_phase = (samples.phase == _sampled_as(phase)) & free
            chosen = np.flatnonzero(of_phase & (in_steady == wanted))
            if not chosen.size:
                chosen = np.flatnonzero(of_phase)
            if chosen.size:
                shares[phase] = _named(samples, chosen, phase, several)
        result[wanted] = shares
    return result


def _sampled_as(phase: int) -> int:
    """Return the phase that samples of *phase* carry: the recorder cannot know that a step was the last."""
    return Phase.BETWEEN if phase == Phase.SHUTDOWN else phase


def _named(samples: Labelled, chosen: NDArray[np.intp], phase: int, several: bool) -> NDArray[np.float64]:
    weight = samples.weight_ns[chosen].astype(np.float64)
    stack = samples.stack[chosen]
    python, compute, _ = (weight @ samples.rates[stack]).tolist()
    waits = weight * samples.rates[stack, 2]
    in_torch = samples.in_torch[stack] | (phase == Phase.BACKWARD)
    team, io = float(waits[in_torch].sum()), float(waits[~in_torch].sum())
    if several and phase in WITHIN_TORCH:  # of several ranks, one that waits inside torch waits for the others
        return np.array([python, compute, io, team])
    return np.array([python, compute + team, io, 0.0])


def _divided(ns: int, phase: int, shares: NDArray[np.float64] | None, starved: float) -> list[tuple[int, int]]:
    """Return [(activity, ns)] of a cell that no probe named, summing to *ns*; *starved* is a share of its runnable time."""
    if shares is not None:
        parts = list(zip(NAMED, divide(ns, shares).tolist()))
    elif phase in WITHIN_TORCH:
        parts = [(Activity.COMPUTE, ns)]
    elif phase == Phase.CHECKPOINT:
        parts = [(Activity.IO, ns)]
    elif phase == Phase.FETCH:
        parts = [(Activity.LOAD, ns)]
    else:
        parts = [(Activity.UNKNOWN, ns)]
    found, waited = [], 0
    for activity, part in parts:
        lost = round(part * starved) if activity in RUNNABLE else 0
        waited += lost
        found.append((int(activity), int(part) - lost))
    return [(activity, part) for activity, part in [*found, (int(Activity.STARVED), waited)] if part]


def _basis(activity: int, phase: int, shares: Shares) -> int:
    return Basis.SAMPLED if int(phase) in shares or activity == Activity.STARVED else Basis.RESIDUAL


def _starved(
    gauges: Gauges | None, start: NDArray[np.int64], end: NDArray[np.int64], steady: NDArray[np.bool_]
) -> float:
    """Return the share of the steady steps' runnable time in which the training thread or its team had no CPU.

    Runnable is running or in the run queue: a thread that sleeps or waits for a disk is not starved meanwhile.
    """
    if gauges is None or not steady.any():
        return 0.0
    begin, finish = int(start[steady].min()), int(end[steady].max())
    inside = np.flatnonzero((gauges.at_ns >= begin) & (gauges.at_ns <= finish))
    if inside.size < 2:
        return 0.0
    first, last = inside[0], inside[-1]
    alone = int(gauges.main_run_queue_ns[last] - gauges.main_run_queue_ns[first])
    queued = max(alone, int(gauges.team_run_queue_ns[last] - gauges.team_run_queue_ns[first]))
    if queued < LEAST_STARVED * int(gauges.at_ns[last] - gauges.at_ns[first]):
        return 0.0
    runnable = int(gauges.main_cpu_ns[last] - gauges.main_cpu_ns[first]) + alone
    return min(0.95, queued / max(1, runnable))
