"""The step that is predicted at the advised setting, and the one measured: ``python bench/predictions.py [--keep FILE]``.

For the planted data causes whose remedy is an edit: the training with the fault is recorded, what is advised first is
carried out in its source, and that is recorded too. *predicted* is the step less the middle of the claimed saving, or
what the finding's arithmetic says; the bounds are those of the saving, as claimed and as calibrated by the trainings of
`bench/accuracy.py`, of which these are other strengths: whether calibration carries over shows here. A fault of the start,
or of now and then, saves in the whole loop, so for it the loop's time over its steps stands for the step. --keep, --shard
and --only are those of `bench/confusion.py`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from dialled import STEPS_MS, dialled

from unstall.model.finding import Finding, Scope
from unstall.model.report import Report
from unstall.remedies.patch import patched
from unstall.testing.confusion import Cell, counted, trained
from unstall.testing.journal import Journal, chosen, sharded
from unstall.testing.together import measured as loop_of

CAUSES = tuple(
    f"data/{name}"
    for name in ("starved-loader", "uneven-samples", "workers-respawned", "threads-in-workers", "too-many-workers")
)
STRENGTHS = ("clear", "heavy")
PREDICTED = "predicted step with"  # how the evidence of such a number begins


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a finding says the step will be, ms, taken from *now_ms*: the middle, and the bounds claimed and calibrated."""

    now_ms: float
    middle_ms: float
    claimed_ms: tuple[float, float]
    calibrated_ms: tuple[float, float] | None


def cells() -> list[Cell]:
    planted = [(cause, strength, step) for cause in CAUSES for strength in STRENGTHS for step in STEPS_MS]
    found = []
    for cause, strength, step_ms in planted:
        one = dialled(cause, strength, step_ms)
        key, source = f"{cause} {strength} {step_ms:g} ms", one.planted.before
        found.append(Cell(key, strength, source, cause, one.planted.also, one.steps, warmup=one.warmup))
    return found


def step_ms(report: Report, finding: Finding) -> float:
    """Return the step in which what *finding* claims is saved: a mean one, or the loop's time over all its steps."""
    return report.mean_step_ns / 1e6 if finding.scope is Scope.STEADY else loop_of(report).step_ns / 1e6


def predicted(report: Report, finding: Finding) -> Predicted | None:
    """Return the step that *finding* predicts, or None where it claims no saving."""
    if finding.saving is None:
        return None
    over = 1e6 if finding.scope is Scope.STEADY else 1e6 * max(1, report.steps)
    now = step_ms(report, finding)
    claim, widened = (
        (now - saving.high_ns / over, now - saving.low_ns / over) for saving in (finding.saving.claimed, finding.saving)
    )
    told = [one.value / 1e6 for one in finding.evidence if one.what.startswith(PREDICTED)]
    middle = told[0] if told and finding.scope is Scope.STEADY else sum(claim) / 2
    return Predicted(now, middle, claim, widened if finding.saving.calibrated is not None else None)


def measured(cell: Cell, rounds: int) -> dict[str, object]:
    """Return the row of one training: what was advised and predicted, and the step with it carried out."""
    with tempfile.TemporaryDirectory() as name:
        _, report = trained(cell, Path(name))
        script = str(Path(name) / "train.py")
        at = next((n for n, f in enumerate(report.findings) if f.cause == cell.planted), None)
        if at is None or not report.remedies[at] or not report.remedies[at][0].edits:
            return {"advised": "", "why": "not found" if at is None else "no edit is advised"}
        finding, remedy = report.findings[at], report.remedies[at][0]
        said = predicted(report, finding)
        source = patched(cell.source, remedy.edits, script)
    if said is None:
        return {"advised": "", "why": "no saving is claimed"}
    steps = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            fixed = Cell(cell.key, cell.group, source, "", steps=cell.steps, warmup=cell.warmup)
            steps.append(step_ms(trained(fixed, Path(name))[1], finding))
    return {
        "advised": remedy.title, "now_ms": said.now_ms, "predicted_ms": said.middle_ms, "claimed_ms": said.claimed_ms,
        "calibrated_ms": said.calibrated_ms, "measured_ms": float(np.median(steps)), "load": os.getloadavg()[0],
    }  # fmt: skip


def number(row: Mapping[str, object], name: str) -> float:
    value = row[name]
    assert isinstance(value, (int, float))
    return float(value)


def bounds_of(row: Mapping[str, object], name: str) -> tuple[float, float] | None:
    """Return the bounds of the step that a row holds; None where they were not calibrated."""
    value = row[name]
    if value is None:
        return None
    assert isinstance(value, (list, tuple))
    low, high = value
    return float(low), float(high)


def line_of(row: Mapping[str, object]) -> str:
    if not row["advised"]:
        return f"{row['key']!s:42} {row['why']}"
    now, said, then, load = (number(row, name) for name in ("now_ms", "predicted_ms", "measured_ms", "load"))
    claim, widened = bounds_of(row, "claimed_ms"), bounds_of(row, "calibrated_ms")
    assert claim is not None
    within = "" if widened is None else f"; calibrated {widened[0]:.1f} to {widened[1]:.1f}"
    return (
        f"{row['key']!s:42} {now:7.1f} -> {said:6.1f} ({claim[0]:.1f} to {claim[1]:.1f}{within}) ms predicted, "
        f"{then:6.1f} measured: {said / then - 1:+5.0%}  load {load:.1f}  {row['advised']}"
    )


def summary(rows: Sequence[Mapping[str, object]]) -> str:
    """Return the median error and how often the bounds hold what was measured, with the noise of two runs allowed for."""
    told = [row for row in rows if row["advised"]]
    if not told:
        return "nothing was advised"
    off = [abs(number(row, "predicted_ms") / number(row, "measured_ms") - 1) for row in told]
    lines = [f"median error {np.median(off):.0%} of the measured step, over {len(told)} of {len(rows)} trainings"]
    for name in ("claimed_ms", "calibrated_ms"):
        bounded = [(bounds, number(row, "measured_ms")) for row in told if (bounds := bounds_of(row, name)) is not None]
        for noise in (0.0, 0.05) if bounded else ():
            held = sum(low * (1 - noise) <= then <= high * (1 + noise) for (low, high), then in bounded)
            which = name.removesuffix("_ms")
            lines.append(f"measured within the {which} bounds, {noise:.0%} allowed: {counted(held, len(bounded))}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="JSON lines, read and added to")
    parser.add_argument("--only", nargs="+", default=(), metavar="WORDS")
    parser.add_argument("--shard", default="1/1", metavar="PART/PARTS")
    parser.add_argument("--rounds", type=int, default=2, help="runs with what is advised; their median is taken")
    options = parser.parse_args()
    journal = Journal(options.keep)
    mine = sharded(chosen(cells(), options.only, lambda cell: cell.key), options.shard, lambda cell: cell.key)
    for cell in mine:
        if cell.key not in journal.rows:
            journal.add(cell.key, measured(cell, options.rounds))
            print(line_of(journal.rows[cell.key]), flush=True)
    print(f"\n{summary([journal.rows[cell.key] for cell in mine])}")


if __name__ == "__main__":
    main()
