"""How often unstall is right: ``python bench/accuracy.py [--repeats N] [CAUSE ...]``.

Runs the planted trainings of every cause for real.  Rows of the matrix are what was planted, columns what was named
first; then how often the first finding was right and named the marked line, how often a healthy script was blamed (cry
wolf), and the saving that was claimed beside the one measured between `before` and `after`: a step's median wall time, and
the CPU time of the training thread in it, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from unstall import causes
from unstall.model.case import Planted
from unstall.model.finding import Finding, Scope
from unstall.model.report import Report
from unstall.readers import recording
from unstall.testing.contract import faults_in, names_line, train

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One planted training, before and after.

    Attributes:
        named: id of the first fault found in *before*, or "-"; line: whether it named a marked line.
        blamed: faults found in *after* that the case does not allow.
        claimed: bounds of the saving of a step, ms, or None where the finding claims none a step.
        wall_ms, cpu_ms: what a step lost between *before* and *after*, medians.
    """

    planted: str
    named: str
    line: bool
    blamed: tuple[str, ...]
    claimed: tuple[float, float] | None
    wall_ms: float
    cpu_ms: float


def outcome(cause: str, planted: Planted, folder: Path) -> Outcome:
    before, after = train(planted.before, folder / "before"), train(planted.after, folder / "after")
    found = next((f for f in before.findings if f.fault and f.cause in faults_in(before)), None)  # of the script
    blamed = tuple(sorted(set(faults_in(after)) - planted.also))
    wall, cpu = (of(before) - of(after) for of in (step_wall_ms, step_cpu_ms))
    named = found.cause if found is not None else NOTHING
    line = found is not None and names_line(found, planted.before)
    return Outcome(cause, named, line, blamed, claimed_ms(found, cause), wall, cpu)


def claimed_ms(found: Finding | None, cause: str) -> tuple[float, float] | None:
    """Return the bounds of the saving that is claimed for each step, where the planted cause was found."""
    if found is None or found.cause != cause or found.saving is None or found.scope is not Scope.STEADY:
        return None
    return found.saving.low_ns / 1e6, found.saving.high_ns / 1e6


def step_wall_ms(report: Report) -> float:
    return report.step_ns.median / 1e6 if report.step_ns else 0.0


def step_cpu_ms(report: Report) -> float:
    """Return the training thread's CPU time of the median step after the first few."""
    rows = recording.read(Path(report.recording)).ranks[0].rows
    assert rows is not None
    steps = rows.cpu_ns[rows.steps == 1][3:]
    return float(np.median(steps)) / 1e6 if steps.size else 0.0


def matrix(outcomes: list[Outcome]) -> str:
    """Return the confusion matrix, planted by named; rows without a miss are one number."""
    named: dict[str, Counter[str]] = {}
    for seen in outcomes:
        named.setdefault(seen.planted, Counter())[seen.named] += 1
    lines = [f"{'planted':36} named first"]
    for planted, counts in named.items():
        lines.append(f"{planted:36} " + ", ".join(f"{name} {n}" for name, n in counts.most_common()))
    return "\n".join(lines)


def summary(outcomes: list[Outcome]) -> str:
    count = len(outcomes)
    right = sum(seen.named == seen.planted for seen in outcomes)
    lines = sum(seen.named == seen.planted and seen.line for seen in outcomes)
    wolves = [seen for seen in outcomes if seen.blamed]
    told = [seen for seen in outcomes if seen.claimed is not None and seen.wall_ms > 0]
    held = sum(seen.claimed[0] * 0.8 <= seen.wall_ms <= seen.claimed[1] * 1.25 for seen in told if seen.claimed)
    shown = [f"first finding right     {right} of {count}", f"  and its line named    {lines} of {count}"]
    shown.append(f"cry wolf on the healthy {len(wolves)} of {count}")
    shown += [f"  {seen.planted}: {', '.join(seen.blamed)}" for seen in wolves]
    shown.append(f"measured saving within the claimed bounds, a quarter allowed: {held} of {len(told)}")
    return "\n".join(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("causes", nargs="*")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    outcomes = []
    print(f"{'planted':36} {'named first':36} {'claimed ms a step':>20} {'measured wall':>14} {'CPU':>8}   load")
    for cause in causes.load():
        if options.causes and cause.id not in options.causes:
            continue
        for planted in [planted for planted in cause.planted for _ in range(options.repeats)]:
            with tempfile.TemporaryDirectory() as folder:
                seen = outcome(cause.id, planted, Path(folder))
            outcomes.append(seen)
            claimed = "-" if seen.claimed is None else f"{seen.claimed[0]:.1f} to {seen.claimed[1]:.1f}"
            numbers = f"{claimed:>20} {seen.wall_ms:14.1f} {seen.cpu_ms:8.1f}   {os.getloadavg()[0]:.1f}"
            print(f"{seen.planted:36} {seen.named:36} {numbers}", flush=True)
    print(f"\n{matrix(outcomes)}\n\n{summary(outcomes)}")


if __name__ == "__main__":
    main()
