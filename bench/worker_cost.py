"""What recording costs a data worker: ``python bench/worker_cost.py [--batch-ms 1] [--rounds N]``.

One worker makes batches of about a millisecond of CPU time, and its probes are switched on for a random half of them.
Counted is the CPU time of the whole worker, all its threads, from the begin of one fetch to that of the next: the fetch,
what it writes, and the sending. A block is 200 fetches, its value the mean with the probes less the mean without;
stated are the median of the blocks and its 95 % interval by the sign test. The goal is under 1 % of a fetch of 1 ms.

The first fetches of a worker are left out: after 256 that take under 5 ms each one in 64 is recorded. What is done
once in 64 fetches or more seldom is in it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch
from recorder import interval, load
from reference_parts import recorder, switches
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

WARM = 300  # fetches
BLOCK = 200
SAMPLES = 16  # a batch


class Busy(Dataset[torch.Tensor]):
    """Samples that take *loops* turns of a Python loop each."""

    def __init__(self, length: int, loops: int) -> None:
        self.length, self.loops = length, loops

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> torch.Tensor:
        total = 0
        for n in range(self.loops):
            total += n
        return torch.full((16,), float(total + i))


def loops_of(batch_ms: float) -> int:
    """Return the turns of a sample's loop that make a batch of *batch_ms* of CPU time, with what collating takes."""
    data, loops = Busy(SAMPLES, 10_000), 10_000
    fetcher = _MapDatasetFetcher(data, True, torch.utils.data.default_collate, False)

    def took(turns: int) -> float:
        data.loops = turns
        times = []
        for _ in range(30):
            before = time.thread_time_ns()
            fetcher.fetch(list(range(SAMPLES)))
            times.append(time.thread_time_ns() - before)
        return statistics.median(times) / 1e6

    empty, full = took(0), took(loops)
    return max(0, round(loops * (batch_ms - empty) / (full - empty)))


def switching(told: Path) -> Callable[[int], None]:
    """Return what a worker does as it begins: switch the probes by lot, and write each block's two means to *told*."""

    def begin(worker: int) -> None:
        probes, lot = switches(), random.Random(worker)
        original = _MapDatasetFetcher.fetch
        cycles: dict[bool, list[int]] = {False: [], True: []}
        count, watched, since = 0, True, 0

        def fetch(fetcher: Any, index: Any) -> Any:
            nonlocal count, watched, since
            now = time.process_time_ns()
            if count > WARM:
                cycles[watched].append(now - since)
                if (count - WARM) % BLOCK == 0:
                    with told.open("a") as file:
                        file.write(json.dumps([statistics.mean(cycles[which]) for which in (False, True)]) + "\n")
                    cycles[False].clear()
                    cycles[True].clear()
            count += 1
            watched = count <= WARM or lot.random() < 0.5
            for probe in probes:
                probe.on = watched
            since = time.process_time_ns()
            return original(fetcher, index)

        _MapDatasetFetcher.fetch = fetch

    return begin


def measured(blocks: int, batch_ms: float) -> list[tuple[float, float]]:
    """Return by block the CPU time of a cycle of the worker without the probes and with them, us."""
    recorder()
    loops = loops_of(batch_ms)
    with tempfile.TemporaryDirectory() as name:
        told = Path(name) / "blocks"
        data = Busy(SAMPLES * (WARM + blocks * BLOCK + 2), loops)
        for _ in DataLoader(data, batch_size=SAMPLES, num_workers=1, worker_init_fn=switching(told)):
            pass
        rows = [json.loads(line) for line in told.read_text().splitlines()]
    return [(without / 1e3, with_it / 1e3) for without, with_it in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-ms", type=float, default=1.0, help="CPU time of a fetch")
    parser.add_argument("--rounds", type=int, default=2, help="workers, one after another")
    parser.add_argument("--blocks", type=int, default=40, help=f"of {BLOCK} fetches, of each worker")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for _ in range(options.rounds) for row in measured(options.blocks, options.batch_ms)]
    added = [with_it - without for without, with_it in rows]
    cycle = statistics.median(without for without, _ in rows)
    print(f"a cycle of the worker takes {cycle:.0f} us of CPU time without the probes   {load()}")
    print(f"the probes add {interval(added)} us")
    print(f"of the cycle   {interval([100 * (with_it / without - 1) for without, with_it in rows])} %")


if __name__ == "__main__":
    main()
