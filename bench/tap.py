"""What listening to the compiler takes of a compilation: ``python bench/tap.py [--compilations N]``.

One process compiles the same model again and again, its probes switched on for a random half of the compilations: with
``aot_eager``, and with Inductor, whose cache serves from the second on. Counted is the CPU time of the whole process from
the call to its result. Beside it stands what two random halves of the compilations without the probes differ by (A/A).
Medians, and 95 % intervals of compilations drawn again.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch
from recorder import load
from reference_parts import switches_of
from torch import nn

from unstall.launch import recording as recordings
from unstall.probes import start


def _when(name: str, callback: Callable[[ModuleType], None]) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError:
        return
    callback(module)


def model() -> nn.Module:
    """Return a model of some twenty operations, whose compilation breaks once."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (
                nn.Sequential(*(part for _ in range(3) for part in (nn.Linear(32, 32), nn.Tanh()))) for _ in range(2)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x) * 2
            torch._dynamo.graph_break()
            return self.second(x).square().mean()

    return Net()


def compile_ms(net: nn.Module, backend: str, x: torch.Tensor) -> float:
    """Return the CPU time of the process, ms, that compiling *net* and one training pass of it take."""
    torch._dynamo.reset()
    compiled = torch.compile(net, backend=backend)
    before = time.process_time_ns()
    compiled(x).backward()
    return (time.process_time_ns() - before) / 1e6


def difference(some: list[float], others: list[float], lot: random.Random) -> str:
    """Return by how much the median of *some* lies above that of *others*, as a share, with its 95 % interval."""

    def told(one: list[float], other: list[float]) -> float:
        return statistics.median(one) / statistics.median(other) - 1

    again = sorted(told(lot.choices(some, k=len(some)), lot.choices(others, k=len(others))) for _ in range(1000))
    return f"{told(some, others):+.1%} ({again[24]:+.1%} to {again[-25]:+.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compilations", type=int, default=80)
    options = parser.parse_args()
    folder = recordings.create("bench", tempfile.mkdtemp(), os.environ)
    recordings.write_config(folder, {})
    start(str(folder), time.monotonic_ns(), _when)
    torch.set_num_threads(1)
    probes, lot = switches_of(), random.Random(0)
    for backend in ("aot_eager", "inductor"):
        net, x = model(), torch.randn(16, 32)
        for _ in range(4):
            compile_ms(net, backend, x)
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(options.compilations):
            on = lot.random() < 0.5
            for probe in probes:
                probe.on = on
            times[on].append(compile_ms(net, backend, x))
        without = times[False]
        halves = [without[::2], without[1::2]]
        print(f"{backend}: {statistics.median(without):.0f} ms of CPU time a compilation without the probes ({load()})")
        print(
            f"  with the probes        {difference(times[True], without, lot)}, {len(times[True])} against {len(without)}"
        )
        print(f"  without, two halves    {difference(*halves, lot)}")


if __name__ == "__main__":
    main()
