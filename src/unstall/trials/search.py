"""The search of a knob: which values to try after the predicted one, and which of them wins.

Asked and told, one value at a time, so the caller makes the trials.  The response to such knobs (workers, prefetch, threads,
buckets) rises as the work is shared out, is flat where something else bounds the step, and may fall again when the machine
is oversubscribed: one hill over the logarithm of the value.  So the steps are factors, not differences.  From the predicted
value, which cause arithmetic puts near the top, one neighbour on each side usually settles it; where one is better, the
search goes on that way with growing steps (bracketing), and a wide gap beside the best is cut in the middle, on the
scale of logarithms.  Golden sections proper gain nothing in six trials over integers.
The ratios choose and prove nothing: the best of several noisy ones looks better than it is (the winner's curse), so the
value found is proved on fresh pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from unstall.model.remedy import Knob
from unstall.model.trial import Tried

AS_GOOD = 0.02  # of the best ratio; the cheapest value within it wins
FACTORS = (1.5, 2.0, 2.5, 3.0)  # of the first step away from the predicted value, the second, ...
WIDE = 1.5  # factor between neighbours; a wider gap beside the best is looked into
FEWEST, MOST = 3, 6  # trials; between them a fifth of the values there are


class Search:
    """The search of one knob: `next` says what to try, `tell` how it did, until `next` gives None.

    Never asks outside the knob's bounds, nor the same value twice, nor more than six in all.
    """

    def __init__(self, knob: Knob) -> None:
        if knob.low > knob.high:
            raise ValueError(f"{knob.keyword}: its lowest value {knob.low} is above its highest {knob.high}")
        self._values = values_of(knob)
        self._predicted = min(self._values, key=lambda value: (abs(_log(value) - _log(knob.predicted)), value))
        self._most = max(FEWEST, min(MOST, len(self._values) // 5))
        self._ratios: dict[int, float] = {}

    @property
    def tried(self) -> tuple[Tried, ...]:
        """The values told so far, in the order of the trials."""
        return tuple(Tried(value, ratio) for value, ratio in self._ratios.items())

    def tell(self, value: int, ratio: float) -> None:
        """Take how many times faster than the base *value* was; 0 where it broke the run.

        Raises:
            ValueError: When *value* is not what `next` asks for, or *ratio* is no number from 0 up.
        """
        if value != self.next():
            raise ValueError(f"{value} was not asked for, but {self.next()}")
        if not (math.isfinite(ratio) and ratio >= 0):
            raise ValueError(f"a ratio is 0 or more: {ratio}")
        self._ratios[value] = ratio

    def best(self) -> int:
        """Return the smallest value tried within 2 % of the best one; the predicted value before anything was told.

        Where every value tried broke the run, the smallest of them.
        """
        if not self._ratios:
            return self._predicted
        least = max(self._ratios.values()) / (1 + AS_GOOD)
        return min(value for value, ratio in self._ratios.items() if ratio >= least)

    def next(self) -> int | None:
        """Return the value to try next, the same one until it is told; None where the search is over."""
        if not self._ratios:
            return self._predicted
        if len(self._ratios) >= self._most:
            return None
        best, tried = self.best(), sorted(self._ratios)
        ran = self._ratios[best] > 0  # where nothing ran yet, less is tried: it is mostly memory that ran out
        if ran and best == tried[-1] and best < self._values[-1]:
            return self._beyond(best, up=True)
        if best == tried[0] and best > self._values[0]:
            return self._beyond(best, up=False)
        return self._between(best, tried) if ran else None

    def _beyond(self, best: int, *, up: bool) -> int:
        """Return an untried value beyond all that were tried, a factor away that grows with the steps made that way."""
        made = sum(value > self._predicted if up else value < self._predicted for value in self._ratios)
        factor = FACTORS[min(made, len(FACTORS) - 1)]
        if up:
            return self._nearest(best * factor, lambda value: value > best)
        return self._nearest(best / factor, lambda value: value < best)

    def _between(self, best: int, tried: list[int]) -> int | None:
        """Return a value amid the wider gap beside *best*; None where both are narrow."""
        at = tried.index(best)
        beside = tried[max(at - 1, 0) : at + 2]
        gaps = [(low, high) for low, high in zip(beside, beside[1:]) if self._open(low, high)]
        if not gaps:
            return None
        low, high = max(gaps, key=lambda gap: _log(gap[1]) - _log(gap[0]))
        return self._nearest(math.exp((_log(low) + _log(high)) / 2), lambda value: low < value < high)

    def _open(self, low: int, high: int) -> bool:
        """Return whether the gap is wide and holds a value."""
        is_wide = _log(high) - _log(low) > math.log(WIDE) + 1e-9  # 3 over 2 is not, whatever the rounding
        return is_wide and any(low < value < high for value in self._values)

    def _nearest(self, aim: float, allowed: Callable[[int], bool]) -> int:
        return min(filter(allowed, self._values), key=lambda value: abs(value - aim))


def values_of(knob: Knob) -> list[int]:
    """Return what the knob may be set to, rising; the predicted value alone where no power of two lies in its bounds."""
    if knob.scale != "powers":
        return list(range(knob.low, knob.high + 1))
    powers = [1 << n for n in range(max(knob.high, 1).bit_length()) if knob.low <= 1 << n <= knob.high]
    return powers or [min(max(knob.predicted, knob.low), knob.high)]


def _log(value: int) -> float:
    return math.log(max(value, 0.5))  # 0 workers lie as far from 1 as 1 from 2
