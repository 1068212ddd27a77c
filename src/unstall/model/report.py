"""The report: everything a view shows, computed and finished. Views add nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.model.finding import Abstained, Candidate, Finding
from unstall.model.fusion import Graph
from unstall.model.ledger import Ledger
from unstall.model.remedy import Remedy
from unstall.model.run import Facts, Sensor


@dataclass(frozen=True, slots=True)
class Job:
    """How long the whole job is, as far as the user said.

    Attributes:
        steps: steps of the job; hours: its length at today's speed. At most one of them is given.
        price_per_hour: in the user's currency; never invented.
    """

    steps: int | None = None
    hours: float | None = None
    price_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """One line of the step's account: ns a steady step, by phase, then activity."""

    name: str
    ns: int
    share: float
    parts: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Wall time of the steady steps, ns."""

    p10: int
    median: int
    p90: int


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One rank beside the others: what it spends a step, and how long it waits for them.

    Attributes:
        own_ns: median step less the time in collectives; waits_ns: median time in collectives a step.
    """

    rank: int
    step_ns: int
    own_ns: int
    waits_ns: int


@dataclass(frozen=True, slots=True)
class Projection:
    """What the findings' remedies would give over the job, from predictions.

    Attributes:
        now_hours, saved_low_hours, saved_high_hours: hours; money likewise where a price was given.
    """

    now_hours: float
    saved_low_hours: float
    saved_high_hours: float
    saved_low_money: float | None = None
    saved_high_money: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """What the device did in the mean steady step of one rank.

    Attributes:
        states: compute, collective, copy and idle, each a share of the step, the parts of idle being why; together the step.
        by_phase: the same by the phase that the host was in meanwhile, in the order of the loop, without the reasons.
        critical: what the step's length is the sum of, the largest first: shares of the critical path.
        launches_per_step: pieces of work; launch_ns: host time of one launch call, median.
        dilation: as `trace.Trace.dilation`.
    """

    states: tuple[Share, ...]
    by_phase: tuple[Share, ...]
    critical: tuple[Share, ...]
    launches_per_step: float
    launch_ns: int
    dilation: float | None


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One profiler trace that a report was made from.

    Attributes:
        events: calls and pieces of device work read from it.
        span_ns: from the first to the last of them.
        cut_at: bytes read of a file that ends in the middle; None where it was whole.
    """

    path: str
    rank: int
    events: int
    span_ns: int
    cut_at: int | None = None


@dataclass(frozen=True, slots=True)
class Traced:
    """Where the report is of profiler traces, which cover a part of a run: what they cover.

    Attributes:
        files: by rank.
        told_by: how the steps were told, a clause that follows their number.
        missing_ranks: ranks of the job of which there is no trace.
    """

    files: tuple[TraceFile, ...]
    told_by: str
    missing_ranks: tuple[int, ...] = ()


Value = str | int | float | None  # of a cell; None where not known


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        name: with its unit where it has one, as ``exposed_ns``.
        unit: as of `finding.Evidence`; "" for text.
        wide: True for what is written to files only: too long to be read in a terminal.
    """

    name: str
    unit: str
    values: tuple[Value, ...]
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for analysts, the largest first; columns of one length."""

    name: str
    title: str
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if len({len(column.values) for column in self.columns}) > 1:
            raise ValueError(f"table {self.name}: its columns differ in length")

    @property
    def count(self) -> int:
        return len(self.columns[0].values)


@dataclass(frozen=True, slots=True)
class Track:
    """Labelled slices of one rank's time, in order and disjoint, N slices.

    Attributes:
        start_ns, end_ns: int64 (N,), on the rank's clock.
        label: int32 (N,), index into *labels*.
    """

    rank: int
    name: str
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    label: NDArray[np.int32]
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if (self.end_ns < self.start_ns).any() or (self.start_ns[1:] < self.end_ns[:-1]).any():
            raise ValueError(f"track {self.name}: its slices overlap or run backwards")


@dataclass(frozen=True, slots=True)
class Report:
    """A finished account of one run.

    Attributes:
        command: the command, secrets redacted.
        steps, steady_steps: counts; warmup_steps: steps before the first steady one.
        step_ns: None where no steady step was seen.
        step_parts: the steady step by phase and activity; outside: time outside the steps, in the whole run.
        bound_by: one sentence: what bounds the step, and the most that fixing one phase could give.
        overhead_share: the recorder's own cost as a share of the step, None where not known; overhead_how: how it was reckoned.
        findings: faults and information, in order; remedies: by index into *findings*.
        ledger: the whole account, or None where no process trained.
        machine_load: what else ran on the machine meanwhile, in words, as ``other programs kept 0.1 of 2 cores busy``; "" where
            not observed.
        device: None where it was not observed.
        traced: what the traces cover that the report is of; None for a live run.
        tables, tracks: empty unless asked for.
        graphs: what the compiler made of each graph of the first rank.
    """

    command: tuple[str, ...]
    exit_code: int
    stopped_by_us: bool
    stop_reason: str
    wall_ns: int
    rank_wall_ns: tuple[int, ...]
    steps: int
    steady_steps: int
    warmup_steps: int
    step_ns: StepTimes | None
    step_parts: tuple[Share, ...]
    outside: tuple[Share, ...]
    bound_by: str
    unknown_share: float
    edges_ns: int
    overhead_share: float | None
    overhead_how: str
    findings: tuple[Finding, ...]
    remedies: tuple[tuple[Remedy, ...], ...]
    candidates: tuple[Candidate, ...]
    abstained: tuple[Abstained, ...]
    warnings: tuple[str, ...]
    ranks: tuple[RankSummary, ...]
    observed: tuple[Sensor, ...]
    missing: Mapping[Sensor, str]
    facts: Facts
    job: Job
    projection: Projection | None
    ledger: Ledger | None
    recording: str = ""
    machine_load: str = ""
    device: DeviceSummary | None = None
    traced: Traced | None = None
    tables: tuple[Table, ...] = ()
    tracks: tuple[Track, ...] = ()
    graphs: tuple[Graph, ...] = ()

    @property
    def mean_step_ns(self) -> int:
        """Mean of the steady steps, ns; what findings cost a step is a part of it. 0 where there is none."""
        return sum(part.ns for part in self.step_parts)

    @property
    def start_ns(self) -> int:
        """Wall time that is no steady step, ns: mostly from the start to the first of them."""
        return max(0, self.wall_ns - self.steady_steps * self.mean_step_ns)
