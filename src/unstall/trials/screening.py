"""Screening: whether a remedy is worth pairs of processes, from blocks of steps inside one running training.

A setting of the process can be turned on and off between two steps.  So blocks of steps in which it is on and in which it is
off follow one another, in an order that is drawn anew for each round: a switchback experiment (Bojinov, Simchi-Levi & Zhao
2023, Design and analysis of switchback experiments).  The first steps after a switch are dropped, as what the arm before
left behind (teams of threads, caches) is no longer there after them.  What a round says of an arm is its *log*: the
logarithm of the mean step of the block without over that of the block with the arm.  The round is the unit of evidence,
never the step: steps of one block share the state of the machine.

A screening may refuse a remedy, since nothing is promised of what is left out, and it can prove none: memory layout, what is
set as the process comes up, and whether the training stays the same are not seen in it.  FASTER comes from fresh pairs.
Shape legend: A arms but for arm 0, which is the run as it is; R rounds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.model.remedy import Knob, Remedy, Scalar
from unstall.model.trial import Block, Outlook, Screening, Tried
from unstall.trials.search import AS_GOOD, values_of
from unstall.trials.sequence import Design
from unstall.trials.statistics import ratio_of

BLOCK_NS = 200_000_000  # that a block is timed for, less where steps are few: of equal total time more blocks tell more
DROPPED = 2  # steps after a switch of a setting
LEAST_STEPS = 4  # of a block that are timed
PERIODS = 3  # of what comes only now and then, in a block: what an arm leaves to the next is one of them at most
ROUNDS, LEAST_ROUNDS = 24, 8  # at most; and at least, before a remedy is refused
TOTAL_NS = 12_000_000_000  # that all blocks are timed for, unless the least number of rounds takes longer
MOST_VALUES = 6  # of a knob; the ones nearest to the predicted value
AROUND = (
    0.5,
    2 / 3,
    1.0,
    1.5,
    2.0,
)  # of the predicted number of workers; each arm starts workers anew, so arms are few
ENOUGH_ROUNDS, ENOUGH_GAIN = 5, 0.10  # an arm that wins each of so many rounds by so much is promising: it ends here


@dataclass(frozen=True, slots=True)
class Arm:
    """What the switch is set to; *value* is the knob's, None for a remedy without one."""

    arguments: tuple[Scalar, ...]
    value: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Which arm holds in which steps of a training.

    Attributes:
        warm: steps before the first block. dropped, measured: steps of each block that are not timed, and that are.
        order: arm of each block, all arms once in each round. arms: how many there are, arm 0 among them.
        seed: that the order was drawn with.
    """

    warm: int
    dropped: int
    measured: int
    order: tuple[int, ...]
    arms: int
    seed: int

    @property
    def steps(self) -> int:
        """Steps from the first on until all blocks are made."""
        return self.warm + len(self.order) * (self.dropped + self.measured)


def arms_of(remedy: Remedy) -> tuple[Arm, ...]:
    """Return the arms besides the run as it is: each value of the remedy's knob, or its switch on; none without a switch."""
    if remedy.switch is None:
        return ()
    on = remedy.switch.on
    if not remedy.knobs:
        return (Arm(on),)
    knob = remedy.knobs[0]
    if remedy.switch.site:
        return tuple(Arm((value,), value) for value in _around(knob))
    far = {value: abs(math.log(max(value, 0.5) / max(knob.predicted, 0.5))) for value in values_of(knob)}
    nearest = sorted(sorted(far, key=lambda value: (far[value], value))[:MOST_VALUES])
    is_it = [type(one) is int and one == knob.predicted for one in on]
    return tuple(
        Arm(tuple(value if it else one for one, it in zip(on, is_it, strict=True)), value) for value in nearest
    )


def _around(knob: Knob) -> tuple[int, ...]:
    values = {min(knob.high, max(knob.low, round(share * knob.predicted))) for share in AROUND}
    return tuple(sorted(values))


def laid_out(
    step_ns: float, warm: int, steps: int, arms: int, every_steps: float, seed: int, workers: int = 0
) -> Layout | None:
    """Return the blocks of a training whose step takes *step_ns*; None where its *steps* are too few.

    Args:
        arms: arm 0 included. every_steps: as of `Switch`. workers: the most that an arm has, where it is about workers:
            until each has given its first batch, batches come as from workers that were just started.
    """
    room, dropped = steps - warm, max(DROPPED, workers + 1 if workers else 0)
    least = max(LEAST_STEPS, 2 * workers, math.ceil(PERIODS * every_steps) if every_steps > 1 else 0)
    measured = max(least, min(math.ceil(BLOCK_NS / step_ns), room // (arms * ROUNDS) - dropped))
    in_time = max(LEAST_ROUNDS, int(TOTAL_NS / (arms * measured * step_ns)))
    rounds = min(ROUNDS, in_time, room // (arms * (dropped + measured)))
    if rounds < LEAST_ROUNDS:
        return None
    draws, order = random.Random(seed), []
    for _ in range(rounds):
        order += draws.sample(range(arms), arms)
    return Layout(warm, dropped, measured, tuple(order), arms, seed)


def screened(blocks: Sequence[Block], arms: Sequence[Arm], layout: Layout, because: str = "") -> Screening:
    """Return what the blocks show.

    FUTILE where the 95 % interval of every arm ends below the least gain that pays (2 %) after eight rounds or more;
    PROMISING where that of the best one begins above 1; else NOT_TOLD. Of a knob the smallest value within 2 % of the
    best is meant; its ratio is biased upwards, as the best of several is, which makes refusing rarer.

    Args:
        blocks: in the order of the layout; they may end before it does. A round that was not ended is left out.
        because: why it may not be refused whatever the blocks show, or "": on a busy machine a gain may not show.
    """
    logs_AR = logs_of(blocks, layout.arms)
    rounds = logs_AR.shape[1]
    if rounds < 2:
        return Screening(Outlook.NOT_TOLD, seed=layout.seed, because=because or "too few blocks were made")
    ratios = [ratio_of(logs_R.tolist(), quietest=Design().quietest) for logs_R in logs_AR]
    best = next(at for at, one in enumerate(ratios) if one.value * (1 + AS_GOOD) >= max(r.value for r in ratios))
    tried = tuple(Tried(arm.value, one.value) for arm, one in zip(arms, ratios, strict=True) if arm.value is not None)
    if rounds >= LEAST_ROUNDS and all(one.high < 1 + Design().least_effect for one in ratios):
        outlook = Outlook.NOT_TOLD if because else Outlook.FUTILE
    else:
        outlook = Outlook.PROMISING if ratios[best].low > 1 else Outlook.NOT_TOLD
    return Screening(outlook, ratios[best], rounds * layout.arms, layout.seed, tried, because)


def logs_of(blocks: Sequence[Block], arms: int) -> NDArray[np.float64]:
    """Return log(mean step without / mean step with the arm), float64 (A, R), of the rounds that were ended."""
    rounds = len(blocks) // arms
    step_RA = np.zeros((rounds, arms))
    for at, block in enumerate(blocks[: rounds * arms]):
        step_RA[at // arms, block.arm] = block.mean_step_ns
    return np.log(step_RA[:, :1] / step_RA[:, 1:]).T


def best_value(screening: Screening) -> int | None:
    """Return the smallest value within 2 % of the best one; None where no values were screened."""
    least = max((one.ratio for one in screening.tried), default=0.0) / (1 + AS_GOOD)
    return min((one.value for one in screening.tried if one.ratio >= least), default=None)
