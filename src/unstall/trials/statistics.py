"""What paired trials show: a ratio with its interval, a probability, and how far equal runs lie apart.

A *log* is the natural logarithm of base time / remedy time of one pair, above 0 where the remedy is faster.  The pair of
processes is the unit of evidence: steps of one process share its memory layout, its placement and its machine's mood, so
intervals over steps are far too narrow (Kalibera & Jones 2013, Rigorous benchmarking in reasonable time, sections 2, 6).
Shape legend: N pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unstall.model.trial import Ratio


def checked(logs: Sequence[float]) -> NDArray[np.float64]:
    """Return *logs* as float64 (N,).

    Raises:
        ValueError: When one is not finite: a time of 0, or a trial that was not completed.
    """
    logs_N = np.asarray(logs, dtype=np.float64)
    if not np.isfinite(logs_N).all():
        raise ValueError(f"a log-ratio is not finite: {list(logs)}")
    return logs_N


def ratio_of(logs: Sequence[float], confidence: float = 0.95, quietest: float = 0.0) -> Ratio:
    """Return the geometric mean of the pairs' ratios and its interval, from Student's t over the pairs.

    The interval holds for a number of pairs fixed beforehand. After a sequential test it is a little too narrow on the
    whole and the value a little too far from 1 (Jennison & Turnbull 2000, chapter 8): fresh pairs are free of both.

    Args:
        quietest: the least standard deviation of the logs that is believed.
    Raises:
        ValueError: Under two pairs: one says nothing of how far pairs differ, so it gives no interval.
    """
    from scipy.special import stdtrit

    logs_N = checked(logs)
    count = logs_N.size
    if count < 2:
        raise ValueError(f"an interval needs two pairs or more, not {count}")
    mean = float(logs_N.mean())
    spread = max(float(logs_N.std(ddof=1)), quietest)
    half = float(stdtrit(count - 1, 0.5 + confidence / 2)) * spread / math.sqrt(count)
    return Ratio(value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), pairs=count)


def p_faster(logs: Sequence[float]) -> float:
    """Return the probability of so large a gain or a larger one between equal arms, one-sided, as if looked at once.

    Source: Student's t test of the paired logs; pairs that are all alike give 0, 0.5 or 1.

    Raises:
        ValueError: Under two pairs.
    """
    from scipy.special import stdtr

    logs_N = checked(logs)
    count = logs_N.size
    if count < 2:
        raise ValueError(f"a probability needs two pairs or more, not {count}")
    mean, spread = float(logs_N.mean()), float(logs_N.std(ddof=1))
    if spread == 0:
        return 0.5 if mean == 0 else float(mean < 0)
    return float(stdtr(count - 1, -mean / spread * math.sqrt(count)))


def spread_of(times: Sequence[float]) -> float | None:
    """Return the usual difference between two equal runs, a share of their time; None under two runs.

    The median over all pairs of runs of the longer time over the shorter, less 1: one disturbed run among several does
    not move it much. It is a description for the user, never a part of a test. Cost: O(runs squared).

    Raises:
        ValueError: When a time is not above 0.
    """
    times_N = np.asarray(times, dtype=np.float64)
    if not (np.isfinite(times_N) & (times_N > 0)).all():
        raise ValueError(f"a run's time is expected to be above 0: {list(times)}")
    if times_N.size < 2:
        return None
    first, second = np.triu_indices(times_N.size, 1)
    apart = np.abs(np.log(times_N[first]) - np.log(times_N[second]))
    return math.expm1(float(np.median(apart)))
