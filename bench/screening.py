"""What a screening says of remedies whose gain is known: replayed on recorded steps, and on recorded equal trials.

usage: python bench/screening.py [--sequences N] [--seed N]
       python bench/screening.py --record NAME --processes N      records the steps of N more processes, some 20 s each

A recording in bench/data/steps_NAME.json holds the wall time of each step of unchanged trainings.  A sequence is a training
from a random step on, cut into blocks as `laid_out` does; steps of the blocks with the remedy are divided by the planted
ratio.  Recorded trials stand in for blocks in the second part: mean steps of fresh processes that ran one after another, a
second each, so they lie further apart than blocks of one process do.  Pairs are replayed as `bench/nulls.py` does, on the
same trials, the ratio planted in them too.  What a remedy costs is counted in processes: two a pair, one a screening.
A screening ends early where a gain is clear; here it is always made to its end.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from nulls import DATA, judged, replayed, share

from unstall.model.trial import Block, Outlook
from unstall.trials.screening import Arm, Layout, laid_out, logs_of, screened
from unstall.trials.sequence import Design

Floats = NDArray[np.float64]

RATIOS = (0.9, 1.0, 1.01, 1.02, 1.05, 1.2)
STEPS = 3200  # recorded of each process, after its warm-up
WARM = 20
TRIALS_A_SEQUENCE = 24  # as blocks: the shortest recording has 40
ON = [Arm((True,))]


def record(name: str, processes: int) -> None:
    runs = []
    for _ in range(processes):
        load = os.getloadavg()[0]
        command = [sys.executable, str(DATA.parent / "reference_loop.py")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            print(STEPS, file=process.stdin, flush=True)
            told = json.loads(process.stdout.readline())
            process.stdin.close()
        runs.append({"load": round(load, 2), "step_us_S": [round(ns / 1000) for ns in told["wall"]]})
    recorded = {
        "what": f"bench/reference_loop.py, {STEPS} steps after its warm-up, a fresh process each, one after another",
        "day": time.strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)),
        "runs": runs,
    }
    (DATA / f"steps_{name}.json").write_text(json.dumps(recorded) + "\n")


def of_steps(step_ns: Floats, ratio: float, rng: np.random.Generator) -> tuple[list[Block], Layout]:
    """Return blocks of the training from a random step on, and their layout."""
    layout = laid_out(float(step_ns.mean()), WARM, step_ns.size - WARM, 2, 1, int(rng.integers(1 << 30)))
    assert layout is not None
    at = int(rng.integers(0, step_ns.size - layout.steps + 1)) + layout.warm
    blocks = []
    for arm in layout.order:
        at += layout.dropped
        ns = float(step_ns[at : at + layout.measured].sum()) / (ratio if arm else 1)
        blocks.append(Block(arm, at, layout.measured, round(ns)))
        at += layout.measured
    return blocks, layout


def of_trials(mean_ns: Floats, ratio: float, rng: np.random.Generator) -> tuple[list[Block], Layout]:
    """Return recorded trials that ran one after another as blocks."""
    order = [arm for _ in range(TRIALS_A_SEQUENCE // 2) for arm in rng.permutation(2).tolist()]
    at = int(rng.integers(0, mean_ns.size - TRIALS_A_SEQUENCE + 1))
    means = mean_ns[at : at + TRIALS_A_SEQUENCE]
    blocks = [
        Block(arm, 1, 1, round(ns / (ratio if arm else 1))) for arm, ns in zip(order, means.tolist(), strict=True)
    ]
    return blocks, Layout(0, 0, 1, tuple(order), 2, 0)


def outlooks(made: Iterator[tuple[list[Block], Layout]]) -> Counter[Outlook]:
    return Counter(screened(blocks, ON, layout).outlook for blocks, layout in made)


def pairs_made(trials: list[Floats], ratio: float, sequences: int, rng: np.random.Generator) -> float:
    """Return how many pairs a remedy of *ratio* takes without a screening, in the mean."""
    design = Design()
    logs = (replayed(trials, 8, design.most_pairs, rng) + math.log(ratio) for _ in range(sequences))
    return float(np.mean([judged(one, design)[1] for one in logs]))


def row(ratio: float, said: Counter[Outlook], sequences: int, pairs: float) -> str:
    futile, promising = said[Outlook.FUTILE], said[Outlook.PROMISING]
    with_it = 1 + (1 - futile / sequences) * 2 * pairs
    return (
        f"  {ratio:4.2f}x  refused {share(futile, sequences)}, promising {promising / sequences:6.1%}; "
        f"processes {2 * pairs:4.1f} without, {with_it:4.1f} with"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="NAME")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.record:
        record(options.record, options.processes)
    rng, sequences = np.random.default_rng(options.seed), options.sequences
    equal = [json.loads(path.read_text()) for path in sorted(DATA.glob("equal_trials_*.json"))]
    trials = [np.array(one["step_ns_N"]) for one in equal]
    pairs = {ratio: pairs_made(trials, ratio, sequences, rng) for ratio in RATIOS}
    for path in sorted(DATA.glob("steps_*.json")):
        recorded = json.loads(path.read_text())
        print(f"{path.name}: {recorded['what']}; {recorded['cores']} cores, {recorded['day']}")
        for run in recorded["runs"]:
            step_ns = np.array(run["step_us_S"]) * 1000.0
            apart = blocks_apart(step_ns, rng)
            print(
                f" load {run['load']}, a step {step_ns.mean() / 1e6:.1f} ms, two blocks of one round {apart:.1%} apart"
            )
            for ratio in RATIOS:
                said = outlooks(of_steps(step_ns, ratio, rng) for _ in range(sequences))
                print(row(ratio, said, sequences, pairs[ratio]))
    print(f"{sum(one.size for one in trials)} equal trials as blocks")
    for ratio in RATIOS:
        said = outlooks(of_trials(trials[int(rng.integers(len(trials)))], ratio, rng) for _ in range(sequences))
        print(row(ratio, said, sequences, pairs[ratio]))


def blocks_apart(step_ns: Floats, rng: np.random.Generator) -> float:
    """Return the standard deviation of the log of a round, its median over a hundred sequences."""
    logs = (logs_of(of_steps(step_ns, 1.0, rng)[0], 2)[0] for _ in range(100))
    return float(np.median([one.std(ddof=1) for one in logs]))


if __name__ == "__main__":
    main()
