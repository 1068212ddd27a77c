"""What a budget can prove, foreseen from how long a trial takes: how many pairs fit, and the least gain that they tell."""

from __future__ import annotations

import math
from dataclasses import dataclass

from unstall.trials.sequence import POWER_FORESEEN, Design, level

EQUALITY_TRIALS = 2  # that show whether it trains the same
NOISE = 0.04  # standard deviation of a trial's log on an ordinary machine; bench/data has recordings


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What fits into the time that is left.

    Attributes:
        trials: that can be made. pairs: of one remedy, its trials for sameness set aside, as many as a proof may have at most.
        least_gain: the smallest gain that so many pairs prove four times in five on an ordinary machine, 1.2 for 1.2x; None
            where they are too few for any.
    """

    trials: int
    pairs: int
    least_gain: float | None


def foreseen(left_s: float, trial_s: float, design: Design) -> Foreseen:
    """Return what fits into *left_s* where a trial takes *trial_s*."""
    trials = max(0, int(left_s / max(trial_s, 1e-3)))
    pairs = min(design.most_pairs, max(0, trials - EQUALITY_TRIALS) // 2)
    return Foreseen(trials, pairs, least_gain(pairs, NOISE, design))


def least_gain(pairs: int, noise: float, design: Design) -> float | None:
    """Return the smallest gain that the look after *pairs* pairs proves four times in five; None under the first look.

    Args:
        noise: standard deviation of a trial's log; a pair's is that of two.
    Source: power of the t test, by the noncentral t distribution.
    """
    from scipy.special import nctdtrinc, stdtrit

    if pairs < design.least_pairs:
        return None
    bound = float(stdtrit(pairs - 1, 1 - level(design.alpha, pairs, design)))
    errors = float(nctdtrinc(pairs - 1, 1 - POWER_FORESEEN, bound))  # standard errors that the gain must be
    return math.exp(errors * noise * math.sqrt(2 / pairs))


def time_needed_s(trial_s: float, design: Design) -> float:
    """Return what one remedy with a large gain takes: the least pairs, and the trials for sameness."""
    return (2 * design.least_pairs + EQUALITY_TRIALS) * trial_s
