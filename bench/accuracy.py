"""How often unstall is right: ``python bench/accuracy.py [--repeats N] [CAUSE ...]``.

Runs the planted trainings of every cause for real, as they stand in its file (`bench/confusion.py` turns their strength).
Rows of the matrix are what was planted, columns what was named first; then how often the first finding was right and
named the marked line, how often a healthy script was blamed, and the saving that was claimed beside the one measured
between `before` and `after`: a step's median wall time, and the CPU time of the training thread in it, which a busy
machine changes less.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from unstall import causes
from unstall.model.case import Planted
from unstall.model.report import Report
from unstall.readers import recording
from unstall.testing.confusion import Cell, Outcome, matrix, summary, trained


@dataclass(frozen=True, slots=True)
class Pair:
    """One planted training, before and after; *wall_ms* and *cpu_ms* are what a step lost between them, medians."""

    before: Outcome
    after: Outcome
    wall_ms: float
    cpu_ms: float

    @property
    def claimed_ms(self) -> tuple[float, float] | None:
        """Bounds of the saving that is claimed for each step, where the planted cause was named first."""
        numbers = self.before.numbers
        if self.before.named != self.before.planted or "low_ms" not in numbers:
            return None
        return numbers["low_ms"], numbers["high_ms"]


def pair_of(cause: str, planted: Planted, folder: Path) -> Pair:
    cells = (
        Cell(cause, "planted", planted.before, cause, planted.also, candidate=planted.candidate),
        Cell(f"{cause} without", "without the fault", planted.after, "", planted.also),
    )
    (before, with_it), (after, without) = (trained(cell, folder / str(n)) for n, cell in enumerate(cells))
    wall, cpu = (of(with_it) - of(without) for of in (step_wall_ms, step_cpu_ms))
    return Pair(before, after, wall, cpu)


def step_wall_ms(report: Report) -> float:
    return report.step_ns.median / 1e6 if report.step_ns else 0.0


def step_cpu_ms(report: Report) -> float:
    """Return the training thread's CPU time of the median step after the first few."""
    rows = recording.read(Path(report.recording)).ranks[0].rows
    assert rows is not None
    steps = rows.cpu_ns[rows.steps == 1][3:]
    return float(np.median(steps)) / 1e6 if steps.size else 0.0


def shown(pairs: list[Pair]) -> str:
    """Return the matrix, the counts, and how often a claim held what was measured."""
    outcomes = [seen for pair in pairs for seen in (pair.before, pair.after)]
    told = [(*pair.claimed_ms, pair.wall_ms) for pair in pairs if pair.claimed_ms is not None and pair.wall_ms > 0]
    held = sum(low * 0.8 <= wall <= high * 1.25 for low, high, wall in told)
    claims = f"measured saving within the claimed bounds, a quarter allowed: {held} of {len(told)}"
    return "\n\n".join((matrix(outcomes), summary(outcomes), claims))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("causes", nargs="*")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    pairs = []
    print(f"{'planted':36} {'named first':36} {'claimed ms a step':>20} {'measured wall':>14} {'CPU':>8}   load")
    for cause in causes.load():
        if options.causes and cause.id not in options.causes:
            continue
        for planted in [planted for planted in cause.planted for _ in range(options.repeats)]:
            with tempfile.TemporaryDirectory() as folder:
                pair = pair_of(cause.id, planted, Path(folder))
            pairs.append(pair)
            claimed = "-" if pair.claimed_ms is None else "{:.1f} to {:.1f}".format(*pair.claimed_ms)
            numbers = f"{claimed:>20} {pair.wall_ms:14.1f} {pair.cpu_ms:8.1f}   {pair.before.numbers['load']:.1f}"
            print(f"{pair.before.planted:36} {pair.before.named:36} {numbers}", flush=True)
    print(f"\n{shown(pairs)}")


if __name__ == "__main__":
    main()
