"""How much `unstall fix` gains by itself, beside the fix made by hand.

usage: python bench/fix.py [--rounds N] [--budget S] [--keep FILE] [CAUSE ...]

For each planted training whose remedy is an edit: `unstall fix` on *before*, its patch applied by git, and then the
script as it was, as patched and as fixed by hand, run plainly in turns.  *gained* is the part of the hand-made
difference that the patch gives (100 % is as good as by hand), median of the rounds: of the mean step of the second half,
with all that lies between steps; for a fault of the start of the time from the spawn to the last step.  The load of the
machine stands beside it.  With --keep a stopped bench goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from unstall import causes
from unstall.launch.workspace import Workspace
from unstall.model.case import Planted
from unstall.model.errors import UnstallError
from unstall.model.remedy import Edit
from unstall.model.trial import Fixed, Measure
from unstall.pipeline._asked import FixOptions
from unstall.pipeline.fix import fix
from unstall.pipeline.trial import Ask, Bench
from unstall.testing.journal import Journal
from unstall.trials.worth import measure_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the fix of one planted training came to.

    Attributes:
        measure: what the fault is judged by. before_s, patched_s, by_hand_s: that time, medians.
        verdicts: of its proofs, in order.
        kept: ids of the remedies in the patch. took_s: of the fix.
        claims: of each proof with a prediction: what was claimed, low and high, and what was measured, times faster.
    """

    planted: str
    measure: Measure
    before_s: float
    patched_s: float
    by_hand_s: float
    verdicts: tuple[str, ...]
    kept: tuple[str, ...]
    took_s: float
    load: float
    claims: tuple[tuple[float, float, float], ...]

    @property
    def gained(self) -> float:
        """Part of the hand-made difference that the patch gives."""
        by_hand = self.before_s - self.by_hand_s
        return (self.before_s - self.patched_s) / by_hand if by_hand > 0 else float("nan")


def outcome(cause: str, planted: Planted, folder: Path, rounds: int, budget_s: float) -> Outcome:
    for name, text in (("fixed", planted.before), ("before", planted.before), ("by_hand", planted.after)):
        (folder / name).mkdir(parents=True)
        (folder / name / "train.py").write_text(text)
    began = time.monotonic()
    result = _fixed(folder / "fixed", budget_s)
    took_s = time.monotonic() - began
    measure = next((measure_of(found) for found in result.first.findings if found.cause == cause), Measure.STEP)
    times: dict[str, list[float]] = {"before": [], "fixed": [], "by_hand": []}
    for number in range(rounds):
        for name in times if number % 2 == 0 else reversed(times):
            times[name].append(_run_s(folder / name, result.exports if name == "fixed" else {}, measure))
    before, patched, by_hand = (float(np.median(times[name])) for name in ("before", "fixed", "by_hand"))
    verdicts = tuple(f"{proof.remedy.id} {proof.verdict.value}" for proof in result.proofs)
    kept = tuple(remedy.id for remedy in result.kept)
    claims = tuple(
        (proof.predicted_low, proof.predicted_high, proof.ratio.value)
        for proof in result.proofs
        if proof.predicted_low and proof.predicted_high and proof.ratio
    )
    return Outcome(cause, measure, before, patched, by_hand, verdicts, kept, took_s, os.getloadavg()[0], claims)


def _fixed(folder: Path, budget_s: float) -> Fixed:
    """Return what `unstall fix` arrived at, with its patch applied as a user would."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        result = fix(FixOptions(("train.py",), budget_s=budget_s, out=folder.parent / "state"))
        if result.patch:
            subprocess.run(["git", "apply", "unstall.patch"], check=True)
        return result
    finally:
        os.chdir(here)


def _run_s(folder: Path, exports: Mapping[str, str], measure: Measure) -> float:
    env = {**os.environ, **exports}
    bench = Bench(("train.py",), folder.parent / "trials", Workspace(folder, None), env)
    return taken_s(bench, (), measure, 1 / 2)


def taken_s(bench: Bench, edits: tuple[Edit, ...], measure: Measure, first: float) -> float:
    """Return the mean step of a trial, that share of its *first* steps left out; of the start the time to the last one."""
    trial = bench.make(Ask(edits=edits))
    if trial.error:
        raise RuntimeError(trial.error)
    last = trial.end_S.size
    return (float(trial.end_S[-1]) if measure is Measure.START else trial.mean_step_ns(int(last * first), last)) / 1e9


def edited(journal: Journal, wanted: Sequence[str]) -> Iterator[tuple[str, str, Planted]]:
    """Yield the key, the cause and the training of each plant whose remedy is an edit, of the causes *wanted* or all.

    What *journal* holds is left out.
    """
    for cause in causes.load():
        for number, planted in enumerate(cause.planted):
            key = f"{cause.id} {number}"
            if planted.edited and key not in journal.rows and (not wanted or cause.id in wanted):
                yield key, cause.id, planted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=240.0, help="seconds, of each fix")
    parser.add_argument("--keep", type=Path, help="JSON lines, read and added to")
    parser.add_argument("causes", nargs="*")
    args = parser.parse_args()
    journal = Journal(args.keep)
    print(f"{'planted':34} {'of':5} {'before':>8} {'patched':>8} {'by hand':>8} {'gained':>7} {'took':>6} {'load':>5}")
    for key, cause, planted in edited(journal, args.causes):
        with tempfile.TemporaryDirectory() as name:
            try:
                one = outcome(cause, planted, Path(name), args.rounds, args.budget)
            except (UnstallError, RuntimeError, subprocess.CalledProcessError) as error:
                print(f"{cause:34} failed: {error}", flush=True)
                continue
        journal.add(key, asdict(one))
        print(
            f"{one.planted:34} {one.measure.value:5} {shown(one.before_s)} {shown(one.patched_s)} "
            f"{shown(one.by_hand_s)} {one.gained:7.0%} "
            f"{one.took_s:5.0f}s {one.load:5.1f}  {'; '.join(one.verdicts) or 'nothing tried'}",
            flush=True,
        )
    _sum_up([msgspec.convert(dict(row), Outcome, strict=False) for row in journal.rows.values()])
    return 0


def shown(seconds: float) -> str:
    return f"{seconds:7.2f}s" if seconds >= 1 else f"{1e3 * seconds:6.1f}ms"


def _sum_up(outcomes: list[Outcome]) -> None:
    """Print what all trainings came to together."""
    gains = [one.gained for one in outcomes if np.isfinite(one.gained)]
    if gains:
        slower = sum(one.patched_s > 1.02 * one.before_s for one in outcomes)
        print(
            f"median of what was gained {np.median(gains):.0%} over {len(gains)} trainings; "
            f"slower than before by over 2 %: {slower}; 90 % or more: {sum(gain >= 0.9 for gain in gains)}"
        )
    claims = [claim for one in outcomes for claim in one.claims]
    if claims:
        inside = sum(low <= measured <= high for low, high, measured in claims)
        off = [np.log(measured / np.sqrt(low * high)) for low, high, measured in claims]
        print(
            f"of {len(claims)} predictions {inside} hold what was measured; measured over the middle of the prediction: "
            f"median {np.exp(np.median(off)):.2f}, tenth to ninetieth percentile {np.exp(np.quantile(off, 0.1)):.2f}-"
            f"{np.exp(np.quantile(off, 0.9)):.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
