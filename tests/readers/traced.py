"""Small Kineto traces, made in the test: a training of two threads and a device, and ways to write it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

BASE_NS = 1_700_000_000_000_000_000
STEP_US = 1000.0


def span(cat, name, ts, dur, pid=10, tid=10, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name, ts, dur, correlation, stream=7, cat="kernel", **args):
    return span(cat, name, ts, dur, 0, stream, device=0, stream=stream, correlation=correlation, **args)


def step(number, at=5000.125):
    """Return the events of one step of 1 ms: an operator that launches, a copy, a collective and what is no work."""
    t, c = at + number * STEP_US, number * 10
    return [
        {"name": "process_name", "ph": "M", "ts": t, "pid": 10, "tid": 0, "args": {"name": "python"}},
        span("user_annotation", f"ProfilerStep#{number}", t, STEP_US - 0.5, **{"External id": c}),
        span("cpu_op", "aten::mm", t + 10, 50, **{"Input type": ["float", "float"], "Input Dims": [[64, 128], [128, 8]]}),
        span("cuda_runtime", "cudaLaunchKernel", t + 20, 5.001, correlation=c + 1),
        span("cuda_runtime", "cudaMemcpyAsync", t + 30, 7, correlation=c + 2),
        span("cpu_op", "autograd::engine::evaluate_function: MmBackward0", t + 100, 90, tid=11),
        span("cpu_op", "aten::mm", t + 110, 40, tid=11),
        span("cuda_runtime", "cudaLaunchKernel", t + 120, 5, tid=11, correlation=c + 3),
        span("python_function", "train.py(41): main", t + 1, 900, **{"Python id": 1, "Python parent id": None}),
        kernel("void gemm<float>", t + 60, 200.333, c + 1),
        kernel("Memcpy HtoD (Pageable -> Device)", t + 40, 12, c + 2, cat="gpu_memcpy", bytes=4096),
        kernel(
            "ncclDevKernel_AllReduce_Sum_f32", t + 300, 100, c + 3, 20,
            **{"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float"},
        ),
        span("gpu_user_annotation", f"ProfilerStep#{number}", t + 40, 400, 0, 7),
        span("cuda_sync", "Stream Sync", t + 500, 10, 0, 7, stream=7, correlation=c + 4),
        {"ph": "s", "id": c + 1, "pid": 10, "tid": 10, "ts": t + 20, "cat": "ac2g", "name": "ac2g"},
        {"ph": "f", "id": c + 1, "pid": 0, "tid": 7, "ts": t + 60, "cat": "ac2g", "name": "ac2g", "bp": "e"},
    ]  # fmt: skip


def trace(steps=3, rank=None, world=None, at=5000.125, base_ns=BASE_NS):
    """Return a whole trace as the object that is written."""
    made = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Fast GPU", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
        "host_name": "secret.example",
        "username": "somebody",
        "record_shapes": 1,
        "cuda_runtime_version": 12040,
        "baseTimeNanoseconds": base_ns,
        "traceEvents": [event for number in range(steps) for event in step(number, at)],
        "traceName": "/home/somebody/trace.json",
    }
    if rank is not None:
        made["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    return made


def write(path: Path, made, indent=None) -> Path:
    text = (made if isinstance(made, (str, bytes)) else json.dumps(made, indent=indent)) or ""
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data, 1) if path.name.endswith(".gz") else data)
    return path
