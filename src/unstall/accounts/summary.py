"""Sum the ledger up for a report: the steady step by phase and activity, what lies outside, the ranks, the projection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unstall.model.finding import Finding, Scope
from unstall.model.ledger import Activity, Ledger, Phase
from unstall.model.report import Job, Projection, RankSummary, Share, StepTimes
from unstall.model.run import Run
from unstall.model.steps import Steps
from unstall.model.tables import Cores

LEAST_STARVED = 0.1  # of the steady time; below it the machine is shared as machines are
LEAST_OTHERS = 0.5  # cores that other programs keep busy
CROWDED = 1.5  # threads a core; from there on the training is in its own way
LEAST_PART = 0.003  # of the step; smaller activities are summed up as "other"
NAMES = {
    Activity.COMPUTE: "compute", Activity.LOAD: "loading", Activity.WAIT_DATA: "waiting for data", Activity.COPY: "copying",
    Activity.COMPILE: "compiling", Activity.GUARD: "guards", Activity.LAUNCH: "launching", Activity.SYNC: "synchronising",
    Activity.COLLECTIVE: "collectives", Activity.GC: "garbage collection", Activity.IO: "input/output", Activity.PYTHON: "python",
    Activity.STARVED: "starved of CPU", Activity.UNKNOWN: "unknown",
}  # fmt: skip
BOUND = {
    Phase.FETCH: "bound by data", Phase.FORWARD: "bound by the forward pass", Phase.BACKWARD: "bound by the backward pass",
    Phase.OPTIMIZER: "bound by the optimizer", Phase.BETWEEN: "bound by what the loop does between its passes",
    Phase.CHECKPOINT: "bound by checkpoints", Phase.EVALUATE: "bound by evaluation",
}  # fmt: skip


def step_times(steps: Steps) -> StepTimes | None:
    if not steps.steady_S.any():
        return None
    length = steps.length_S[steps.steady_S]
    p10, median, p90 = _quantiles(length, steps.weight_S[steps.steady_S], (0.1, 0.5, 0.9))
    return StepTimes(int(p10), int(median), int(p90))


def _quantiles(values: NDArray[np.float64], weights: NDArray[np.integer], at: Sequence[float]) -> NDArray[np.float64]:
    """Return the quantiles of *values*, each of which counts *weights* times; linear between two, as numpy's."""
    order = np.argsort(values)
    upto = np.cumsum(weights[order], dtype=np.int64)
    place = np.array(at) * (upto[-1] - 1)
    below, above = (
        values[order][np.searchsorted(upto, side.astype(np.int64), side="right")]
        for side in (np.floor(place), np.ceil(place))
    )
    return np.asarray(below + (above - below) * (place - np.floor(place)))


def step_parts(ledger: Ledger, steps: Steps, ranks: int) -> tuple[Share, ...]:
    """Return the mean steady step by phase, in the order of the loop, each by activity."""
    count = max(1, steps.steady_count * ranks)
    inside = ledger.rows(steps=steps.steady)
    whole = max(1, int(ledger.ns[inside].sum()))
    parts = []
    for phase in Phase:
        of_phase = inside & (ledger.phase == phase)
        spent = int(ledger.ns[of_phase].sum())
        if spent:
            parts.append(
                Share(phase.name.lower(), spent // count, spent / whole, _activities(ledger, of_phase, count, whole))
            )
    return tuple(parts)


def _activities(ledger: Ledger, rows: NDArray[np.bool_], count: int, whole: int) -> tuple[Share, ...]:
    found, small = [], 0
    for activity in Activity:
        spent = int(ledger.ns[rows & (ledger.activity == activity)].sum())
        if spent >= LEAST_PART * whole:
            found.append(Share(NAMES[activity], spent // count, spent / whole))
        else:
            small += spent
    if small and not found:
        found.append(Share("other", small // count, small / whole))
    return tuple(sorted(found, key=lambda part: -part.ns))


def outside(ledger: Ledger, steps: Steps, wall_ns: int) -> tuple[Share, ...]:
    """Return what lies outside the steady steps, rank 0, over the whole run."""
    within = np.isin(ledger.step, steps.steady) & (ledger.rank == 0)
    warm = (ledger.step >= 0) & ~within & (ledger.rank == 0)
    rest = (ledger.step < 0) & (ledger.rank == 0)
    parts = [
        ("start-up", rest & (ledger.phase == Phase.STARTUP)),
        ("warm-up steps", warm),
        ("evaluation", rest & (ledger.phase == Phase.EVALUATE)),
        ("checkpoint", rest & (ledger.phase == Phase.CHECKPOINT)),
        ("after the last step", rest & ~np.isin(ledger.phase, (Phase.STARTUP, Phase.EVALUATE, Phase.CHECKPOINT))),
    ]
    shares = [
        Share(name, int(ledger.ns[rows].sum()), int(ledger.ns[rows].sum()) / max(1, wall_ns)) for name, rows in parts
    ]
    return tuple(share for share in shares if share.ns)


def bound_by(parts: Sequence[Share]) -> str:
    """Return what bounds the step, and what would be left without it; `unstall fix --bounds` measures that."""
    if not parts:
        return "No steady step was seen."
    largest = max(parts, key=lambda part: part.ns)
    rest = sum(part.ns for part in parts) - largest.ns
    what = next(
        (words for phase, words in BOUND.items() if phase.name.lower() == largest.name), "bound by " + largest.name
    )
    first = largest.parts[0].name if largest.parts else "time"
    if not rest:
        return f"{what[0].upper()}{what[1:]}. {largest.name.capitalize()} takes the whole step, most of it {first}."
    times = f"{sum(part.ns for part in parts) / rest:.1f}x"
    return (
        f"{what[0].upper()}{what[1:]}. {largest.name.capitalize()} takes {largest.share:.0%} of the step, most of it {first}; "
        f"without it {rest / 1e6:.3g} ms would be left: {times}."
    )


def starved(ledger: Ledger, steps: Steps, cores: Cores, threads: float) -> str:
    """Return a sentence where other programs kept the training from the CPU, or "".

    It is the machine's matter and no fault of the script, so it is no finding. n cores that others keep busy can hold a
    step up for n times its length at most; a training with more threads than cores crowds itself out, which is a cause of its own.
    """
    others = cores.others_busy or 0.0
    whole = ledger.total_ns(steps=steps.steady)
    if others < LEAST_OTHERS or threads * cores.ranks_here > CROWDED * cores.usable or not whole:
        return ""
    share = min(ledger.total_ns(steps=steps.steady, activity=Activity.STARVED) / whole, others)
    if share < LEAST_STARVED:
        return ""
    return (
        f"for {share:.0%} of the steady time the training was ready to run and had no CPU: other programs kept {others:.1f} of "
        f"{cores.usable:g} cores busy. The script is not to blame; measure again on a quiet machine before anything is changed"
    )


def rank_summaries(ledger: Ledger, steps: Steps, run: Run) -> tuple[RankSummary, ...]:
    """Return one line a rank; empty for a single one."""
    if len(run.ranks) < 2 or not steps.steady_S.any():
        return ()
    found = []
    for r, rank in enumerate(run.ranks):
        waits = _by_step(ledger, steps, r, Activity.COLLECTIVE)
        length = (steps.end_SR - steps.start_SR)[steps.steady_S, r]
        found.append(
            RankSummary(rank.rank, int(np.median(length)), int(np.median(length - waits)), int(np.median(waits)))
        )
    return tuple(found)


def _by_step(ledger: Ledger, steps: Steps, rank: int, activity: Activity) -> NDArray[np.int64]:
    spent = np.zeros(steps.start_SR.shape[0], np.int64)
    rows = ledger.rows(rank=rank, activity=activity) & (ledger.step >= 0)
    np.add.at(spent, ledger.step[rows], ledger.ns[rows])
    return spent[steps.steady_S]


def project(job: Job, step_ns: int, outside_ns: int, findings: Sequence[Finding]) -> Projection | None:
    """Return the job's hours now and what the findings' remedies are predicted to save, or None where its length is not known."""
    if not step_ns or (job.hours is None and job.steps is None):
        return None
    hours = job.hours if job.hours is not None else (outside_ns + (job.steps or 0) * step_ns) / 3.6e12
    low = high = 0.0
    for finding in findings:
        if finding.saving is not None and finding.scope is Scope.STEADY and finding.fault:
            low = max(low, finding.saving.low_ns / step_ns)
            high += finding.saving.high_ns / step_ns
    saved_low, saved_high = hours * min(low, 0.99), hours * min(high, 0.99)
    price = job.price_per_hour
    money = (None, None) if price is None else (saved_low * price, saved_high * price)
    return Projection(hours, saved_low, saved_high, *money)
