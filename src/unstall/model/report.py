"""The report: everything a view shows, computed and finished. Views add nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unstall.model.finding import Abstained, Candidate, Finding
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
class Report:
    """A finished account of one run.

    Attributes:
        command: the command, secrets redacted.
        steps, steady_steps: counts; warmup_steps: steps before the first steady one.
        step_ns: None where no steady step was seen.
        step_parts: the steady step by phase and activity; outside: time outside the steps, in the whole run.
        bound_by: one sentence: what bounds the step, and the most that fixing one phase could give.
        overhead_share: the recorder's own cost as a share of the step; overhead_how: how it was reckoned.
        findings: faults and information, in order; remedies: by index into *findings*.
        ledger: the whole account, or None where no process trained.
        machine_load: what else ran on the machine meanwhile, in words, as ``other programs kept 0.1 of 2 cores busy``; "" where
            not observed.
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
    overhead_share: float
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

    @property
    def mean_step_ns(self) -> int:
        """Mean of the steady steps, ns; what findings cost a step is a part of it. 0 where there is none."""
        return sum(part.ns for part in self.step_parts)
