"""How often is "faster" said of two equal trainings?  The sequential test on replayed pairs of recorded equal trials.

usage: python bench/nulls.py [--sequences N] [--seed N]
       python bench/nulls.py --record NAME --trials N     makes another recording: N fresh processes, 3 s each or more

A recording in bench/data holds the mean step, its CPU time and the start-up of each trial in the order in which they ran,
with the load of the machine.  A sequence is made of blocks of trials that ran one after another, the blocks in a random order
(after the block bootstrap of Kuensch 1989, without replacement), so drifts and bursts of load stay as they were;
neighbours are dealt out as base and remedy in the order A B B A, and `decide` is asked after each pair, as in
`unstall fix`.  Every "faster" is false.  Hopeless sequences end early, which hides some of them, so they are counted with
all pairs made as well.  The interval is that of Clopper & Pearson 1934 and counts sequences as independent; they share
a few recordings, so it says nothing of other machines.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unstall.model.trial import Verdict
from unstall.trials.sequence import Design, decide
from unstall.trials.statistics import spread_of

Floats = NDArray[np.float64]

HERE = Path(__file__).parent
DATA = HERE / "data"
STEPS = 120  # about a second, after the 90 of the reference loop's warm-up
BLOCKS = (4, 8, 24)  # trials; the last is a whole sequence as it ran


def trial() -> dict[str, float]:
    """Return one fresh training's mean step, CPU time of its thread a step and start-up, ns, and the load when it began."""
    load, start = os.getloadavg()[0], time.monotonic_ns()
    command = [sys.executable, str(HERE / "reference_loop.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        ready = time.monotonic_ns()
        print(STEPS, file=process.stdin, flush=True)
        told = json.loads(process.stdout.readline())
        process.stdin.close()
    step_ns, cpu_ns = (sum(told[clock]) / STEPS for clock in ("wall", "cpu"))
    return {"step_ns": step_ns, "cpu_ns": cpu_ns, "start_ns": ready - start, "load": load}


def record(name: str, count: int) -> None:
    trials = [trial() for _ in range(count)]
    recorded = {
        "what": f"bench/reference_loop.py, {STEPS} steps after its warm-up, a fresh process each, one after another",
        "day": datetime.now(timezone.utc).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        **{f"{name}_N": [round(one[name], 2 if name == "load" else 0) for one in trials] for name in trials[0]},
    }
    DATA.mkdir(exist_ok=True)
    (DATA / f"equal_trials_{name}.json").write_text(json.dumps(recorded) + "\n")


def replayed(recordings: Sequence[Floats], block: int, pairs: int, rng: np.random.Generator) -> Floats:
    """Return the logs of a sequence of *pairs* equal pairs, float64 (pairs,), of blocks of trials in a random order.

    No block comes twice: its pairs would come twice as well, and a t test takes equal pairs for a machine without noise.
    """
    blocks: list[Floats] = []
    for times in recordings:
        first = int(rng.integers(0, min(block, times.size - block + 1)))
        blocks += [times[start : start + block] for start in range(first, times.size - block + 1, block)]
    logs = np.log(np.concatenate([blocks[n] for n in rng.permutation(len(blocks))])[: 2 * pairs])
    sign = np.where(np.arange(pairs) % 2, -1, 1) * rng.choice(
        (-1, 1)
    )  # which of two equal arms is the remedy is arbitrary
    return np.asarray((logs[0::2] - logs[1::2]) * sign)


def judged(logs: Floats, design: Design) -> tuple[Verdict, int]:
    """Return the verdict on the pairs, told one after another, and how many it took."""
    for pairs in range(1, logs.size + 1):
        if (verdict := decide(logs[:pairs].tolist(), design)) is not None:
            return verdict, pairs
    raise AssertionError("the last pair gives a verdict")


def counted(recordings: Sequence[Floats], block: int, sequences: int, seed: int, design: Design) -> Counter[Verdict]:
    """Return how often each verdict was given."""
    rng = np.random.default_rng(seed)
    runs = (judged(replayed(recordings, block, design.most_pairs, rng), design) for _ in range(sequences))
    return Counter(verdict for verdict, _ in runs)


def share(count: int, of: int) -> str:
    interval = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
    return f"{count:3} of {of}, {count / of:.2%} (95 % {interval.low:.2%}-{interval.high:.2%})"


def show(measure: str, recorded: Sequence[dict[str, list[float]]], sequences: int, seed: int) -> None:
    key = f"{measure}_N"
    recordings = [np.array(one[key]) for one in recorded if key in one]  # the first ones have no CPU time
    apart = ", ".join(f"{spread_of(times.tolist()):.0%}" for times in recordings)
    print(f"\n{measure}: {sum(times.size for times in recordings)} trials; two equal ones usually differ by {apart}")
    for block in BLOCKS:
        said = counted(recordings, block, sequences, seed, Design())
        all_made = counted(recordings, block, sequences, seed, Design(least_power=0.0, confidence=1 - 1e-9))
        rest = ", ".join(f"{v.value} {n / sequences:.1%}" for v, n in said.most_common() if v is not Verdict.FASTER)
        print(f"  blocks of {block:2}: false faster {share(said[Verdict.FASTER], sequences)}; {rest}")
        print(f"        all pairs made: faster {share(all_made[Verdict.FASTER], sequences)}")


def scatter(size: int, seed: int) -> str:
    """Return how far the rate lies apart by chance, over made recordings of *size* trials with independent normal noise."""
    rng, each = np.random.default_rng(seed), 200
    made = [[np.exp(0.1 * rng.normal(size=size))] for _ in range(60)]
    rates = [counted(times, 8, each, n, Design())[Verdict.FASTER] / each for n, times in enumerate(made)]
    return f"mean {np.mean(rates):.2%}, a tenth of the recordings above {np.quantile(rates, 0.9):.1%}, most {max(rates):.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="NAME")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--sequences", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.record:
        record(options.record, options.trials)
    print(f"promised: faster is said of equal arms in {Design().alpha:.1%} of the sequences at most")
    recorded = [json.loads(path.read_text()) for path in sorted(DATA.glob("equal_trials_*.json"))]
    for one in recorded:
        load = one["load_N"]
        print(f"{one['what']}: {len(load)} trials on {one['cores']} cores, load {min(load):.1f}-{max(load):.1f}")
    for measure in ("step_ns", "cpu_ns", "start_ns"):
        show(measure, recorded, options.sequences, options.seed)
    for size in (40, 184):
        print(f"made recordings of {size} trials, blocks of 8: {scatter(size, options.seed)}")


if __name__ == "__main__":
    main()
