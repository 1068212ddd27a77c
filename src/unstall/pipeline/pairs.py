"""Pairs of trials: make them, set aside what the machine disturbed, and read ratios off those that are left."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from unstall.model.remedy import Edit
from unstall.model.trial import Measure, Ratio, Trial
from unstall.pipeline.trial import Ask, Bench
from unstall.trials.statistics import ratio_of
from unstall.trials.steady import warmup_of

MOST_DISTURBED = 3  # pairs set aside; where more are, the machine is always so, and all count
LEAST_COMPARED = 5  # steps


@dataclass(frozen=True, slots=True)
class Pair:
    """A trial of the base and one with the remedy, made one right after the other with the same seed."""

    base: Trial
    remedy: Trial

    @property
    def disturbed(self) -> str:
        return self.base.disturbed or self.remedy.disturbed


@dataclass
class Pairs:
    """The pairs of one remedy.

    Attributes:
        base, remedy: edits of the two arms. ask: what both are asked for.
        measure: the time they are compared by. reseed: whether each pair has a seed of its own.
        pairs: all that were made, in order; shared: whether disturbed ones count, since nearly all are.
        draws: decide the order; remedy_first: of the present two pairs, whether the first begins with the remedy.
    """

    bench: Bench
    base: tuple[Edit, ...]
    remedy: tuple[Edit, ...]
    ask: Ask
    measure: Measure
    reseed: bool
    pairs: list[Pair] = field(default_factory=list)
    shared: bool = False
    draws: random.Random = field(default_factory=lambda: random.Random(0))
    remedy_first: bool = False

    def make(self) -> Pair:
        """Make one more pair.

        Of each two pairs one begins with the base and one with the remedy, so that a drift of the machine cancels out;
        which of them comes first is drawn, so that no rhythm of the machine can fall in with ours.

        Raises:
            Interrupted: When the user ended it.
        """
        number = len(self.pairs)
        ask = replace(self.ask, seed=self.ask.seed + number) if self.reseed else self.ask
        if number % 2 == 0:
            self.remedy_first = bool(self.draws.getrandbits(1))
        first = self.remedy_first == (number % 2 == 0)
        made = {}
        for is_remedy in (first, not first):
            made[is_remedy] = self.bench.make(replace(ask, edits=self.remedy if is_remedy else self.base))
        pair = Pair(made[False], made[True])
        self.pairs.append(pair)
        disturbed = sum(bool(pair.disturbed) for pair in self.pairs)
        self.shared = self.shared or disturbed > max(MOST_DISTURBED, len(self.pairs) - disturbed)
        return pair

    @property
    def counted(self) -> list[Pair]:
        """The pairs whose times are compared."""
        return [pair for pair in self.pairs if self.shared or not pair.disturbed]

    @property
    def discarded(self) -> int:
        """Trials that were left out."""
        return 2 * (len(self.pairs) - len(self.counted))

    def about_load(self) -> str:
        """Return that the ratio is of a busy machine, where nearly all pairs were disturbed; else ""."""
        disturbed = [pair.disturbed for pair in self.pairs if pair.disturbed]
        return f"on a busy machine: {disturbed[-1]}" if self.shared else ""

    def window(self) -> tuple[int, int] | None:
        """Return the steps that are compared in all counted pairs: from the end of the longest warm-up to the last
        that both arms made; None where they are too few or no steady state is reached."""
        trials = [trial for pair in self.counted for trial in (pair.base, pair.remedy)]
        if not trials:
            return None
        last = min(trial.end_S.size for trial in trials)
        if last < LEAST_COMPARED + 1:
            return None
        warm = [warmup_of(np.diff(trial.end_S[:last])) for trial in trials]  # how long the first took is not known
        known = [one for one in warm if one is not None]
        if len(known) <= len(trials) // 2:
            return None
        first = 1 + max(known)
        return (first, last) if last - first >= LEAST_COMPARED else None

    def logs(self, measure: Measure | None = None) -> list[float]:
        """Return log(base time / remedy time) of each counted pair by *measure*; empty where nothing can be compared."""
        window = self.window()
        if window is None:
            return []
        time = _time(measure or self.measure, *window)
        return [math.log(time(pair.base) / time(pair.remedy)) for pair in self.counted]

    def ratio(self, measure: Measure | None = None) -> Ratio | None:
        """Return the ratio by *measure* so far; None under two pairs."""
        logs = self.logs(measure)
        return ratio_of(logs) if len(logs) >= 2 else None

    def mean_ns(self, of_remedy: bool, measure: Measure) -> float | None:
        """Return the mean time of one arm over the counted pairs, ns."""
        window = self.window()
        if window is None:
            return None
        time = _time(measure, *window)
        return float(np.mean([time(pair.remedy if of_remedy else pair.base) for pair in self.counted]))

    def base_steps_ns(self) -> list[float]:
        """Return the mean step of each counted base trial, ns: what equal runs differ by."""
        window = self.window()
        return [] if window is None else [pair.base.mean_step_ns(*window) for pair in self.counted]


def _time(measure: Measure, first: int, last: int) -> Callable[[Trial], float]:
    """Return what reads the time of *measure* off a trial, ns."""
    if measure is Measure.STEP:
        return lambda trial: trial.mean_step_ns(first, last)
    if measure is Measure.START:
        return lambda trial: float(trial.start_ns(first))
    return lambda trial: float(trial.end_S[last - 1])
