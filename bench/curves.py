"""The search of a knob on recorded responses: how far from the best value of the grid it ends, and in how many trials.

usage: python bench/curves.py [--seed N]
       python bench/curves.py --record       records the responses anew, some 4 minutes

Each response is the step of a small training at every value of a knob, from 1 to 24, measured twice in one process, the
values in a random order each time.  A search is told ratios of one of the two measurements, by lot, so it meets the
noise of the machine; how good the value is that it ends with is read off the mean of both.  Searches begin at every value
within a factor of two of the smallest one that is as good as the best.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from unstall.model.remedy import Knob
from unstall.trials.search import AS_GOOD, Search

DATA = Path(__file__).parent / "data" / "curves.json"
MOST = 24
SECONDS = 0.5  # of steps at each value
Floats = NDArray[np.float64]


# ---------------------------------------------------------------- recorded


def loaded(read_s: float, work: int, rest_ms: float) -> Callable[[int], float]:
    """Return what measures the step, ns, with so many workers: samples that block, then keep a core busy; then the model."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 1 << 20

        def __getitem__(self, index: int) -> torch.Tensor:
            time.sleep(read_s)
            return torch.full((16,), float(sum(k % 7 for k in range(work))))

    weight = torch.randn(256, 256)

    def step_ns(workers: int) -> float:
        loader = iter(DataLoader(Rows(), batch_size=8, num_workers=workers))
        ends = []
        for _ in range(3 * workers + 10):  # what the workers hold ready at the start is used up
            next(loader)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until or len(ends) < 10:
            next(loader)
            busy = time.thread_time() + rest_ms / 1e3
            while time.thread_time() < busy:
                weight @ weight
            ends.append(time.monotonic_ns())
        return (ends[-1] - ends[0]) / (len(ends) - 1)

    return step_ns


def threaded(size: int) -> Callable[[int], float]:
    """Return what measures the step, ns, with so many threads inside an operation."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.GELU(), torch.nn.Linear(size, size))
    batch = torch.randn(64, size)

    def step_ns(threads: int) -> float:
        torch.set_num_threads(threads)
        for _ in range(3):
            model(batch).sum().backward()
        start, steps = time.monotonic_ns(), 0
        while time.monotonic_ns() - start < SECONDS * 1e9:
            model(batch).sum().backward()
            steps += 1
        return (time.monotonic_ns() - start) / steps

    return step_ns


RESPONSES: dict[str, Callable[[], Callable[[int], float]]] = {
    "workers, reads that block": lambda: loaded(0.008, 0, 4.0),
    "workers, reads and work": lambda: loaded(0.006, 5000, 6.0),
    "workers, work alone": lambda: loaded(0.0, 20_000, 5.0),
    "threads, operations of 0.3 ms": lambda: threaded(128),
    "threads, operations of 10 ms": lambda: threaded(1024),
}


def record() -> None:
    import torch

    torch.set_num_threads(1)
    found, lot = {}, random.Random(0)
    for name, make in RESPONSES.items():
        step_ns, rounds, loads = make(), [], []
        for _ in range(2):
            at = dict.fromkeys(range(1, MOST + 1), 0.0)
            for value in lot.sample(sorted(at), len(at)):
                loads.append(os.getloadavg()[0])
                at[value] = round(step_ns(value))
            rounds.append(list(at.values()))
        torch.set_num_threads(1)
        found[name] = {"step_ns_RN": rounds, "load": [min(loads), max(loads)]}
        print(name, [f"{ns / 1e6:.1f}" for ns in np.mean(rounds, axis=0)], found[name]["load"], flush=True)
    cores = len(os.sched_getaffinity(0))
    DATA.write_text(json.dumps({"cores": cores, "day": time.strftime("%Y-%m-%d"), "responses": found}) + "\n")


# ---------------------------------------------------------------- replayed


def searched(rounds: Floats, predicted: int, lot: random.Random) -> Search:
    """Return the ended search on *rounds*, steps in ns (rounds, values), each trial one of the rounds by lot."""
    search = Search(Knob("knob", predicted, 1, rounds.shape[1], "linear"))
    base = float(lot.choice(rounds[:, 0].tolist()))
    while (value := search.next()) is not None:
        search.tell(value, base / float(lot.choice(rounds[:, value - 1].tolist())))
    return search


def starts(step_ns: Floats) -> list[int]:
    """Return the values within a factor of two of the smallest one that is as good as the best."""
    right = 1 + int(np.argmax(step_ns <= (1 + AS_GOOD) * step_ns.min()))
    return [value for value in range(1, step_ns.size + 1) if right / 2 <= value <= 2 * right]


def replay(seed: int, times: int = 20) -> None:
    recorded = json.loads(DATA.read_text())
    print(f"recorded on {recorded['cores']} cores, {recorded['day']}")
    print(
        f"{'response':32} {'best':>5} {'noise':>6} {'searches':>9} {'within 5 %':>11} {'worst':>7} {'trials':>7}   load"
    )
    all_losses: list[float] = []
    for name, one in recorded["responses"].items():
        rounds = np.array(one["step_ns_RN"])
        mean = rounds.mean(axis=0)
        lot, losses, trials = random.Random(seed), [], []
        for predicted in starts(mean):
            for _ in range(times):
                search = searched(rounds, predicted, lot)
                losses.append(float(mean[search.best() - 1] / mean.min() - 1))
                trials.append(len(search.tried))
        noise = float(np.median(np.abs(np.log(rounds[0] / rounds[1])))) / np.sqrt(2)
        all_losses += losses
        within = np.mean(np.array(losses) <= 0.05)
        load = "-".join(f"{of:.1f}" for of in one["load"])
        print(
            f"{name:32} {1 + int(mean.argmin()):5} {noise:6.1%} {len(losses):9} {within:11.0%} {max(losses):7.1%} "
            f"{np.mean(trials):7.1f}   {load}"
        )
    print(f"all: within 5 % of the best {np.mean(np.array(all_losses) <= 0.05):.0%} of {len(all_losses)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.record:
        record()
    replay(options.seed)


if __name__ == "__main__":
    main()
