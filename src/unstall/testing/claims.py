"""What a finding claims to save, and of what: the time that is left without its fault, in bounds and as one number."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.accounts.calibration import Score, left, score_of, wholes, widened
from unstall.model.finding import Finding, Scope
from unstall.model.report import Report


@dataclass(frozen=True, slots=True)
class Claim:
    """What a finding claims, ms: *low_ms* to *high_ms* saved of *whole_ms*, as the cause's arithmetic gave it.

    Attributes:
        point_ms: the time that was allotted to it, which is what it says it takes; None where that was not kept.
    """

    cause: str
    scope: Scope
    whole_ms: float
    low_ms: float
    high_ms: float
    point_ms: float | None = None

    @property
    def left_ms(self) -> tuple[float, float]:
        """Bounds of the time that is left."""
        return left(self.whole_ms, self.low_ms, self.high_ms)

    def score(self, measured_ms: float) -> Score:
        """Return how far the time that is left was measured outside these bounds, in units of the claim."""
        return score_of(self.whole_ms, self.low_ms, self.high_ms, measured_ms)

    def widened(self, by: Score) -> tuple[float, float]:
        """Return these bounds moved apart by so many units, ms."""
        least, most = widened(self.whole_ms, self.low_ms, self.high_ms, by)
        return max(0.0, least), most

    @property
    def middle_ms(self) -> float:
        return sum(self.left_ms) / 2

    @property
    def told_ms(self) -> float:
        """The time that is left without what the finding takes; the middle of the bounds where that was not kept."""
        if self.point_ms is None:
            return self.middle_ms
        return left(self.whole_ms, self.point_ms, self.point_ms)[0]


def whole_ms(report: Report, scope: Scope) -> float:
    """Return the time that a saving of *scope* is taken from: a step of STEADY and PERIODIC, all of STARTUP."""
    if report.ledger is None:
        return 0.0
    over = report.steps if scope is Scope.PERIODIC else 1
    return wholes(report.ledger, report.mean_step_ns, report.steady_steps)[scope] / max(1, over) / 1e6


def claim_of(report: Report, finding: Finding) -> Claim | None:
    """Return what *finding* claims before calibration; None where it claims no saving."""
    if finding.saving is None or not finding.saving.high_ns:
        return None
    claimed = finding.saving.claimed
    over = 1e6 * (max(1, report.steps) if finding.scope is Scope.PERIODIC else 1)
    spent = 1e6 * {Scope.STEADY: report.steady_steps, Scope.PERIODIC: report.steps, Scope.STARTUP: 1}[finding.scope]
    point = finding.spent_ns / max(1, len(report.rank_wall_ns)) / max(1e6, spent)
    whole = whole_ms(report, finding.scope)
    return Claim(finding.cause, finding.scope, whole, claimed.low_ns / over, claimed.high_ns / over, point)
