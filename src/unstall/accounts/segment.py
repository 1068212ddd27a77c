"""Find the steps: which rows of the live accounting (or STEP events) make one step, and from when on the run is steady."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.model.ledger import OUTSIDE
from unstall.model.run import Rank, Rows, Run
from unstall.model.steps import Steps
from unstall.model.wire import BACKWARD_CLOSES, PROFILED, Kind, Phase

SETTLED = 2.0  # times the usual step; a step longer than that may still belong to the warm-up
LEAST_STEPS = 4  # fewer cannot tell a teacher from an evaluation
TEACHER_SHARE = 0.5  # of the steps; a no-grad forward in more of them belongs to the step
LOOK_AHEAD = 3  # steps within which another long one keeps the warm-up going


@dataclass(frozen=True, slots=True)
class Segments:
    """The steps, and the step that each row belongs to.

    Attributes:
        step_of_row: per rank int32 (rows,), index into the steps or OUTSIDE; empty for a rank without rows.
        teaches: per rank, whether no-grad forwards are part of the step (a teacher), and no evaluation.
    """

    steps: Steps
    step_of_row: tuple[NDArray[np.int32], ...]
    teaches: tuple[bool, ...] = ()


def segment(run: Run, warmup: int | None = None) -> Segments:
    """Return the steps of *run*; *warmup* overrides how many steps are left out of the statistics."""
    if all(rank.rows is None for rank in run.ranks):
        return _from_events(run, warmup)
    of_rank = [_steps_of(rank.rows) if rank.rows is not None else np.zeros(0, np.int32) for rank in run.ranks]
    count = min((int(s.max()) + 1 if s.size else 0) for s in of_rank)
    of_rank = [np.where(s < count, s, OUTSIDE).astype(np.int32) for s in of_rank]
    start, end = (np.zeros((count, len(run.ranks)), np.int64) for _ in range(2))
    weight, profiled = np.zeros(count, np.int32), np.zeros(count, np.bool_)
    for r, (rank, of_row) in enumerate(zip(run.ranks, of_rank)):
        assert rank.rows is not None
        for s in range(count):
            rows = np.flatnonzero(of_row == s)
            start[s, r], end[s, r] = rank.rows.start_ns[rows[0]], rank.rows.end_ns[rows[-1]]
            profiled[s] |= bool((rank.rows.flags[rows] & PROFILED).any())
            if r == 0:
                weight[s] = max(1, int(rank.rows.steps[rows].max()))
    rows0 = run.ranks[0].rows
    assert rows0 is not None
    weight = _whole_steps(rows0, of_rank[0], weight)
    closers = rows0.closer[rows0.steps > 0]
    closed = "backward" if closers.size and (closers == BACKWARD_CLOSES).all() else "optimizer"
    mean = (end - start).max(axis=1) / np.maximum(1, weight)
    teaches = tuple(_teaches(rank.rows, of_row) for rank, of_row in zip(run.ranks, of_rank) if rank.rows is not None)
    steps = Steps(start, end, _steady(mean, weight, warmup) & ~profiled, weight, closed)
    return Segments(steps, tuple(of_rank), teaches)


def _whole_steps(rows: Rows, of_row: NDArray[np.int32], weight: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return *weight* with rolled-up rows counted in whole steps: where several optimizers step, each closed a row."""
    single = (of_row >= 0) & (rows.steps == 1)
    steps = np.unique(of_row[single]).size
    closings = single.sum() / steps if steps else 1.0
    rolled = weight > 1
    return np.where(rolled, np.maximum(1, np.rint(weight / closings)), weight).astype(np.int32)


def _teaches(rows: Rows, of_row: NDArray[np.int32]) -> bool:
    """Return whether forwards without gradients happen in most steps: then a teacher makes them."""
    inside = of_row >= 0
    count = int(of_row.max()) + 1 if inside.any() else 0
    evaluating = rows.spent_NPA[:, Phase.EVALUATE].sum(axis=1) > 0
    return count >= LEAST_STEPS and np.unique(of_row[inside & evaluating]).size > TEACHER_SHARE * count


def _steps_of(rows: Rows) -> NDArray[np.int32]:
    """Return the step of each row: several optimizers a step (a GAN) are merged into one.

    Optimizers that follow one another (two trainings in one script) are not merged.
    """
    real = np.flatnonzero(rows.steps > 0)
    of_row = np.full(rows.steps.size, OUTSIDE, np.int32)
    if not real.size:
        return of_row
    # Until the first optimizer step of a run that accumulates gradients, the recorder lets backward close rows.
    # A rolled-up row names only the last of its closers.
    single = real[rows.steps[real] == 1]
    by_optimizer = single[rows.closer[single] != BACKWARD_CLOSES]
    telling = next((chosen for chosen in (by_optimizer, single) if chosen.size), real)
    stretches = _stretches(telling, rows.closer)
    closing = [_closing(rows.closer[stretch]) for stretch in stretches]
    begins = [int(stretch[0]) for stretch in stretches]
    step, at = 0, 0
    pending: list[int] = []
    for row in range(real[0], rows.steps.size):
        if at + 1 < len(begins) and row == begins[at + 1]:
            at += 1
        pending.append(row)
        if rows.steps[row] > 0 and (rows.closer[row] == closing[at] or rows.steps[row] > 1):
            of_row[pending] = step
            step, pending = step + 1, []
    return of_row


def _stretches(telling: NDArray[np.intp], closer: NDArray[np.uint16]) -> list[NDArray[np.intp]]:
    """Return the rows of *telling* in stretches, cut where no optimizer that stepped before steps again."""
    _, which = np.unique(closer[telling], return_inverse=True)
    last = np.zeros(which.max() + 1, np.intp)
    last[which] = np.arange(which.size)  # of equal indices the latest stays
    until = np.maximum.accumulate(last[which])
    cuts = np.flatnonzero(until[:-1] == np.arange(which.size - 1)) + 1
    return np.split(telling, cuts)


def _closing(closer: NDArray[np.uint16]) -> int:
    """Return which optimizer closes the steps of a stretch, given who closed each of its rows.

    It is the one that steps least often, unless it is a mere guest (under one step in fifty).
    """
    closers, counts = np.unique(closer, return_counts=True)
    fit = closers[counts * 50 >= counts.max()]
    counts = counts[counts * 50 >= counts.max()]
    if counts.min() < counts.max():
        return int(fit[np.argmin(counts)])
    first_seen = [int(np.argmax(closer == c)) for c in fit]  # all step alike: the last in the first round closes
    return int(fit[int(np.argmax(first_seen))])


def _steady(mean_ns: NDArray[np.float64], weight: NDArray[np.int32], warmup: int | None) -> NDArray[np.bool_]:
    """Return which steps are past the warm-up.

    The first step never is. Then the warm-up goes on while a step of twice the usual length lies within the next few;
    the usual length is the median of the later half, and at most half of the steps are left out.
    """
    count = mean_ns.size
    steady = np.zeros(count, np.bool_)
    if count == 0:
        return steady
    if warmup is not None:
        steady[np.cumsum(weight) > warmup] = True
        return steady
    usual = np.median(mean_ns[count // 2 :])
    first = min(1, count - 1)
    while first < count // 2 and (mean_ns[first : first + LOOK_AHEAD] > SETTLED * usual).any():
        first += 1
    steady[first:] = True
    return steady


def _from_events(run: Run, warmup: int | None) -> Segments:
    """Return the STEP events of each rank as steps; all are steady unless *warmup* says otherwise."""
    per_rank = [_step_events(rank) for rank in run.ranks]
    count = min((len(s) for s in per_rank), default=0)
    start = np.array([s[:count, 0] for s in per_rank], np.int64).T.reshape(count, len(run.ranks))
    end = np.array([s[:count, 1] for s in per_rank], np.int64).T.reshape(count, len(run.ranks))
    steady = np.ones(count, np.bool_)
    steady[: warmup or 0] = False
    none = tuple(np.zeros(0, np.int32) for _ in run.ranks)
    return Segments(Steps(start, end, steady, np.ones(count, np.int32)), none)


def _step_events(rank: Rank) -> NDArray[np.int64]:
    rows = rank.events.of(Kind.STEP)
    return np.stack([rank.events.start_ns[rows], rank.events.end_ns[rows]], axis=1)
