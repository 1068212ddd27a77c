"""The most that any fix of a layer can give: trials in which the layer costs nothing, beside trials of the run as it is.

An *arm* is a set of layers that are taken away. Each layer is taken from the run as it is (alone) and from the run without
the other layers (others removed): two bottlenecks that run at once save nothing one by one. Arms are made in rounds, one
trial of each, and two arms of one round are a pair.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from unstall.accounts.summary import NAMES
from unstall.launch.command import alone
from unstall.model.finding import Finding
from unstall.model.ledger import Activity
from unstall.model.remedy import SetEnvironment
from unstall.model.report import Report
from unstall.model.trial import Bound, Measure, Ratio, Trial
from unstall.pipeline._asked import FixOptions
from unstall.pipeline.length import MOST_SHARE, Length, length_of
from unstall.pipeline.pairs import Pair, Pairs
from unstall.pipeline.proving import Clock, tell
from unstall.pipeline.trial import Ask, Bench
from unstall.readers import recording as reader
from unstall.trials.worth import claimed, measure_of, place

BUDGET_SHARE = 1 / 4  # of the budget, for all bounds together
LEAST_SHARE = 0.02  # of the step; a layer that takes less cannot give more
LEAST_ROUNDS, MOST_ROUNDS = 3, 4  # a ceiling needs no more
UNCOMPILED = SetEnvironment("TORCH_COMPILE_DISABLE", "1")
Arm = frozenset[str]
AS_IT_IS: Arm = frozenset()


@dataclass(frozen=True, slots=True)
class Layer:
    """What can be taken away.

    Attributes:
        phases: that it is a part of. removed: what is taken away, in words.
        untouched: why nothing was, where the trial says so.
        activity: the part of the phases that it is; "" for all of them.
    """

    name: str
    phases: tuple[str, ...]
    removed: str
    untouched: str = ""
    activity: str = ""

    def share(self, report: Report) -> float:
        """Return how much of the step the layer takes."""
        mine = [part for part in report.step_parts if part.name in self.phases]
        if not self.activity:
            return sum(part.share for part in mine)
        return sum(inner.share for part in mine for inner in part.parts if inner.name == self.activity)


INPUT = Layer(
    "input",
    ("fetch",),
    "the loop gets its first batch again and again, and nothing is fetched",
    "not observed: it could not be told what makes the batches, or how many an epoch has",
)
EVALUATION = Layer(
    "evaluation",
    ("evaluate",),
    "a loader that evaluates ends after two batches",
    "not observed: no loader evaluated with gradients off within the steps of a trial; more --steps may reach it",
)
CHECKPOINT = Layer(
    "checkpoint",
    ("checkpoint",),
    "torch.save, safetensors and torch.distributed.checkpoint write nothing",
    "not observed: none was written by these within the steps of a trial; more --steps may reach one",
)
LOGGING = Layer(
    "logging",
    ("forward", "backward", "optimizer", "between"),
    "print, loggers, SummaryWriter, wandb and progress bars say nothing in the loop",
    "not observed: nothing was said by these within the steps of a trial",
    NAMES[Activity.IO],
)
RANKS = Layer(
    "ranks",
    ("fetch", "forward", "backward", "optimizer", "between"),
    "one rank trains alone, waits for no other, and has the cores of all",
    activity=NAMES[Activity.COLLECTIVE],
)
COMPILE = Layer(
    "compile", ("forward", "backward"), "nothing is compiled; a ratio below 1 means that compiling pays"
)  # fmt: skip


def compiles(report: Report) -> bool:
    """Return whether something is compiled in the run that *report* is of.

    Raises:
        UnstallError: When its recording cannot be read any more.
    """
    ranks = reader.read(Path(report.recording)).ranks if report.recording else ()
    return any(not asked.flag("off") for rank in ranks for asked in rank.facts.family("compile").values())


def layers_of(report: Report, compiled: bool) -> tuple[Layer, ...]:
    """Return the layers that take at least 2 % of the step, the largest first; what compiling gives only where *compiled*.

    What ranks wait for each other only where it is known how one is started alone.
    """
    taken = {layer: layer.share(report) for layer in (INPUT, EVALUATION, CHECKPOINT, LOGGING, RANKS, COMPILE)}
    known = {COMPILE: compiled, RANKS: alone(report.command) is not None}
    found = [layer for layer, share in taken.items() if share >= LEAST_SHARE and known.get(layer, True)]
    return tuple(sorted(found, key=lambda layer: -taken[layer]))


@dataclass
class Bounding:
    """Measures the bounds of one run.

    Attributes:
        compiled: whether something is compiled in the run.
        layers: that are still measured; with_others: whether the budget allows for taking each from the run without the others.
        because: by layer, why its bound cannot be told.
        rounds: the trials of each. failed: arms that broke the run, with its error.
    """

    bench: Bench
    options: FixOptions
    clock: Clock
    report: Report
    compiled: bool = False
    layers: list[Layer] = field(default_factory=list)
    with_others: bool = True
    because: dict[str, str] = field(default_factory=dict)
    rounds: list[dict[Arm, Trial]] = field(default_factory=list)
    failed: dict[Arm, str] = field(default_factory=dict)
    ask: Ask = field(default_factory=Ask)
    way: str = INPUT.name  # in which the input is taken away, by the names of `probes/trial/ablating.py`
    start_s: float = 0.0

    def go(self) -> None:
        """Make the trials.

        Raises:
            Interrupted: When the user ended it; `bounds` tells what was known by then.
        """
        self.layers = list(layers_of(self.report, self.compiled))
        if CHECKPOINT in self.layers and self.options.workdir == "same":
            self._drop(
                CHECKPOINT, "trials run in the folder itself (--workdir same), where empty checkpoints would stay"
            )
        length = self._planned()
        if length is None:
            return
        self.ask = Ask(steps=length.steps, seed=self.options.seed, limit_s=length.limit_s)
        self.start_s, patience_s = time.monotonic() - self.bench.waited_s, self.bench.patience_s
        self.bench.patience_s = self.bench.waited_s + (patience_s - self.bench.waited_s) * BUDGET_SHARE
        try:
            for number in range(MOST_ROUNDS):
                if not self.layers or not self._affords(length):
                    return
                self._round(number)
        finally:
            self.bench.patience_s = patience_s

    # ------------------------------------------------------------ which trials

    def _planned(self) -> Length | None:
        """Choose what the share of the budget allows for, and return how long trials are; None where for nothing."""
        plans = [(len(self.layers), True), *((count, False) for count in range(len(self.layers), 0, -1))]
        for count, with_others in plans if self.layers else ():
            self.with_others = with_others
            arms = len(self._arms(self.layers[:count]))
            length = self._length(arms)
            if length.expected_s * LEAST_ROUNDS * arms <= self._budget_s:
                for layer in self.layers[count:]:
                    self._drop(layer, self._too_dear(length.expected_s))
                return length
        for layer in list(self.layers):
            self._drop(layer, self._too_dear(self._length(2).expected_s))
        return None

    def _length(self, arms: int) -> Length:
        """Return how long trials are, so that the fewest rounds of so many *arms* fit where they can."""
        each_s = self._budget_s / (LEAST_ROUNDS * arms)
        periodic = CHECKPOINT in self.layers or EVALUATION in self.layers
        return length_of(self.report, Measure.STEP, periodic, replace(self.options, budget_s=each_s / MOST_SHARE))

    @property
    def _budget_s(self) -> float:
        return self.clock.budget_s * BUDGET_SHARE

    def _too_dear(self, trial_s: float) -> str:
        return f"a trial takes {trial_s:.0f} s, and bounds may take {self._budget_s:.0f} s in all; a larger --budget would do"

    def _affords(self, length: Length) -> bool:
        """Return whether one more round ends within the share of the budget, as long as trials have taken so far.

        What they waited for other programs is no part of it: there is a share of its own for that.
        """
        made = [trial.wall_ns / 1e9 for trials in self.rounds for trial in trials.values()]
        each_s = sum(made) / len(made) if made and sum(made) else length.expected_s
        spent_s = time.monotonic() - self.bench.waited_s - self.start_s
        return spent_s + each_s * len(self._arms(self.layers)) <= self._budget_s

    def _arms(self, layers: Sequence[Layer]) -> list[Arm]:
        arms = [arm for layer in layers for pair in (self._alone(layer), self._others(layer, layers)) for arm in pair]
        return list(dict.fromkeys(arms))

    def _alone(self, layer: Layer) -> tuple[Arm, Arm]:
        return AS_IT_IS, frozenset([layer.name])

    def _others(self, layer: Layer, layers: Sequence[Layer]) -> tuple[Arm, ...]:
        """Return the run without the other layers, and without this one too; nothing where there are no others.

        Not compiling is no saving, so the other bounds are of the run as it is compiled.
        """
        others = frozenset(one.name for one in layers if one is not COMPILE and one is not layer)
        return (others, others | {layer.name}) if others and self.with_others else ()

    # ------------------------------------------------------------ making them

    def _round(self, number: int) -> None:
        """Make one trial of each arm; every second round in the order of the one before turned around, against drift."""
        arms = self._arms(self.layers)
        random.Random(number // 2).shuffle(arms)
        if number % 2:
            arms.reverse()
        if not number:  # what is taken away, and how, depends on what the run as it is does
            arms.remove(AS_IT_IS)
            arms.insert(0, AS_IT_IS)
        self.rounds.append({})
        for arm in arms:
            dropped = any(name in self.because for name in arm)
            if self.layers and not dropped and arm not in self.failed:
                self._make(number, arm)

    def _make(self, number: int, arm: Arm) -> None:
        self._tell(number, arm)
        probed = sorted(arm - {COMPILE.name, RANKS.name})
        names = tuple(self.way if name == INPUT.name else name for name in probed)
        edits = (UNCOMPILED,) if COMPILE.name in arm else ()
        trial = self.bench.make(replace(self.ask, edits=edits, ablate=names, alone=RANKS.name in arm))
        if trial.error:
            self._fail(arm, trial.error)
            return
        self.rounds[-1][arm] = trial
        if arm == AS_IT_IS and not number:
            self._look(trial)
        for layer in list(self.layers):
            if arm == {layer.name} and layer.untouched and not trial.captured.ablated.get(layer.name):
                self._drop(layer, layer.untouched)

    def _look(self, trial: Trial) -> None:
        """Choose how the input is taken away, from the first trial of the run as it is."""
        if not trial.captured.through_loader:
            self.way = "input-maker"
        elif not trial.captured.epochs:  # no trial comes to the end of an epoch, so none needs to know where it is
            self.way = "input-endless"
            self.ask = replace(self.ask, steps=min(self.ask.steps or trial.end_S.size, trial.end_S.size))

    def _fail(self, arm: Arm, error: str) -> None:
        said = error.strip().splitlines()
        last = f"{said[0]}: {said[-1].strip()}" if len(said) > 1 else "".join(said)
        self.failed[arm] = last
        for layer in list(self.layers):
            if arm in (AS_IT_IS, {layer.name}):
                with_it = "the run as it is" if arm == AS_IT_IS else "the run without it"
                self._drop(layer, f"{with_it} failed: {last}")

    def _drop(self, layer: Layer, because: str) -> None:
        self.because[layer.name] = because
        self.layers.remove(layer)

    def _tell(self, number: int, arm: Arm) -> None:
        what = f"bounds: without {' and '.join(sorted(arm))}" if arm else "bounds: the run as it is"
        tell(self.options, self.clock, what, number, MOST_ROUNDS)

    # ------------------------------------------------------------ what they show

    def bounds(self) -> tuple[Bound, ...]:
        """Return the bound of each layer that was to be measured, or why it cannot be told."""
        return tuple(self._bound(layer) for layer in layers_of(self.report, self.compiled))

    def _bound(self, layer: Layer) -> Bound:
        if because := self.because.get(layer.name):
            return Bound(layer.name, layer.removed, because=because)
        alone, why = self._ratio(*self._alone(layer))
        pair = self._others(layer, self.layers)
        others, why_others = self._ratio(pair[0], pair[1]) if pair else (None, "")
        if why_others and why_others != why:
            why_others = f"with the others removed: {why_others}"
        because = "; ".join(dict.fromkeys(reason for reason in (why, why_others) if reason))
        return Bound(layer.name, layer.removed, alone, others, because)

    def _ratio(self, base: Arm, without: Arm) -> tuple[Ratio | None, str]:
        """Return a step of *base* over one of *without*, and why it cannot be told or what it rests on."""
        for arm in (base, without):
            if arm in self.failed:
                return None, f"the run without {' and '.join(sorted(arm))} failed: {self.failed[arm]}"
        made = [Pair(trials[base], trials[without]) for trials in self.rounds if base in trials and without in trials]
        if len(made) < LEAST_ROUNDS:
            return None, f"{len(made)} of {LEAST_ROUNDS} rounds of trials ended within the time for bounds"
        pairs = Pairs(self.bench, (), (), self.ask, Measure.STEP, False, made)
        pairs.shared = sum(not pair.disturbed for pair in made) < LEAST_ROUNDS
        ratio = pairs.ratio()
        if ratio is not None:
            return ratio, pairs.about_load()
        return None, "the steps of a trial are too few, or their length never settles"

    def notes(self) -> Iterator[str]:
        """Yield what is to be said of the bounds: that there are none, and predictions that promise more than they allow."""
        bounds = {bound.layer: bound for bound in self.bounds()}
        if not bounds:
            named = "the input, evaluation, checkpoints and logging"
            yield f"No bound was measured: none of {named} takes {LEAST_SHARE:.0%} of a step."
        for finding in self.report.findings:
            bound = bounds.get(_layer_of(finding))
            _, high = claimed(self.report, finding, Measure.STEP)
            if bound is not None and bound.alone is not None and high is not None and high > bound.alone.high:
                yield (
                    f"{finding.cause} ({place(finding.where)}) predicts up to {high:.2f}x, more than a free {bound.layer} gives "
                    f"by itself: {bound.alone.value:.2f}x (95 % {bound.alone.low:.2f}-{bound.alone.high:.2f})."
                )


def _layer_of(finding: Finding) -> str:
    """Return the layer that all the time of *finding*, a fault of the step, lies in; "" where none does."""
    phases = {stake.phase.name.lower() for stake in finding.stakes}
    if not finding.fault or not phases or measure_of(finding) is not Measure.STEP:
        return ""
    return next((layer.name for layer in (INPUT, EVALUATION, CHECKPOINT) if phases <= {*layer.phases}), "")
