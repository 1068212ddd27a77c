"""Widen what a cause claims to save until it holds what is measured as often as it says.

A cause's arithmetic bounds what its remedy saves, and so the time that is left: from *whole - high* to *whole - low*. For
planted trainings it was measured how far outside these bounds the time without the fault lay, in the *unit* of the claim:
that is a *score*, one below and one above, negative on the inner side. Each bound is moved by the quantile of its own
scores, as what is claimed errs to one side: mostly more is saved. For a training that is exchangeable with the planted
ones the time that is left then lies within them with at least the stated probability, whatever the arithmetic; a user's
training is not drawn from them, so this is no promise.

The unit is what a claim may well be wrong by: a share of what is said to be saved, or of what is said to be left where that is
less, and a twentieth of the whole, by which two runs may differ anyhow. Any unit keeps the probability. With the logarithm
of what is left, what claimed 1 to 3 % of a step was given bounds up to 36 %; with this unit 8 %, and large claims no wider ones.

Scores are taken of the finding's family, the layer of its cause. Layers err by different factors, so one with too few scores
is not lent those of others: its claims stay as they are, and are not called calibrated.

Source: Romano, Patterson & Candès 2019, *Conformalized quantile regression* (theorem 2, both sides apart); Vovk,
Gammerman & Shafer 2005, *Algorithmic learning in a random world* (chapter 4.5 for categories, "Mondrian").
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np

from unstall.model.finding import Calibrated, Finding, Saving, Scope
from unstall.model.ledger import Ledger, Phase

FORMAT = "unstall-calibration/2"
FILE = Path(__file__).with_name("calibration.json")  # written by bench/accuracy.py --write, --from-matrix FILE --write
COVERAGE = 0.9
BEYOND = (1 - COVERAGE) / 2  # of each bound; with n scores one holds with n / (n + 1) at most, so a family needs 19
NOISE = 0.05  # of the whole
Score = tuple[float, float]  # how far below the lower bound, and how far above the upper one


@dataclass(frozen=True, slots=True)
class Scores:
    """What planted trainings said of the claims, by id of the cause; a cause has a score for each of its trainings."""

    by_cause: Mapping[str, tuple[Score, ...]]

    def of(self, layer: str) -> tuple[Score, ...]:
        """Return the scores of the family *layer*."""
        return tuple(score for cause, scores in self.by_cause.items() if layer_of(cause) == layer for score in scores)


def layer_of(cause: str) -> str:
    return cause.partition("/")[0]


@cache
def known() -> Scores:
    """Return the scores that unstall comes with: of the causes' planted trainings, and of a matrix of their strengths."""
    record = json.loads(FILE.read_text("utf-8"))
    assert record["format"] == FORMAT, FILE
    found: defaultdict[str, list[Score]] = defaultdict(list)
    for part in (record, record.get("matrix", {"scores": {}})):
        for cause, scores in part["scores"].items():
            found[cause] += [(float(below), float(above)) for below, above in scores]
    return Scores(MappingProxyType({cause: tuple(scores) for cause, scores in found.items()}))


# ---------------------------------------------------------------- the arithmetic


def left(whole: float, low: float, high: float) -> tuple[float, float]:
    """Return the bounds of the time that is left of *whole* once *low* to *high* are saved."""
    return max(0.0, whole - high), max(0.0, whole - low)


def unit(whole: float, high: float) -> float:
    """Return what a claim to save up to *high* of *whole* may well be wrong by, as they are a time."""
    share = min(1.0, high / whole)
    return whole * (share * (1 - share) + NOISE)


def score_of(whole: float, low: float, high: float, measured: float) -> Score:
    """Return how far the *measured* time that is left lies below and above what is claimed to be, in units of the claim.

    Negative on the inner side of each bound.
    """
    least, most = left(whole, low, high)
    one = unit(whole, high)
    return (least - measured) / one, (measured - most) / one


def quantiles(scores: Sequence[Score]) -> Score | None:
    """Return by how much each bound is to be moved outwards; None where the scores are too few to say."""
    below, above = (quantile([score[side] for score in scores], 1 - BEYOND) for side in (0, 1))
    return None if below is None or above is None else (below, above)


def quantile(scores: Sequence[float], coverage: float) -> float | None:
    """Return the score that one more is at most with probability *coverage* or more; None where they are too few to say.

    It is the k-th smallest of n, k = ceil((n + 1) coverage).
    """
    rank = math.ceil((len(scores) + 1) * coverage - 1e-9)  # 20 x 0.95 is 19, and no more
    return sorted(scores)[rank - 1] if 1 <= rank <= len(scores) else None


def widened(whole: float, low: float, high: float, by: Score) -> tuple[float, float]:
    """Return the bounds of the time that is left moved apart by so many units, each by its own.

    Where that turns them around, it is the middle twice.
    """
    one, (least, most) = unit(whole, high), left(whole, low, high)
    least, most = least - by[0] * one, most + by[1] * one
    return (least, most) if least <= most else ((least + most) / 2,) * 2


def calibrated(saving: Saving, layer: str, whole_ns: int, scores: Scores) -> Saving:
    """Return *saving* with bounds that hold what was measured, none below 0 or above *whole_ns*.

    It stays as it is where it is no arithmetic, says that nothing is saved, or the scores are too few.
    """
    own = scores.of(layer)
    by = quantiles(own)
    is_claim = saving.basis == "arithmetic" and saving.calibrated is None and saving.high_ns > 0
    if by is None or not is_claim or whole_ns <= 0:
        return saving
    least, most = widened(whole_ns, saving.low_ns, saving.high_ns, by)
    low, high = (min(whole_ns, max(0, round(whole_ns - ns))) for ns in (most, least))
    return Saving(low, high, saving.basis, Calibrated(COVERAGE, len(own), layer, saving.low_ns, saving.high_ns))


# ---------------------------------------------------------------- of a report


def wholes(ledger: Ledger, mean_step_ns: int, steady_steps: int) -> Mapping[Scope, int]:
    """Return by scope the time that a saving is taken from, ns of one rank in this run.

    That of every step from the mean steady step; what is saved now and then from the loop; what is saved once from all
    time that is no steady step, as `Report.start_ns`.
    """
    edges = (ledger.step < 0) & np.isin(ledger.phase, (Phase.STARTUP, Phase.SHUTDOWN))
    return {
        Scope.STEADY: mean_step_ns,
        Scope.PERIODIC: int(ledger.ns[~edges].sum()) // len(ledger.wall_R),
        Scope.STARTUP: max(0, int(ledger.wall_R[0]) - steady_steps * mean_step_ns),
    }


def calibrate(findings: Iterable[Finding], whole_ns: Mapping[Scope, int], scores: Scores) -> tuple[Finding, ...]:
    """Return the findings with calibrated savings; *whole_ns* as of `wholes`. Their order and time stay."""
    return tuple(
        finding
        if finding.saving is None
        else replace(finding, saving=calibrated(finding.saving, finding.layer, whole_ns[finding.scope], scores))
        for finding in findings
    )
