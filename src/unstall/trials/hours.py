"""Hours and money of a job with the kept remedies, from proved ratios; and when a dearer start has paid itself back."""

from __future__ import annotations

from unstall.model.report import Job
from unstall.model.trial import Hours, Ratio

HOUR_NS = 3_600_000_000_000  # ns in an hour


def hours(job: Job, *, start_ns: float, step_ns: float, step: Ratio, start: Ratio | None = None) -> Hours | None:
    """Return the job's length today and with the kept remedies; None where the job's length is not known.

    The job is one start and its steps, each shortened by its own proved ratio. The bounds take both ratios at their
    worst and at their best together, which is wider than an interval of 95 %, never narrower. A job that starts several
    times is not told by its length, so only one start is counted.

    Args:
        start_ns: from the spawn to the first step, today.
        step_ns: mean step of the job today, with the evaluations and checkpoints that belong to it.
        step, start: proved with all kept remedies against none; without *start* the start is taken to stay as it is.
    Raises:
        ValueError: When a time is below 0.
    """
    if start_ns < 0 or step_ns < 0:
        raise ValueError(f"times are expected to be 0 or more: start {start_ns} ns, step {step_ns} ns")
    starting = start_ns / HOUR_NS
    if job.hours is not None:
        starting = min(starting, job.hours)
        stepping = job.hours - starting
    elif job.steps is not None:
        stepping = job.steps * step_ns / HOUR_NS
    else:
        return None
    start = start or Ratio(value=1.0, low=1.0, high=1.0, pairs=step.pairs)
    now, then = starting + stepping, starting / start.value + stepping / step.value
    return Hours(
        now=now,
        then=then,
        then_low=min(starting / start.high + stepping / step.high, then),  # rounding must not turn the order around
        then_high=max(starting / start.low + stepping / step.low, then),
        saved_money=None if job.price_per_hour is None else (now - then) * job.price_per_hour,
    )


def pays_after(start_base_ns: float, start_remedy_ns: float, step_base_ns: float, step_remedy_ns: float) -> int | None:
    """Return the steps after which a dearer start has paid itself back, the first at which the remedy is no slower.

    None where the start is not dearer, so there is nothing to pay back, and where a step is not cheaper, so that it
    never is: which of the two is told by the start.
    """
    dearer, cheaper = start_remedy_ns - start_base_ns, step_base_ns - step_remedy_ns
    if dearer <= 0 or cheaper <= 0:
        return None
    return int(-(-dearer // cheaper))  # rounded up
