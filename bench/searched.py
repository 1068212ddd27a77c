"""How good a value the search of a knob ends with in real trials, beside a grid of values measured afterwards.

usage: python bench/searched.py [--budget S] [--rounds N] [--keep FILE] [CAUSE ...]

For each planted training with a remedy that has a knob: `unstall fix` chooses a value; then the training runs with each value
of a grid and with the chosen one, whole and in a random order, in so many rounds.  *loss* is how much longer a step takes with
the chosen value than with the best of the grid: the geometric mean of the ratios within each round.  The best of several noisy
values looks better than it is, so it is chosen by all rounds but one and compared in that one, each round left out in turn.
For a fault of the start the time from the spawn to the last step stands for the step.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from fix import edited, taken_s

from unstall.launch.workspace import Workspace
from unstall.model.errors import UnstallError
from unstall.model.remedy import Remedy, SetEnvironment, SetKeyword
from unstall.model.trial import Proof
from unstall.pipeline._asked import FixOptions
from unstall.pipeline.fix import fix
from unstall.pipeline.proving import tuned
from unstall.pipeline.trial import Bench
from unstall.testing.journal import Journal

GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
FIRST = 1 / 3  # of the steps, left out


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one search came to.

    Attributes:
        processes: that the search of the value took. values: the grid, the chosen one in it.
        step_ms: by round, then by value.
    """

    planted: str
    verdict: str
    chosen: int
    predicted: int
    processes: int
    values: tuple[int, ...]
    step_ms: tuple[tuple[float, ...], ...]
    load: float

    @property
    def loss(self) -> float:
        """How much longer a step takes than with the best value, a share of it."""
        logs = np.log(np.array(self.step_ms))
        mine, ratios = self.values.index(self.chosen), []
        for left_out in range(len(logs)):
            best = int(np.delete(logs, left_out, axis=0).mean(axis=0).argmin())
            ratios.append(logs[left_out, mine] - logs[left_out, best])
        return float(np.expm1(np.mean(ratios)))

    @property
    def best(self) -> int:
        return self.values[int(np.log(np.array(self.step_ms)).mean(axis=0).argmin())]


def chosen_of(remedy: Remedy) -> int:
    """Return the value that the knob of *remedy* has in its edits."""
    keyword = remedy.knobs[0].keyword
    found = (edit.value for edit in remedy.edits if isinstance(edit, SetKeyword) and edit.keyword == keyword)
    set_to = (edit.value for edit in remedy.edits if isinstance(edit, SetEnvironment) and edit.value.isdigit())
    return int(str(next(found, None) or next(set_to)))


def outcome(cause: str, script: str, folder: Path, budget_s: float, rounds: int) -> Outcome | str:
    """Return what the search of the training's knob came to, or why there was none."""
    (folder / "work").mkdir()
    (folder / "work" / "train.py").write_text(script)
    os.chdir(folder / "work")
    result = fix(FixOptions(("train.py",), budget_s=budget_s, out=folder / "state", only=(cause,)))
    proof = next((one for one in result.proofs if one.remedy.knobs), None)
    if proof is None:
        return "; ".join(one.because for one in result.untried) or "no remedy with a knob"
    knob, chosen = proof.remedy.knobs[0], chosen_of(proof.remedy)
    values = tuple(sorted({chosen, knob.predicted, *(n for n in GRID if knob.low <= n <= max(knob.high, chosen))}))
    remedy = replace(proof.remedy, knobs=(replace(knob, predicted=chosen),))  # what its edits hold
    bench = Bench(("train.py",), folder / "trials", Workspace(folder / "work", None), dict(os.environ))
    steps_ms = []
    for number in range(rounds):
        order = random.Random(number).sample(values, len(values))
        made = {n: 1e3 * taken_s(bench, tuned(remedy, n).edits, proof.measure, FIRST) for n in order}
        steps_ms.append(tuple(made[n] for n in values))
    return Outcome(
        cause, proof.verdict.value, chosen, knob.predicted, processes(proof), values, tuple(steps_ms), os.getloadavg()[0]
    )  # fmt: skip


def processes(proof: Proof) -> int:
    """Return how many processes it took to choose the value."""
    return (proof.screening is not None) + len(proof.tried)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=240.0, help="seconds, of each fix")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="JSON lines, read and added to")
    parser.add_argument("causes", nargs="*")
    args = parser.parse_args()
    journal, here = Journal(args.keep and args.keep.resolve()), Path.cwd()
    for key, cause, planted in edited(journal, args.causes):
        with tempfile.TemporaryDirectory() as name:
            try:
                one = outcome(cause, planted.before, Path(name), args.budget, args.rounds)
            except (UnstallError, RuntimeError) as error:
                one = f"failed: {error}"
            finally:
                os.chdir(here)
        if isinstance(one, str):
            print(f"{key:34} {one}", flush=True)
            continue
        journal.add(key, asdict(one))
        print(shown(one), flush=True)
    losses = [msgspec.convert(dict(row), Outcome, strict=False).loss for row in journal.rows.values()]
    if losses:
        within = sum(loss <= 0.05 for loss in losses)
        print(f"{len(losses)} searches: within 5 % of the best {within}, most {max(losses):.1%} worse")
    return 0


def shown(one: Outcome) -> str:
    means = np.exp(np.log(np.array(one.step_ms)).mean(axis=0))
    grid = " ".join(f"{value}:{ms:.3g}" for value, ms in zip(one.values, means, strict=True))
    return (
        f"{one.planted:26} {one.verdict:12} chose {one.chosen} (predicted {one.predicted}, {one.processes} processes), best "
        f"{one.best}, {one.loss:+.1%}; load {one.load:.1f}; step in ms by value: {grid}"
    )


if __name__ == "__main__":
    sys.exit(main())
