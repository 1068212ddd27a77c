"""What was claimed of planted trainings beside what was measured without their fault: error, coverage, scores.

A training is run with its fault, without, without and with it, so that a machine that grows slower harms both alike. Times
are of a mean step, of the loop a step, or of all that is no steady step, by the finding's scope: what the saving is taken
from (`accounts.calibration.wholes`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from unstall.accounts.calibration import FORMAT, Score, layer_of, quantiles
from unstall.model.finding import Scope
from unstall.testing.claims import Claim
from unstall.testing.confusion import Outcome, counted

MOST_APART = 0.15  # of two runs of the same training; beyond it the machine was too loud to say what the fault costs
MOST_LOAD = 1.5  # of the machine a core, the training's own included; at 3 to 4 a core steps took ten times as long


@dataclass(frozen=True, slots=True)
class Realised:
    """A claim, and what was measured.

    Attributes:
        before_ms, after_ms: the time that the saving is taken from, in the runs with the fault and in those without it.
        load: average of the machine, the largest of the four runs, on so many usable *cores*.
    """

    claim: Claim
    before_ms: tuple[float, ...]
    after_ms: tuple[float, ...]
    load: float
    cores: int

    @property
    def layer(self) -> str:
        return layer_of(self.claim.cause)

    @property
    def is_sound(self) -> bool:
        """Return whether the row counts: the machine was free for it, and the runs of the same training agree."""
        return not self.is_crowded and self.agrees

    @property
    def is_crowded(self) -> bool:
        return self.load > MOST_LOAD * self.cores

    @property
    def agrees(self) -> bool:
        return all(0 < max(times) <= (1 + MOST_APART) * min(times) for times in (self.before_ms, self.after_ms))

    @property
    def measured_ms(self) -> float:
        """The time without the fault, on the scale of the run that the claim is of."""
        return self.claim.whole_ms * _mean(self.after_ms) / _mean(self.before_ms)

    @property
    def error(self) -> float:
        """How far the middle of what is claimed to be left lies from what was, a share of it."""
        return self.claim.middle_ms / self.measured_ms - 1

    @property
    def told_error(self) -> float:
        """The same of the step less what the finding takes."""
        return self.claim.told_ms / self.measured_ms - 1

    @property
    def score(self) -> Score:
        return self.claim.score(self.measured_ms)

    @property
    def outside(self) -> float:
        """How far outside the claimed bounds it was measured, a share of the whole; negative inside."""
        low, high = self.claim.left_ms
        return max(low - self.measured_ms, self.measured_ms - high) / self.claim.whole_ms


def _mean(times_ms: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, times_ms)) / len(times_ms))


def to_row(realised: Realised) -> dict[str, object]:
    """Return *realised* as what JSON holds."""
    claim = realised.claim
    return {**asdict(claim), "scope": claim.scope.value, "before_ms": list(realised.before_ms),
            "after_ms": list(realised.after_ms), "load": realised.load, "cores": realised.cores}  # fmt: skip


def from_row(row: Mapping[str, object]) -> Realised:
    """Return what `to_row` wrote."""
    before, after = row["before_ms"], row["after_ms"]
    assert isinstance(before, list) and isinstance(after, list)
    whole, low, high, load = (float(str(row[name])) for name in ("whole_ms", "low_ms", "high_ms", "load"))
    point = row.get("point_ms")
    told = None if point is None else float(str(point))
    claim = Claim(str(row["cause"]), Scope(str(row["scope"])), whole, low, high, told)
    return Realised(claim, tuple(map(float, before)), tuple(map(float, after)), load, int(str(row["cores"])))


# ---------------------------------------------------------------- what they say together


WHOLES = {Scope.STEADY: "mean_ms", Scope.PERIODIC: "loop_ms", Scope.STARTUP: "start_ms"}  # numbers of an `Outcome`


def of_matrix(outcomes: Iterable[Outcome], without: str, cores: int) -> list[Realised]:
    """Return what was claimed and measured in the cells of a matrix that were run with their fault and without it.

    Each was run once, so what two runs of the same training differ by is in the scores.

    Args:
        without: what the key of a training without its fault has more than that of the one with it.
    """
    seen = {one.key: one for one in outcomes if not one.error}
    pairs = [(one, seen[key + without]) for key, one in seen.items() if one.planted and key + without in seen]
    return [row for one, other in pairs if (row := _of_cell(one, other, cores)) is not None]


def _of_cell(one: Outcome, other: Outcome, cores: int) -> Realised | None:
    """Return what was claimed of *one* and measured in *other*; None where the cause was not found or claimed nothing."""
    numbers = one.numbers
    if not numbers.get("high_ms"):
        return None
    scope = tuple(Scope)[int(numbers.get("scope", tuple(Scope).index(Scope.STEADY)))]
    before, after = (each.numbers.get(WHOLES[scope], 0.0) for each in (one, other))
    if min(before, after) <= 0:
        return None
    point = numbers.get("point_ms", numbers["share"] * before)
    claim = Claim(one.planted, scope, before, numbers["low_ms"], numbers["high_ms"], point)
    return Realised(claim, (before,), (after,), max(numbers["load"], other.numbers["load"]), cores)


def scores_of(rows: Iterable[Realised]) -> dict[str, list[list[float]]]:
    """Return the scores of sound rows by cause, as the calibration file holds them."""
    found: defaultdict[str, list[list[float]]] = defaultdict(list)
    for row in rows:
        if row.is_sound:
            found[row.claim.cause].append([round(side, 4) for side in row.score])
    return dict(sorted(found.items()))


def calibration_of(rows: Sequence[Realised], about: Mapping[str, object]) -> dict[str, object]:
    """Return the content of the calibration file; *about*: versions and machine."""
    sound = [row for row in rows if row.is_sound]
    loads = [round(float(load), 2) for load in np.quantile([row.load for row in sound], (0, 0.5, 1))] if sound else []
    return {
        "format": FORMAT,
        "about": dict(about),
        "load": loads,
        "count": len(sound),
        "left_out": len(rows) - len(sound),
        "scores": scores_of(rows),
    }


def held_by_others(row: Realised, others: Sequence[Realised]) -> bool | None:
    """Return whether the bounds hold what *row* measured, widened by the scores of *others*; None where these are too few."""
    by = quantiles([other.score for other in others])
    if by is None:
        return None
    low, high = row.claim.widened(by)
    return low <= row.measured_ms <= high


def table(rows: Sequence[Realised]) -> str:
    """Return error and coverage by family and of all, and below them a line a cause.

    Calibrated coverage is that of each row under the scores of all others, of the same family.
    """
    sound = [row for row in rows if row.is_sound]
    families: defaultdict[str, list[Realised]] = defaultdict(list)
    for row in sound:
        families[row.layer].append(row)
    lines = [
        f"{'family':14} {'rows':>4} {'error':>6} {'most':>6}  {'claimed bounds hold':24} {'calibrated, by all others':26} units"
    ]
    lines += [_line(name, found) for name, found in sorted(families.items())]
    lines.append(_line("all", sound))
    crowded = sum(row.is_crowded for row in rows)
    lines.append(f"left out, the load was over {MOST_LOAD:g} a core: {crowded}")
    apart = len(rows) - len(sound) - crowded
    lines.append(f"left out, two runs of the same training differ by over {MOST_APART:.0%}: {apart}")
    lines.append("")
    for row in sorted(rows, key=lambda row: row.claim.cause):
        low, high = row.claim.left_ms
        after = "" if row.is_sound else "   left out"
        inside = "inside" if row.outside <= 0 else f"outside by {row.outside:.0%}"
        lines.append(
            f"{row.claim.cause:34} {row.claim.scope.value:8} {row.claim.whole_ms:9.1f} -> {low:8.1f} to {high:8.1f} ms claimed, "
            f"{row.measured_ms:8.1f} measured: {row.error:+5.0%}  {inside}  load {row.load:.1f}{after}"
        )
    return "\n".join(lines)


def by_cause(rows: Sequence[Realised]) -> str:
    """Return error and coverage, a line a cause and one of all: its rows are judged by the scores of all other causes.

    Errors are medians: of the middle of the claimed bounds, of the step less what the finding takes, and of the middle of
    the calibrated bounds; coverage is that of the claimed bounds and of the calibrated ones.
    """
    judged: defaultdict[str, list[Judged]] = defaultdict(list)
    sound = [row for row in rows if row.is_sound]
    for row in sound:
        by = quantiles([other.score for other in sound if other.claim.cause != row.claim.cause])
        judged[row.claim.cause].append((row, None if by is None else row.claim.widened(by)))
    lines = [f"{'cause':32} rows middle  told calibrated  {'claimed bounds hold':24} calibrated by the other causes"]
    lines += [_of_cause(cause, found) for cause, found in sorted(judged.items())]
    lines.append(_of_cause("all", [one for found in judged.values() for one in found]))
    return "\n".join(lines)


Judged = tuple[Realised, "tuple[float, float] | None"]  # a row, and its bounds by the scores of others


def _of_cause(name: str, judged: Sequence[Judged]) -> str:
    if not judged:
        return f"{name:32} {0:4}"
    middle, told = (
        np.median([abs(off) for off in offs]) for offs in zip(*((r.error, r.told_error) for r, _ in judged))
    )
    held = counted(sum(row.outside <= 0 for row, _ in judged), len(judged))
    bounded = [(row.measured_ms, bounds) for row, bounds in judged if bounds is not None]
    if len(bounded) < len(judged):
        return f"{name:32} {len(judged):4} {middle:6.0%} {told:5.0%} {'-':>10}  {held:24} too few"
    off = np.median([abs((low + high) / 2 / ms - 1) for ms, (low, high) in bounded])
    within = counted(sum(low <= ms <= high for ms, (low, high) in bounded), len(bounded))
    return f"{name:32} {len(judged):4} {middle:6.0%} {told:5.0%} {off:10.0%}  {held:24} {within}"


def _line(name: str, rows: Sequence[Realised]) -> str:
    if not rows:
        return f"{name:14} {0:4}"
    off = [abs(row.error) for row in rows]
    held = counted(sum(row.outside <= 0 for row in rows), len(rows))
    told = [held_by_others(row, [other for other in rows if other is not row]) for row in rows]
    by = quantiles([row.score for row in rows])
    calibrated = "too few" if None in told else counted(sum(map(bool, told)), len(told))
    units = "-" if by is None else f"{by[0]:.2f} {by[1]:.2f}"
    return f"{name:14} {len(rows):4} {np.median(off):6.0%} {max(off):6.0%}  {held:24} {calibrated:26} {units}"
