"""What a budget of `unstall fix` can prove, simulated on recorded runs.

usage: python bench/budget.py RECORDING...      folders that `unstall run` wrote

For each run the length of a trial is what `unstall fix` takes for it; pairs are drawn with the noise of equal trials
on a quiet machine, an ordinary one and a busy one, for remedies that truly make the step 1.05, 1.2 and 2 times faster,
and `decide` is asked after each pair.  Shown: when the median plan has told that the first remedy is faster and trains
the same, counted from the start of the fix, and the share of plans that tell it within the budget.  The recording and
two shrunk runs of the equality are counted, explanations and waiting for a quiet machine are not.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from unstall.model.report import Job, Report
from unstall.model.trial import Measure, Verdict
from unstall.pipeline import diagnose
from unstall.pipeline._asked import BUDGET_S, FixOptions
from unstall.pipeline.length import Length, length_of
from unstall.trials.foresight import EQUALITY_TRIALS
from unstall.trials.sequence import Design, decide

NOISE = {"quiet": 0.01, "ordinary": 0.04, "busy": 0.10}  # standard deviation of a trial's log; bench/data has such
GAINS = (1.05, 1.2, 2.0)
PLANS = 400
FIRST_S = 300.0  # the first gain is to be proved within this


@dataclass(frozen=True, slots=True)
class Simulated:
    """Plans of one gain and noise.

    Attributes:
        told_s: of those that said "faster", when the median one did; None where none did.
        within_first, within_budget: shares of all plans.
    """

    told_s: float | None
    within_first: float
    within_budget: float


def simulated(length: Length, recording_s: float, gain: float, noise: float, budget_s: float) -> Simulated:
    rng, design, told = np.random.default_rng(1), Design(), []
    for _ in range(PLANS):
        at = recording_s
        logs: list[float] = []
        verdict = None
        while verdict is None:
            at += length.expected_s * (1 + 1 / gain)
            logs.append(math.log(gain) + noise * float(rng.normal() - rng.normal()))
            verdict = decide(logs, design)
        if verdict is Verdict.FASTER:
            told.append(at + EQUALITY_TRIALS * length.expected_s)
    found = np.array(told)
    within = [float((found <= limit).sum()) / PLANS for limit in (FIRST_S, budget_s)]
    return Simulated(float(np.median(found)) if told else None, *within)


def show(name: str, report: Report, budget_s: float) -> None:
    options = FixOptions((), budget_s=budget_s)
    length = length_of(report, Measure.STEP, False, options)
    recording_s = report.wall_ns / 1e9
    steps = report.steps if length.steps is None else length.steps
    print(
        f"\n{name}: start {report.start_ns / 1e9:.1f} s, step {report.mean_step_ns / 1e6:.1f} ms; a trial is {steps} steps, "
        f"{length.expected_s:.1f} s; recorded in {recording_s:.0f} s"
    )
    for machine, noise in NOISE.items():
        cells = []
        for gain in GAINS:
            one = simulated(length, recording_s, gain, noise, budget_s)
            when = f"{one.told_s:4.0f} s" if one.told_s is not None else "never "
            cells.append(f"{gain:4.2f}x {when} {one.within_first:4.0%} {one.within_budget:4.0%}")
        print(f"  {machine:9} (trials differ by {noise:.0%})   " + "   |  ".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds")
    options = parser.parse_args()
    print(f"for each gain: median until it is told; share told in {FIRST_S:.0f} s and in {options.budget:.0f} s")
    for folder in options.recordings:
        show(folder.name, diagnose(folder, Job()), options.budget)


if __name__ == "__main__":
    main()
