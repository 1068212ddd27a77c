"""A trial, what a series of them proves, and what `unstall fix` arrived at.

A *trial* is one run of the command with some edits in force.  A *pair* is two trials of the same command, seed and
steps that differ by one remedy only: the *base* (all remedies kept so far) and the base with the remedy.  A *proof* is
what the pairs of one remedy show.  Shape legend: S steps, L backward passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from unstall.model.remedy import Remedy
from unstall.model.report import Report


class Verdict(str, Enum):
    """What the trials of a remedy show."""

    FASTER = "faster"
    NO_EFFECT = "no effect"
    SLOWER = "slower"
    TRAINED_DIFFERENTLY = "trained differently"
    INCONCLUSIVE = "inconclusive"
    NO_STEADY_STATE = "no steady state"
    FAILED = "failed"  # the remedy broke the run


class Measure(str, Enum):
    """The time that a verdict goes by."""

    STEP = "step"  # mean of the compared steps, with all that lies between them: evaluations, checkpoints, new epochs
    START = "start"  # from the spawn to the first compared step
    RUN = "run"  # from the spawn to the end of the last step


@dataclass(frozen=True, slots=True)
class Block:
    """Steps of one running training during which one arm held.

    Attributes:
        arm: 0 is the run as it is; first: number of its first step that counts, from 1; those just after the switch do not.
        steps: that count; wall_ns: what they took together.
    """

    arm: int
    first: int
    steps: int
    wall_ns: int

    @property
    def mean_step_ns(self) -> float:
        return self.wall_ns / self.steps


@dataclass(frozen=True, slots=True)
class Captured:
    """What a trial kept of its training, for comparison with another's.

    Attributes:
        losses_L: float64 (L,): the scalar that each backward pass started from, in order; NaN where it was no scalar.
        parameters: a digest of the bits of all parameters that an optimizer updates, at the end; "" where not taken.
        epochs: epoch boundaries of the training's loaders that were passed.
        samples: a digest, order left out, of the indices that each epoch's sampler gave; empty where not observed.
        gradients: by step, float32 (P,) arrays of all gradients of that step, one after another: the lockstep points.
        updates: by step, float32 (P,): what that step added to each parameter, so that a changed rate or decay shows.
        point_losses: by step, the mean loss of that step's backward passes.
        seeded: whether the training set no seed of its own, so that the trial's seed is the only one.
        shrunk: batches an epoch that loaders were cut to; None where they were left alone.
        kinds: data types and elements of the parameters, as ``float32 x 1204``; "" where no optimizer stepped.
        through_loader: whether a DataLoader gave the batches; without one there is no epoch boundary to pass.
        notes: what could not be reached or kept, in words.
        ablated: by what was taken away for a bound: batches given again, or checkpoints not written; 0 where nothing was.
        blocks: of a screening, in order; not_switched: why its arms did not hold, or "".
    """

    losses_L: NDArray[np.float64]
    parameters: str = ""
    epochs: int = 0
    samples: tuple[str, ...] = ()
    gradients: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    updates: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    point_losses: Mapping[int, float] = field(default_factory=dict)
    seeded: bool = False
    shrunk: int | None = None
    kinds: str = ""
    through_loader: bool = True
    notes: tuple[str, ...] = ()
    ablated: Mapping[str, int] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    not_switched: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of the command.

    Attributes:
        end_S: int64 (S,), ns since the spawn: when each step had ended on every rank.
        wall_ns: spawn to reap.
        stopped: whether we ended it at the step that was asked for.
        missed: places in the plan of the edits that were never met: the call was not made.
        disturbed: why the time of this trial cannot be compared (load, throttling, the machine slept), or "".
        error: how it failed, in words, with the end of what it said; "" where it did not.
    """

    end_S: NDArray[np.int64]
    wall_ns: int
    stopped: bool
    captured: Captured
    missed: tuple[int, ...] = ()
    disturbed: str = ""
    error: str = ""

    def mean_step_ns(self, first: int, last: int) -> float:
        """Return the mean time of the steps *first* to *last* - 1, all that lies between them included.

        Raises:
            ValueError: When there are no such steps.
        """
        if not 0 < first < last <= self.end_S.size:
            raise ValueError(f"no steps {first} to {last} among {self.end_S.size}")
        return float(self.end_S[last - 1] - self.end_S[first - 1]) / (last - first)

    def start_ns(self, first: int) -> int:
        """Return the time from the spawn to the start of step *first* (which is the end of the one before)."""
        return int(self.end_S[first - 1])


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster, from paired trials: time of the base over time with the remedy.

    Attributes:
        low, high: 95 % confidence interval.
        pairs: pairs of trials it rests on.
    """

    value: float
    low: float
    high: float
    pairs: int

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.value <= self.high:
            raise ValueError(f"a ratio's bounds are out of order: {self.low} {self.value} {self.high}")


class Compared(str, Enum):
    """How two trainings were compared."""

    BITS = "bit for bit"  # losses of all steps and the final parameters
    LOCKSTEP = "in lockstep"  # gradients from the same state, within the envelope of rounding
    SEEDS = "against the seeds' band"  # losses within the band of runs that differ only by seed
    CURVES = "curves shown"  # the training is meant to change; nothing is judged


@dataclass(frozen=True, slots=True)
class Equality:
    """Whether the training stayed the same under a remedy.

    Attributes:
        held: whether it did, as far as *how* asks.
        because: one sentence with the numbers, as ``240 losses and the parameters are equal bit for bit over 3 epochs``.
        told: False where what was captured tells neither: no losses, too few seeds.
    """

    how: Compared
    held: bool
    because: str
    told: bool = True

    def __post_init__(self) -> None:
        if self.held and not self.told:
            raise ValueError("what is not told did not hold")


@dataclass(frozen=True, slots=True)
class Tried:
    """One value of a knob and how it did in the search; the search's times prove nothing, they choose."""

    value: int
    ratio: float


class Outlook(str, Enum):
    """What a screening says of a remedy; none of it is proved."""

    PROMISING = "promising"  # a gain shows: fresh pairs are made
    FUTILE = "futile"  # its gain is surely below what pays: no pairs are made
    NOT_TOLD = "not told"  # fresh pairs are made, as without a screening


@dataclass(frozen=True, slots=True)
class Screening:
    """What blocks inside one running training, without and with the remedy in turns, show of it.

    Attributes:
        ratio: of the best value, over the rounds of neighbouring blocks (its `pairs`); None where there are too few.
        blocks: that were compared. seed: of the order of the blocks.
        tried: values of the knob, each by its rounds; empty without a knob.
        because: why nothing is told, or "".
    """

    outlook: Outlook
    ratio: Ratio | None = None
    blocks: int = 0
    seed: int = 0
    tried: tuple[Tried, ...] = ()
    because: str = ""

    def __post_init__(self) -> None:
        if self.outlook is not Outlook.NOT_TOLD and self.ratio is None:
            raise ValueError(f"a screening that says {self.outlook.value} has a ratio")


@dataclass(frozen=True, slots=True)
class Proof:
    """What the trials of one remedy show.

    Attributes:
        cause: id of the finding's cause; where: its place in words, as ``train.py:41``.
        remedy: as it was tried, the knob at the value that was chosen.
        ratio: by *measure*; None where no pair could be compared. start, step: those of the two measures by themselves.
        predicted_low, predicted_high: the speed-up that was claimed before; None where nothing was.
        p: probability of so large a difference between equal arms, one-sided, as if looked at once; None without pairs.
        pays_after: steps after which a dearer start has paid itself back; None where the start is not dearer.
        discarded: trials left out because the machine was disturbed.
        because: what the verdict rests on, or what it would take; "" where the ratio says it all.
        screening: what came before the pairs, or in their place; None where there was none. None of it enters *ratio*.

    Raises:
        ValueError: FASTER without an equality that held, or without pairs.
    """

    cause: str
    where: str
    remedy: Remedy
    verdict: Verdict
    measure: Measure
    ratio: Ratio | None = None
    start: Ratio | None = None
    step: Ratio | None = None
    equality: Equality | None = None
    tried: tuple[Tried, ...] = ()
    predicted_low: float | None = None
    predicted_high: float | None = None
    p: float | None = None
    pays_after: int | None = None
    discarded: int = 0
    because: str = ""
    screening: Screening | None = None

    def __post_init__(self) -> None:
        if self.verdict is Verdict.FASTER and (self.equality is None or not self.equality.held):
            raise ValueError(f"{self.remedy.id}: nothing is called faster that did not train the same")
        if self.verdict is Verdict.FASTER and self.ratio is None:
            raise ValueError(f"{self.remedy.id}: nothing is called faster without pairs")


@dataclass(frozen=True, slots=True)
class Untried:
    """A remedy that was not tried, or a finding without one that can be, and why."""

    cause: str
    where: str
    title: str
    because: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that any fix of one layer can give: from trials in which the layer costs nothing and trains nothing right.

    Attributes:
        layer: as ``input``; removed: what was taken away, in words.
        alone: a step as it is over one without the layer. others_removed: the same where the other layers are taken away
            from both, since of two that run at once each alone saves nothing. None where it cannot be told.
        because: why something is not told, or what the ratios rest on; "" where they say it all.
    """

    layer: str
    removed: str
    alone: Ratio | None = None
    others_removed: Ratio | None = None
    because: str = ""


@dataclass(frozen=True, slots=True)
class Hours:
    """What the kept remedies give over the job, from what was proved.

    Attributes:
        now, then, then_low, then_high: hours of the job today and with the kept remedies.
        saved_money: in the user's currency; None where no price was given.
    """

    now: float
    then: float
    then_low: float
    then_high: float
    saved_money: float | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """What `unstall fix` arrived at.

    Attributes:
        first, last: the explained run before any remedy and with all kept ones; the same where none was kept.
        noise: usual difference between two equal runs, a share of the step; None where no two were made.
        proofs: in the order of the trials; kept: those remedies that stay, in the order they were kept.
        total: the original against all kept remedies, by *measure*, from fresh pairs of its own; None where none was kept.
        patch: what `git apply` takes; "" where no source changes. patch_file: where it was written, or "".
        apply_with: the shell command that applies it, to be given in the working folder; "" for ``git apply PATCH_FILE``.
        exports: environment variables to start the command with.
        applied: files that were changed on the user's word.
        spent_ns: wall time of everything, trials: how many were made, discarded: how many were left out.
        notes: what the user is to know about how the trials were made.
        interrupted: whether it was ended before it was through, by Ctrl-C or the budget, and which.
        folder: where its state lies, to resume.
        bounds: the most that any fix of a layer can give; empty where not asked for.
    """

    command: tuple[str, ...]
    first: Report
    last: Report
    noise: float | None
    proofs: tuple[Proof, ...]
    kept: tuple[Remedy, ...]
    untried: tuple[Untried, ...]
    total: Ratio | None
    measure: Measure
    patch: str
    patch_file: str
    exports: Mapping[str, str]
    applied: tuple[str, ...]
    hours: Hours | None
    spent_ns: int
    trials: int
    discarded: int
    notes: tuple[str, ...]
    interrupted: str
    folder: str
    apply_with: str = ""
    bounds: tuple[Bound, ...] = ()
