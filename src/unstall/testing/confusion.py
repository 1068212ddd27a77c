"""What was planted, what was named, and how sure a count of right answers is: what the benches of accuracy share."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from unstall.model.finding import Candidate, Finding, Scope
from unstall.model.ledger import Activity, Ledger
from unstall.model.report import Report
from unstall.testing.claims import claim_of, whole_ms
from unstall.testing.contract import faults_in, names_line, train
from unstall.testing.together import measured

NOTHING = "nothing"


class Told(str, Enum):
    """How a planted fault was told."""

    RIGHT = "right"  # named first, or as a candidate where it is one
    SILENT = "silent"  # no fault was named
    WRONG = "wrong"  # another one was named first


@dataclass(frozen=True, slots=True)
class Cell:
    """One training of a matrix.

    Attributes:
        key: unique, in words. group: what cells are counted together by, as "mild".
        planted: id of the cause, "" for a healthy training.
        also: causes that may be named besides the planted one, or in the healthy training.
        steps: steady steps to record; all where None. candidate: as of `case.Planted`.
        warmup: steps left out before; as they show where None.
    """

    key: str
    group: str
    source: str
    planted: str
    also: frozenset[str] = frozenset()
    steps: int | None = None
    candidate: bool = False
    warmup: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was named in one training.

    Attributes:
        named: id of the first fault, of the candidate where that is what was planted, or `NOTHING`.
        line: whether it names a marked line. where: the place it names.
        blamed: faults that the cell does not allow, each with its share.
        numbers: by name: ``step_ms`` (median), ``mean_ms``, ``loop_ms`` (all time in the loop over all its steps),
            ``start_ms`` (all time that is no steady step), ``load``, ``starved`` (share of the steps in which the machine
            gave the training no core); of what was planted, where it was found, its ``share`` of the step, and of its
            `claims.Claim` ``low_ms``, ``high_ms``, ``point_ms`` and ``scope``, the place of that among `Scope`.
        error: why there is no answer: the training failed.
    """

    key: str
    group: str
    planted: str
    named: str
    line: bool
    where: str
    blamed: tuple[str, ...]
    numbers: Mapping[str, float] = field(default_factory=dict)
    error: str = ""

    @property
    def told(self) -> Told:
        if self.named == self.planted:
            return Told.RIGHT
        return Told.SILENT if self.named == NOTHING else Told.WRONG


def trained(cell: Cell, folder: Path) -> tuple[Outcome, Report]:
    """Run a cell's training under the recorder; return what was named, and the report."""
    report = train(cell.source, folder, steps=cell.steps, warmup=cell.warmup)
    said = faults_in(report)
    first = next((f for f in report.findings if f.fault and f.cause in said), None)
    found: Finding | Candidate | None = first
    if cell.candidate:
        found = next((one for one in report.candidates if one.cause == cell.planted), first)
    blamed = tuple(
        f"{name} {_share(report, name):.0%}" for name in said if name != cell.planted and name not in cell.also
    )
    numbers = {
        "load": os.getloadavg()[0],
        "mean_ms": report.mean_step_ns / 1e6,
        "loop_ms": measured(report).step_ns / 1e6,
        "start_ms": whole_ms(report, Scope.STARTUP),
        "starved": starved_share(report.ledger) if report.ledger is not None else 0.0,
    }
    if report.step_ns is not None:
        numbers["step_ms"] = report.step_ns.median / 1e6
    planted = next((f for f in report.findings if f.cause == cell.planted), None)
    if planted is not None:
        numbers["share"] = planted.share
        numbers |= _claimed(report, planted)
    outcome = Outcome(
        cell.key,
        cell.group,
        cell.planted,
        found.cause if found is not None else NOTHING,
        found is not None and names_line(found, cell.source),
        "" if found is None else _place(found),
        blamed,
        numbers,
        f"exit code {report.exit_code}" if report.exit_code else "" if report.steady_steps else "no steady steps",
    )
    return outcome, report


def _claimed(report: Report, finding: Finding) -> dict[str, float]:
    claim = claim_of(report, finding)
    if claim is None:
        return {}
    claimed = {"low_ms": claim.low_ms, "high_ms": claim.high_ms, "scope": float(tuple(Scope).index(claim.scope))}
    return claimed if claim.point_ms is None else {**claimed, "point_ms": claim.point_ms}


def starved_share(ledger: Ledger) -> float:
    """Return the share of the steps in which the training was runnable and had no core."""
    in_steps = ledger.step >= 0
    starved = in_steps & (ledger.activity == Activity.STARVED)
    return float(ledger.ns[starved].sum() / max(1, ledger.ns[in_steps].sum()))


def _share(report: Report, cause: str) -> float:
    return max(finding.share for finding in report.findings if finding.cause == cause)


def _place(found: Finding | Candidate) -> str:
    where = found.where
    file, line = getattr(where, "file", ""), getattr(where, "line", 0)
    return f"{os.path.basename(file)}:{line}" if file else str(where)


def to_row(outcome: Outcome) -> dict[str, object]:
    """Return *outcome* as what JSON holds."""
    return {
        "key": outcome.key, "group": outcome.group, "planted": outcome.planted, "named": outcome.named,
        "line": outcome.line, "where": outcome.where, "blamed": list(outcome.blamed),
        "numbers": dict(outcome.numbers), "error": outcome.error,
    }  # fmt: skip


def from_row(row: Mapping[str, object]) -> Outcome:
    """Return the outcome that `to_row` wrote."""
    blamed, numbers = row["blamed"], row["numbers"]
    assert isinstance(blamed, list) and isinstance(numbers, dict)
    key, group, planted, named = (str(row[name]) for name in ("key", "group", "planted", "named"))
    line, where, error = bool(row["line"]), str(row["where"]), str(row["error"])
    return Outcome(key, group, planted, named, line, where, tuple(blamed), numbers, error)


# ---------------------------------------------------------------- counting


def wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the bounds of a share of which *right* of *count* were seen, 95 % by default; (0, 1) where none was.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22, 1927.
    """
    if not count:
        return 0.0, 1.0
    share, over = right / count, 1 + z * z / count
    middle = (share + z * z / (2 * count)) / over
    off = z / over * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, middle - off), min(1.0, middle + off)


def counted(right: int, count: int) -> str:
    """Return a count with its share and bounds, as ``9/10  90 % (60-98)``."""
    low, high = wilson(right, count)
    share = f"{right / count:.0%}" if count else "-"
    return f"{right}/{count}  {share} ({100 * low:.0f}-{100 * high:.0f})"


def matrix(outcomes: Iterable[Outcome]) -> str:
    """Return the confusion matrix, one line a planted cause: what was named first, and how often."""
    named: dict[str, Counter[str]] = {}
    for seen in outcomes:
        if seen.planted:
            named.setdefault(seen.planted, Counter())[seen.named] += 1
    lines = [f"{'planted':32} named first"]
    for planted, counts in sorted(named.items()):
        lines.append(f"{planted:32} " + ", ".join(f"{name} {n}" for name, n in counts.most_common()))
    return "\n".join(lines)


def summary(outcomes: Iterable[Outcome]) -> str:
    """Return how often the first finding, and its line, were right by group, and how often the healthy were blamed."""
    sound = [seen for seen in outcomes if not seen.error]
    groups: dict[str, list[Outcome]] = {}
    for seen in sound:
        groups.setdefault(seen.group, []).append(seen)
    lines = []
    for group, cells in groups.items():
        planted, healthy = [c for c in cells if c.planted], [c for c in cells if not c.planted]
        if planted:
            right = [c for c in planted if c.told is Told.RIGHT]
            silent = sum(c.told is Told.SILENT for c in planted)
            lines.append(f"{group:22} first right {counted(len(right), len(planted)):22} silent {silent}")
            lines.append(f"{'':22} and its line {counted(sum(c.line for c in right), len(right))}")
        if healthy:
            lines.append(f"{group:22} nothing blamed {counted(sum(not c.blamed for c in healthy), len(healthy))}")
        lines += [f"{'':24}{c.key}: {', '.join(c.blamed)}" for c in healthy if c.blamed]
    return "\n".join(lines)
