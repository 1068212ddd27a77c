"""Small profiler traces, written as Kineto does: a loop of steps whose times are stated, so that every sum is known."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEVICE, HOST, MAIN, STREAM = 0, 4242, 4242, 7  # numbers of the device, the process, its thread, the stream
BEGIN_US = 1_700_000_000_000_000  # 2023: times count from 1970


@dataclass
class Made:
    """A trace in the making; times in microseconds from its begin.

    One step of *step_us*: a forward that launches a kernel, a copy and, where *collective*, an all-reduce; then an
    `aten::item` that waits for the device.
    """

    steps: int = 4
    step_us: int = 1000
    rank: int | None = None
    world_size: int = 1
    collective: bool = False
    device: bool = True
    events: list[dict[str, object]] = field(default_factory=list)
    launched: int = 0

    def call(self, category: str, name: str, start: float, length: float, **args: object) -> None:
        self.events.append({
            "ph": "X", "cat": category, "name": name, "pid": HOST, "tid": MAIN, "ts": BEGIN_US + start, "dur": length,
            "args": args,
        })  # fmt: skip

    def work(self, category: str, name: str, start: float, length: float, **args: object) -> None:
        """Launch a piece of device work: the host's call 40 us before, 5 us long, and the arrow between them."""
        if not self.device:
            return
        self.launched += 1
        self.call("cuda_runtime", "cudaLaunchKernel", start - 40, 5, correlation=self.launched)
        stream = {"pid": DEVICE, "tid": STREAM}
        self.events.append({
            "ph": "X", "cat": category, "name": name, **stream, "ts": BEGIN_US + start, "dur": length,
            "args": {"correlation": self.launched, "stream": STREAM, "device": DEVICE, **args},
        })  # fmt: skip
        flow = {"cat": "ac2g", "name": "ac2g", "id": self.launched}
        self.events.append({"ph": "s", **flow, "pid": HOST, "tid": MAIN, "ts": BEGIN_US + start - 40})
        self.events.append({"ph": "f", **flow, **stream, "ts": BEGIN_US + start, "bp": "e"})

    def step(self, number: int) -> None:
        at = number * self.step_us
        self.call("user_annotation", f"ProfilerStep#{number}", at, self.step_us)
        self.call("cpu_op", "aten::linear", at + 50, 150)
        self.call("cpu_op", "aten::addmm", at + 60, 120)
        self.work("kernel", "void gemm<float, 4>(float const*, int)", at + 120, 300)
        self.work("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at + 430, 20, bytes=4096)
        if self.collective:
            self.work("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", at + 470, 100)
        self.call("cpu_op", "aten::item", at + 600, 200)
        self.call("cuda_runtime", "cudaStreamSynchronize", at + 610, 180, correlation=10_000 + number)

    def text(self) -> str:
        for number in range(self.steps):
            self.step(number)
        about: dict[str, object] = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA A100", "computeMajor": 8, "computeMinor": 0}],
        }
        if self.rank is not None:
            group = {"backend": "nccl", "rank": self.rank, "world_size": self.world_size}
            about["distributedInfo"] = group
        names = [
            {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": BEGIN_US, "args": {"name": name}}
            for pid, name in ((HOST, "python"), (DEVICE, "python"))
        ]
        return json.dumps({**about, "traceEvents": names + self.events, "traceName": "made"})

    def write(self, path: Path) -> Path:
        text = self.text().encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return path


def ranks(folder: Path, world_size: int, *present: int) -> list[Path]:
    """Write the traces of the *present* ranks of a job of *world_size*."""
    made: Mapping[int, Made] = {rank: Made(rank=rank, world_size=world_size, collective=True) for rank in present}
    return [one.write(folder / f"rank{rank}.pt.trace.json") for rank, one in made.items()]
