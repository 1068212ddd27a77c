"""From which step on two runs can be compared: the warm-up ends where the length of a step last changes its level."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCKS = 64  # that a run is looked at in, to twice as many: single short steps tell of the machine's moments
LEAST_SEGMENT = 8  # blocks on either side of a change; fewer are an outlier, not a level
LEAST_SHIFT = 0.10  # of a step's usual length; smaller changes are drift, which pairs share
SURE = 1e-4  # probability of such a change in steps without one; many places are looked at
LATEST = 2 / 3  # of the run; a change after that leaves too little to compare


def warmup_of(step_ns: NDArray[np.int64]) -> int | None:
    """Return the steps before the steady state, at least 1; None where none is reached.

    A run of many steps is looked at in blocks, each as its median step, so that what disturbs the machine for some
    milliseconds is no change of level; only the first blocks after the last change, where a warm-up may end that is
    shorter than blocks can tell, are looked at in ever smaller ones, down to the step.

    Args:
        step_ns: int64 (S,): the lengths of the steps, in order.
    Cost: O(S + BLOCKS^2 log BLOCKS log S).
    Source: Pettitt 1979, a change-point test on ranks, so that single long steps (a checkpoint) do not count as a
        level; repeated to the right of each change until there is none, as Barrett et al. 2017 tell a steady state.
    """
    first, head = _after_long_start(step_ns), step_ns.size
    while True:
        part = step_ns[first : first + head]
        size = max(1, part.size // BLOCKS)
        first += _last_change(_blocks(part, size)) * size
        if size == 1:
            break
        head = 2 * LEAST_SEGMENT * size
    return max(1, first) if step_ns.size and first <= LATEST * step_ns.size else None


def _blocks(step_ns: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """Return the median of each *size* steps, float64 (S // size,); of what is left over at the end nothing."""
    whole = step_ns.size // size * size
    return np.asarray(np.median(step_ns[:whole].reshape(-1, size), axis=1), np.float64)


def _last_change(block_ns: NDArray[np.float64]) -> int:
    """Return the number of blocks before the last change of level; 0 where there is none."""
    first = at = 0
    while block_ns.size - at >= 2 * LEAST_SEGMENT:  # of three levels a test of the whole may see none
        change = _change(block_ns[at:])
        if change is not None:
            first = at = at + change
        else:
            at += LEAST_SEGMENT
    return first


def _after_long_start(step_ns: NDArray[np.int64]) -> int:
    """Return how many steps at the start are each longer than twice the later half's median: too few for a level."""
    usual = float(np.median(step_ns[step_ns.size // 2 :])) if step_ns.size else 0.0
    most = step_ns.size // 2
    long = np.flatnonzero(step_ns[:most] > 2 * usual)
    run = 0
    while run < long.size and long[run] == run:
        run += 1
    return run


def _change(block_ns: NDArray[np.float64]) -> int | None:
    """Return the number of blocks before the most likely change of level, or None where there is none."""
    count = block_ns.size
    if count < 2 * LEAST_SEGMENT:
        return None
    ranks = np.argsort(np.argsort(block_ns, kind="stable"), kind="stable") + 1.0
    before = np.arange(1, count + 1)
    statistic = np.abs(2 * np.cumsum(ranks) - before * (count + 1))
    inner = statistic[LEAST_SEGMENT - 1 : count - LEAST_SEGMENT]
    at = LEAST_SEGMENT + int(np.argmax(inner))
    chance = 2 * np.exp(-6 * float(inner.max()) ** 2 / (count**3 + count**2))
    left, right = float(np.median(block_ns[:at])), float(np.median(block_ns[at:]))
    shifted = abs(left - right) > LEAST_SHIFT * min(left, right)
    return at if chance < SURE and shifted else None
