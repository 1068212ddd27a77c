"""Which remedies are worth a trial, in which order, and by which time their trials are judged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from unstall.model.finding import Environment, Finding, Line, Operator, Saving, Scope, Where
from unstall.model.remedy import Remedy, Safety
from unstall.model.report import Report
from unstall.model.trial import Measure, Untried

LEAST_GAIN = 0.02  # of what the measure covers; what gains less is not told from noise in a few pairs


@dataclass(frozen=True, slots=True)
class Worth:
    """A remedy to try.

    Attributes:
        where: place of its finding in words; measure: the time it is judged by.
        predicted_low, predicted_high: speed-up of the measured time that was claimed; None where nothing was.
    """

    cause: str
    where: str
    remedy: Remedy
    measure: Measure
    predicted_low: float | None
    predicted_high: float | None


@dataclass(frozen=True, slots=True)
class Asked:
    """Which remedies the user lets us try, and which are through already.

    Attributes:
        only, skip: ids of causes; all where *only* is empty. done: ids of remedies.
    """

    allow: Collection[Safety]
    only: Collection[str] = ()
    skip: Collection[str] = ()
    done: Collection[str] = ()

    def wants(self, cause: str) -> bool:
        """Return whether remedies of *cause* are to be tried."""
        return (not self.only or cause in self.only) and cause not in self.skip


def worth_trying(report: Report, asked: Asked) -> tuple[tuple[Worth, ...], tuple[Untried, ...]]:
    """Return the remedies of the report's faults that are worth a trial, the largest gain first, and why others are not.

    What is worth a trial goes by what the cause's arithmetic claims: calibrated bounds reach far for small gains as well.
    Those of candidates come last: nothing is claimed of them.
    """
    gains: list[tuple[float, Worth]] = []
    untried: list[Untried] = []
    for finding, remedies in zip(report.findings, report.remedies, strict=False):
        if not finding.fault or not asked.wants(finding.cause):
            continue
        measure = measure_of(finding)
        low, high = predicted(report, finding, measure)
        _, most = claimed(report, finding, measure)
        for remedy in remedies:
            why = _why_not(remedy, asked, most)
            if remedy.id in asked.done:
                continue
            if why:
                untried.append(Untried(finding.cause, place(finding.where), remedy.title, why))
            else:
                gains.append((most or 1.0, Worth(finding.cause, place(finding.where), remedy, measure, low, high)))
        if not remedies:
            untried.append(Untried(finding.cause, place(finding.where), finding.title, "no remedy is known for it"))
    worth = [one for _, one in sorted(gains, key=lambda gain: -gain[0])]
    for candidate in report.candidates:
        where = place(candidate.where)
        for remedy in candidate.remedies if asked.wants(candidate.cause) else ():
            if remedy.id in asked.done:
                continue
            if why := _why_not(remedy, asked, None):
                untried.append(Untried(candidate.cause, where, remedy.title, why))
            else:
                worth.append(Worth(candidate.cause, where, remedy, Measure.STEP, None, None))
    return tuple(worth), tuple(untried)


def measure_of(finding: Finding) -> Measure:
    """Return the time that trials of the finding's remedies are judged by."""
    return Measure.START if finding.scope is Scope.STARTUP else Measure.STEP


def predicted(report: Report, finding: Finding, measure: Measure) -> tuple[float | None, float | None]:
    """Return the predicted speed-up (low, high) of the measured time, calibrated; None where nothing is claimed."""
    return _speedups(report, finding, finding.saving, measure)


def claimed(report: Report, finding: Finding, measure: Measure) -> tuple[float | None, float | None]:
    """Return the same by the cause's arithmetic alone."""
    return _speedups(report, finding, finding.saving and finding.saving.claimed, measure)


def _speedups(
    report: Report, finding: Finding, saving: Saving | None, measure: Measure
) -> tuple[float | None, float | None]:
    if saving is None:
        return None, None
    low, high = saving.low_ns, saving.high_ns
    if finding.scope is Scope.STEADY:
        whole = report.mean_step_ns
    elif measure is Measure.START:
        whole = report.wall_ns
    else:  # now and then: spread over the steps
        low, high, whole = low // max(1, report.steps), high // max(1, report.steps), report.mean_step_ns
    return _speedup(whole, low), _speedup(whole, high)


def place(where: Where) -> str:
    """Return where a finding is, in words: ``train.py:41``."""
    if isinstance(where, Line):
        return f"{where.file}:{where.line}" if where.file else "the training"
    if isinstance(where, Environment):
        return where.variable
    return where.name if isinstance(where, Operator) else type(where).__name__.lower()


def _speedup(whole_ns: int, saved_ns: int) -> float | None:
    return whole_ns / (whole_ns - saved_ns) if 0 <= saved_ns < whole_ns else None


def _why_not(remedy: Remedy, asked: Asked, high: float | None) -> str:
    if not remedy.edits:
        return remedy.why or "it has to be changed by hand"
    if remedy.safety not in asked.allow:
        return "it changes the training; --allow changes-training lets it be tried"
    if high is not None and high < 1 + LEAST_GAIN:
        return f"it would gain under {LEAST_GAIN:.0%}"
    return ""
