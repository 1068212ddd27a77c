"""The shared tables of `model/tables.py`, each computed when it is first read."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unstall.accounts import collectives as calls
from unstall.accounts import fusion as fusing
from unstall.accounts import happenings, holdings, lines, loading, making, native, recompute
from unstall.accounts import regions as compiled
from unstall.accounts import trend as trends
from unstall.accounts.code import line_at
from unstall.accounts.device import States
from unstall.accounts.device_use import device_use
from unstall.accounts.kernel import kernel_of, read_between
from unstall.accounts.label import Labelled
from unstall.accounts.segment import Segments
from unstall.accounts.windows import Windows, use_of
from unstall.model.device import DeviceUse
from unstall.model.finding import Line, Scope
from unstall.model.fusion import Fusion
from unstall.model.ledger import Ledger
from unstall.model.loading import BatchLine, LoaderUse, WorkerLine
from unstall.model.native import Build, Native
from unstall.model.regions import Entering
from unstall.model.remedy import Safety
from unstall.model.run import Facts, Place, Run
from unstall.model.tables import Collections, Collectives, Compile, Cores, HotLine, Kernel, Recomputed, Saves, Trend
from unstall.model.wire import Activity, Device, Phase


def _producers(facts: Facts) -> list[Place]:
    """Return the functions that make the batch, where there is no DataLoader."""
    sites = [producer.text("site") for producer in facts.family("producer").values()]
    return [place for site in sites if (place := Place.parse(site or "")) is not None]


class Evidence:
    """The tables of one run; satisfies `tables.Tables`."""

    def __init__(
        self,
        run: Run,
        segments: Segments,
        ledger: Ledger,
        labelled: tuple[Labelled | None, ...],
        states: tuple[States, ...] = (),
        seen: Windows | None = None,
    ) -> None:
        self._run, self._segments, self._ledger, self._labelled = run, segments, ledger, labelled
        self.states = states
        self._seen = seen

    @cached_property
    def steady_steps(self) -> int:
        return self._segments.steps.steady_count

    @cached_property
    def rank_steps(self) -> int:
        return max(1, self.steady_steps * len(self._run.ranks))

    @cached_property
    def step_ns(self) -> int:
        return int(self._segments.steps.usual_ns)

    @cached_property
    def steady_ns(self) -> int:
        return self._ledger.total_ns(steps=self._segments.steps.steady)

    @cached_property
    def steady_parts(self) -> dict[tuple[Phase, Activity], int]:
        found: dict[tuple[Phase, Activity], int] = {}
        for (phase, activity, _), ns in self.device_parts.items():
            found[phase, activity] = found.get((phase, activity), 0) + ns
        return found

    @cached_property
    def device_parts(self) -> dict[tuple[Phase, Activity, Device], int]:
        return dict(holdings.held(self._ledger, self._segments.steps)[Scope.STEADY])

    @cached_property
    def lines(self) -> tuple[HotLine, ...]:
        return self._hot(steady=True)

    @cached_property
    def outside_lines(self) -> tuple[HotLine, ...]:
        return self._hot(steady=False)

    def _hot(self, *, steady: bool) -> tuple[HotLine, ...]:
        in_steady = self._ledger.rows(steps=self._segments.steps.steady)
        inside = [within == steady for within in self._inside]
        rows = in_steady if steady else ~in_steady
        return lines.hot_lines(self._ledger, self._labelled, inside, rows, self._run.project)

    @cached_property
    def _inside(self) -> list[NDArray[np.bool_]]:
        """By rank bool (K,): the samples that lie in the steady steps."""
        return [self._within_steady(r) for r in range(len(self._labelled))]

    def _within_steady(self, r: int) -> NDArray[np.bool_]:
        samples, steps = self._labelled[r], self._segments.steps
        if samples is None or not steps.start_SR.shape[0]:
            return np.zeros(0 if samples is None else samples.at_ns.size, np.bool_)
        at = np.clip(np.searchsorted(steps.start_SR[:, r], samples.at_ns, side="right") - 1, 0, None)
        within = (samples.at_ns >= steps.start_SR[at, r]) & (samples.at_ns < steps.end_SR[at, r])
        return np.asarray(within & steps.steady_S[at], np.bool_)

    @cached_property
    def worker_lines(self) -> tuple[WorkerLine, ...]:
        return lines.worker_lines((s for rank in self._run.ranks for s in rank.worker_samples), self._run.project)

    @cached_property
    def batch_lines(self) -> tuple[BatchLine, ...]:
        training = [use for use in self.loaders if use.trains]
        function = next((use for use in training if use.number < 0), None)
        producer = None
        if function is not None and all(use.number < 0 for use in training):
            producer = next(
                (p for rank in self._run.ranks for p in _producers(rank.facts) if p.line == function.site.line), None
            )
        in_workers = bool(training) and bool(training[0].workers)
        samples = (s for rank in self._run.ranks for s in rank.worker_samples)
        return making.batch_lines(self._labelled, samples, in_workers, producer, self._run.project)

    @cached_property
    def loaders(self) -> tuple[LoaderUse, ...]:
        return loading.loaders(self._run.ranks[0], self._segments.steps, self._ledger, self._run.project)

    @cached_property
    def trend(self) -> Trend | None:
        return trends.trend(self._run.ranks[0], self._segments.steps, self._ledger)

    @cached_property
    def compiles(self) -> tuple[Compile, ...]:
        return happenings.compiles(self._run.ranks[0], self._segments.steps, self._run.project)

    @cached_property
    def fusion(self) -> Fusion | None:
        rows, facts = self._ledger.rows(steps=self._segments.steps.steady), self._run.ranks[0].facts
        return fusing.fusion(facts, self._labelled, self._inside, self._ledger, rows, self._run.project)

    @cached_property
    def builds(self) -> tuple[Build, ...]:
        return native.builds(self._run.ranks[0].facts, self._run.project)

    @cached_property
    def natives(self) -> tuple[Native, ...]:
        return native.natives(self._run.ranks[0].facts, self.lines, self._run.project)

    @cached_property
    def entering(self) -> Entering | None:
        rows, facts = self._ledger.rows(steps=self._segments.steps.steady), self._run.ranks[0].facts
        return compiled.entering(facts, self._labelled, self._inside, self._ledger, rows, self._run.project)

    @cached_property
    def recomputed(self) -> Recomputed | None:
        spent = sum(ns for (phase, _), ns in self.steady_parts.items() if phase is Phase.BACKWARD)
        return recompute.recomputed(self._labelled, self._inside, spent, self._run.project)

    @cached_property
    def collections(self) -> tuple[Collections, ...]:
        return happenings.collections(self._run.ranks[0], self._segments, self._run.project)

    @cached_property
    def saves(self) -> tuple[Saves, ...]:
        return happenings.saves(self._run.ranks[0], self._segments.steps, self._run.project)

    @cached_property
    def collectives(self) -> tuple[Collectives, ...]:
        return calls.collectives(self._run, self._segments, self._ledger)

    @cached_property
    def device(self) -> DeviceUse | None:
        if self._seen is not None:
            return use_of(self._seen, self._ledger, self._segments.steps)
        return device_use(self._run, self.states)

    @cached_property
    def backward_passes(self) -> int:
        return calls.backward_passes(self._run, self._segments)

    @cached_property
    def cores(self) -> Cores:
        run, steps = self._run, self._segments.steps
        usable = run.facts.number("machine.usable_cores") or 1.0
        gauges, ranks = run.ranks[0].gauges, len(run.ranks)
        if gauges is None:
            return Cores(usable, ranks)
        between = read_between(gauges, steps)
        if between is None:
            return Cores(usable, ranks)
        first, last = between
        wall = max(1, int(gauges.at_ns[last] - gauges.at_ns[first]))
        busy = float(gauges.team_cpu_ns[last] - gauges.team_cpu_ns[first]) / wall
        others = np.diff(gauges.others_cpu_ns[first : last + 1]) / np.maximum(
            1, np.diff(gauges.at_ns[first : last + 1])
        )
        steady = steps.steady
        total = self._ledger.total_ns(steps=steady, rank=0)
        waiting = self._ledger.total_ns(steps=steady, rank=0, activity=(Activity.WAIT_DATA, Activity.LOAD))
        starved = self._ledger.total_ns(steps=steady, rank=0, activity=Activity.STARVED)
        loading_cpu = self._loading_cpu_share(waiting, total)
        outside = max(0.0, busy - loading_cpu) / max(0.05, 1 - waiting / max(1, total))
        return Cores(
            usable, ranks, busy, min(usable, outside), max(0.0, float(np.median(others))), starved / max(1, total)
        )

    @cached_property
    def kernel(self) -> Kernel | None:
        return kernel_of(self._run.ranks[0].gauges, self._segments.steps)

    def _loading_cpu_share(self, waiting: int, total: int) -> float:
        """Return the mean CPUs that the training process itself spends on loading."""
        mine = [use for use in self.loaders if use.trains and not use.workers and use.batch_wall_ns]
        busy = sum(use.batch_team_cpu_ns / use.batch_wall_ns for use in mine)
        return busy * waiting / max(1, total)

    @cached_property
    def input_safety(self) -> Safety:
        training = [use for use in self.loaders if use.trains]
        kept = all(use.draws_random is False for use in training) and bool(training)
        return Safety.SAME_BITS if kept else Safety.SAME_DISTRIBUTION

    def set_at(self, name: str) -> Line | None:
        return fusing.set_at(name, self._run.ranks[0].facts, self._run.project)

    def place(self, text: str) -> Line | None:
        place = Place.parse(text)
        return line_at(place, self._run.project) if place is not None else None
