"""How long a trial is: enough steps to compare, and no more than the budget lets many trials have."""

from __future__ import annotations

import math
from dataclasses import dataclass

from unstall.model.report import Report
from unstall.model.trial import Measure
from unstall.pipeline._asked import FixOptions
from unstall.pipeline.trial import MOST_STEPS

COMPARED_NS = 3_000_000_000  # steps that a trial compares take about so long together
LEAST_STEPS = 64  # that a trial compares: more than loaders hold ready, so that their head start shows as a warm-up
MOST_SHARE = 1 / 24  # of the budget, for one trial
SLACK_S = 60.0  # a trial may take so much longer, and four times what it is expected to


@dataclass(frozen=True, slots=True)
class Length:
    """How long a trial is.

    Attributes:
        steps: after which it is stopped; None to let it end by itself.
        expected_s: what it is expected to take.
    """

    steps: int | None
    expected_s: float

    @property
    def limit_s(self) -> float:
        return 4 * self.expected_s + SLACK_S


def length_of(report: Report, measure: Measure, periodic: bool, options: FixOptions) -> Length:
    """Return how long trials by *measure* are, given the explained run; *periodic* where the time comes now and then."""
    step_s = max(report.mean_step_ns, 1) / 1e9
    start_s = report.start_ns / 1e9
    by_itself = not report.stopped_by_us
    warm = max(report.warmup_steps, 3)
    if options.steps is not None:
        steps = warm + options.steps
    elif measure is Measure.START:
        steps = warm + LEAST_STEPS // 2
    elif periodic:
        steps = report.steps
    else:
        steps = warm + max(LEAST_STEPS, math.ceil(COMPARED_NS / 1e9 / step_s))
    if options.steps is None:
        most = int(max(0.0, options.budget_s * MOST_SHARE - start_s) / step_s)
        steps = min(steps, MOST_STEPS, max(most, warm + LEAST_STEPS // 2))
    whole = by_itself and steps >= report.steps
    return Length(None if whole else steps, start_s + min(steps, report.steps if by_itself else steps) * step_s)
