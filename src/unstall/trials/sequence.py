"""When to stop making pairs, and what they show: a group-sequential test of the pairs' log-ratios.

After each pair from the third on the mean of the logs is looked at.  Looking often would call equal arms faster more often
than was promised, so the promise *alpha* is spent look by look (Lan & DeMets 1983), early enough that a large gain ends
after three pairs.  What a look may spend is the level of a one-sided t test over the pairs made so far; the levels add up
to alpha, so by the union bound the promise holds whatever the looks have to do with each other.  The sharper levels of
Armitage, McPherson & Rowe 1969, used for t tests as in Jennison & Turnbull 2000, section 3.8, were tried first and broke it
at so few pairs: `bench/designs.py`, docs/trials.md.

Several remedies are tested one after another: what `next_alpha` gives is spent so that few of those called faster are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unstall.model.trial import Verdict
from unstall.trials.statistics import checked

KEPT = 0.8  # of what the total has left goes on to the next remedy; so the first has a fifth of it
MOST_FORESEEN = 1000  # pairs; past them "more pairs" is no advice
POWER_FORESEEN = 0.8


@dataclass(frozen=True, slots=True)
class Design:
    """How many pairs may be made, and what is promised of the verdict.

    Attributes:
        alpha: chance that equal arms are called faster, over all looks together.
        alpha_slower: the same for slower; a false one costs little, since no effect would be undone as well.
        most_pairs, least_pairs: the last look and the first.
        least_effect: the smallest gain worth having, a share; a gain surely below it is no effect.
        confidence: one-sided, of the bounds by which a gain is surely below *least_effect*.
        least_power: it ends where, at the upper bound of the gain, the chance to prove one by the last pair is below this.
        quietest: the least standard deviation of the logs that is believed; three pairs can look quieter than they are.
    Raises:
        ValueError: When the numbers allow no test.
    """

    alpha: float = 0.01
    alpha_slower: float = 0.05
    most_pairs: int = 12
    least_pairs: int = 3
    least_effect: float = 0.02
    confidence: float = 0.95
    least_power: float = 0.1
    quietest: float = 0.001

    def __post_init__(self) -> None:
        if not 2 <= self.least_pairs <= self.most_pairs:
            raise ValueError(f"the first look, at {self.least_pairs} pairs, must lie in 2 to {self.most_pairs}")
        if not (0 < self.alpha < 0.5 and 0 < self.alpha_slower < 0.5):
            raise ValueError(f"alpha must lie between 0 and 0.5: {self.alpha}, {self.alpha_slower}")
        if not (self.least_effect > 0 and self.quietest > 0):
            raise ValueError(f"least effect and noise must be above 0: {self.least_effect}, {self.quietest}")


def decide(logs: Sequence[float], design: Design) -> Verdict | None:
    """Return what the pairs show, or None: make another pair.

    To be asked after each pair, with the logs of all pairs of the remedy so far; a pair that was discarded is not there.
    An effect surely within *least_effect* on both sides of nothing is no effect, proved or not. After *most_pairs* there is
    always a verdict. FASTER is said of time only: whether it trained the same is for others to tell.

    Raises:
        ValueError: When a log is not finite.
    """
    if len(logs) < design.least_pairs:
        checked(logs)
        return None
    seen = _seen(logs, design)
    low, high = seen.mean - seen.reach(design.confidence), seen.mean + seen.reach(design.confidence)
    least = math.log1p(design.least_effect)
    if -least < low and high < least:
        return Verdict.NO_EFFECT
    if seen.p_above() <= level(design.alpha, seen.pairs, design):
        return Verdict.FASTER
    if 1 - seen.p_above() <= level(design.alpha_slower, seen.pairs, design):
        return Verdict.SLOWER
    if high < least:
        looks_slower = seen.mean < -least and seen.pairs < design.most_pairs // 2  # a few more pairs may prove it
        return None if looks_slower else Verdict.NO_EFFECT
    if seen.pairs >= design.most_pairs or _power(seen, high, design) < design.least_power:
        return Verdict.INCONCLUSIVE
    return None


def level(alpha: float, pairs: int, design: Design) -> float:
    """Return the part of *alpha* that the look after *pairs* pairs may spend; of all looks together it is *alpha*.

    Spent by the fraction t of the last pair: ln(1 + (e - 1) t), Lan & DeMets 1983 after Pocock 1977. The one after O'Brien
    & Fleming 1979 leaves the third pair 3e-7, a t of 1392, so a gain of 1.3x would always need five.
    """
    pairs = min(pairs, design.most_pairs)

    def spent(by: int) -> float:
        return alpha * math.log1p((math.e - 1) * by / design.most_pairs)

    return spent(pairs) - (spent(pairs - 1) if pairs > design.least_pairs else 0.0)


def next_alpha(verdicts: Sequence[Verdict], total: float = 0.05, most: float = 0.01) -> float:
    """Return the alpha to test the next remedy at, given the verdicts of those before it, in order.

    Of the remedies called faster a share of at most *total* is not, in expectation: LORD++ (Ramdas, Yang, Wainwright &
    Jordan 2017), whose condition, that each test is fair whatever came before, holds since each remedy has fresh pairs
    against the base of its time. The weights are geometric and W0 is *total*, so the first remedies, for which most is
    predicted, are tested at nearly *most*, and one that is found faster pays for those after it. Never above *most*, which
    lowers the error only.

    Cost: O(verdicts).
    """
    now = len(verdicts)
    faster = [at for at, verdict in enumerate(verdicts) if verdict is Verdict.FASTER]
    shares = [_weight(now)] + [_weight(now - at - 1) for at in faster[1:]]
    return min(most, total * sum(shares))


def _weight(later: int) -> float:
    """Return the share of a grant for the test *later* tests after it; all shares together are 1."""
    return (1 - KEPT) * KEPT**later


def pairs_needed(logs: Sequence[float], design: Design) -> int | None:
    """Return how many pairs in all would prove the gain seen so far, were it and the noise as they look.

    At the level of the last look, with a chance of 80 %. None where no gain is seen, or where it takes more than 1000: then
    a quieter machine or longer trials are the advice.

    Raises:
        ValueError: Under two pairs.
    """
    from scipy.special import ndtr, stdtrit

    seen = _seen(logs, design)
    if seen.mean <= 0:
        return None
    last = 1 - level(design.alpha, design.most_pairs, design)
    for pairs in range(design.least_pairs, MOST_FORESEEN + 1):
        if ndtr(seen.mean / seen.spread * math.sqrt(pairs) - stdtrit(pairs - 1, last)) >= POWER_FORESEEN:
            return pairs
    return None


@dataclass(frozen=True, slots=True)
class _Seen:
    """Mean of the logs, and their standard deviation as far as it is believed."""

    pairs: int
    mean: float
    spread: float

    def reach(self, confidence: float) -> float:
        """Return how far the mean may lie from the truth on one side."""
        from scipy.special import stdtrit

        return float(stdtrit(self.pairs - 1, confidence)) * self.spread / math.sqrt(self.pairs)

    def p_above(self) -> float:
        """Return the probability of such a mean or a higher one between equal arms."""
        from scipy.special import stdtr

        return float(stdtr(self.pairs - 1, -self.mean / self.spread * math.sqrt(self.pairs)))


def _seen(logs: Sequence[float], design: Design) -> _Seen:
    logs_N = checked(logs)
    if logs_N.size < 2:
        raise ValueError(f"two pairs or more are needed, not {logs_N.size}")
    return _Seen(logs_N.size, float(logs_N.mean()), max(float(logs_N.std(ddof=1)), design.quietest))


def _power(seen: _Seen, gain: float, design: Design) -> float:
    """Return the chance that the last look proves a gain, where each further pair gives *gain* in the mean.

    Source: conditional power, Lan, Simon & Halperin 1982; the bound of the last look only, so a little too small.
    """
    from scipy.special import ndtr, stdtrit

    last, left = design.most_pairs, design.most_pairs - seen.pairs
    bound = float(stdtrit(last - 1, 1 - level(design.alpha, last, design))) * seen.spread * math.sqrt(last)
    expected = seen.pairs * seen.mean + left * gain
    return float(ndtr((expected - bound) / (seen.spread * math.sqrt(left))))
