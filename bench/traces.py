"""What reading a trace costs: ``python bench/traces.py [--trace FILE] [--mb N] [--rounds N] [--hta-python PYTHON]``.

A trace of about N MB of JSON is made by repeating a real one (``--trace``, any file that torch.profiler wrote) or a
drawn training step, each time later and with its own correlations. It is then read in child processes that take
turns: unstall, unstall out of its cache, and HolisticTraceAnalysis where the Python of an environment that has it is
given (``python -m venv DIR && DIR/bin/pip install HolisticTraceAnalysis``; ``--hta-python DIR/bin/python``). Stated
are medians of CPU seconds, without the imports, and of the largest resident memory, with them.

``--account`` adds the accounts to unstall's side, and the calls of HTA that ask for the same to the other.
``--linear`` reads 1/4, 1/2 and the whole of N MB instead, unstall alone, to show that cost grows as the text does.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
Event = dict[str, object]

READ = """
import json, os, resource, sys, time
import numpy, msgspec
sys.path.insert(0, os.environ["BENCH_SOURCE"])
from unstall.readers import join
if sys.argv[2] == "account":
    from unstall import pipeline
start = time.process_time(), time.perf_counter()
run = join.read([sys.argv[1]])
if sys.argv[2] == "account":
    pipeline.account(run)
end = time.process_time(), time.perf_counter()
events = sum(len(rank.trace.calls.start_ns) + len(rank.trace.work.start_ns) for rank in run.ranks)
"""
HTA = """
import json, os, resource, sys, time
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
import logging; logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
start = time.process_time(), time.perf_counter()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
if sys.argv[2] == "account":
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)
    analysis.get_queue_length_summary(ranks=[0])
    analysis.get_memory_bw_summary(ranks=[0])
end = time.process_time(), time.perf_counter()
events = len(analysis.t.get_trace(0))
"""
SAY = """
def peak_mb():  # VmHWM: ru_maxrss still holds that of the process that started this one
    try:
        said = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
        return int(said[0].split()[1]) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"cpu_s": end[0] - start[0], "wall_s": end[1] - start[1], "events": events,
                  "peak_mb": peak_mb()}))
"""


def drawn_step() -> list[Event]:
    """Return the events of one step of a small training: 400 operators, each with a launch and a kernel."""
    events: list[Event] = []
    names = ("aten::addmm", "aten::native_layer_norm", "aten::gelu", "aten::_scaled_dot_product_flash_attention")

    def add(category: str, name: str, ts: float, dur: float, thread: int, **arguments: object) -> None:
        place = {"pid": 0 if category == "kernel" else 4711, "tid": thread, "ts": round(ts, 3), "dur": dur}
        events.append({"ph": "X", "cat": category, "name": name, **place, "args": arguments})

    add("user_annotation", "ProfilerStep#0", 0.0, 24000.0, 4711, **{"External id": 0, "Ev Idx": 0})
    for number in range(400):
        at, name = number * 55.017, names[number % len(names)]
        shapes = {"Input type": ["float", "float", "Scalar"], "Input Dims": [[64, 128 + number % 8], [128, 512], []]}
        add("cpu_op", name, at, 41.125, 4711, **{"External id": number, **shapes, "Ev Idx": number})
        add("cpu_op", f"{name}_out", at + 2, 33.5, 4711, **{"External id": number, "Ev Idx": number})
        add(
            "cuda_runtime",
            "cudaLaunchKernel",
            at + 10,
            7.75,
            4711,
            **{"External id": number, "cbid": 211, "correlation": number},
        )
        kernel = f"void at::native::kernel_{number % 40}<float, 4, at::native::functor<float>>(int, float*)"
        add(
            "kernel", kernel, at + 60, 38.432, 7,
            **{
                "External id": number, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": number,
                "registers per thread": 32, "grid": [128, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 63,
            },
        )  # fmt: skip
        flow = {"id": number, "cat": "ac2g", "name": "ac2g"}
        events.append({"ph": "s", **flow, "pid": 4711, "tid": 4711, "ts": round(at + 10, 3)})
        events.append({"ph": "f", **flow, "pid": 0, "tid": 7, "ts": round(at + 60, 3), "bp": "e"})
    return events


def later(event: Event, turn: int, span_us: float, numbers: int) -> Event:
    """Return *event* as it comes in the *turn*-th repetition."""
    moved = dict(event)
    if isinstance(ts := event.get("ts"), (int, float)):
        moved["ts"] = ts + int(span_us) * turn if isinstance(ts, int) else round(ts + int(span_us) * turn, 3)
    arguments = event.get("args")
    if isinstance(arguments, dict) and isinstance(arguments.get("correlation"), int):
        moved["args"] = {**arguments, "correlation": arguments["correlation"] + numbers * turn}
    if isinstance(event.get("id"), int):
        moved["id"] = int(str(event["id"])) + numbers * turn
    name = str(event.get("name"))
    if found := re.fullmatch(r"ProfilerStep#(\d+)", name):
        moved["name"] = f"ProfilerStep#{int(found[1]) + 1000 * turn}"
    return moved


def repeated(trace: Path | None, size: int) -> Iterator[str]:
    """Yield the text of a trace of about *size* bytes."""
    base: dict[str, object] = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    }
    events = drawn_step()
    if trace is not None:
        data = trace.read_bytes()
        whole = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        base, events = ({}, whole) if isinstance(whole, list) else (whole, whole.pop("traceEvents"))
    timed = [event for event in events if event.get("ph") == "X"]
    starts = [float(str(event["ts"])) for event in timed]
    span_us = max(at + float(str(event["dur"])) for at, event in zip(starts, timed)) - min(starts) + 1000
    numbers = 1 + max(
        int(args.get("correlation") or 0) for event in timed if isinstance(args := event.get("args"), dict)
    )
    yield json.dumps(base)[:-1] + (", " if base else "") + '"traceEvents": [\n'
    written = turn = 0
    while written < size:
        for event in events:
            text = json.dumps(later(event, turn, span_us, numbers), separators=(", ", ": "))
            text = f"{',' if written else ''}\n  {text}"
            written += len(text)
            yield text
            if written >= size:
                break
        turn += 1
    yield "\n]}\n"


def make(trace: Path | None, size: int, path: Path) -> Path:
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else open(path, "w") as file:
        file.writelines(repeated(trace, size))
    return path


def measured(python: str, code: str, path: Path, what: str, cache: Path | None = None) -> dict[str, float]:
    """Return what one child process took."""
    env = {**os.environ, "BENCH_SOURCE": str(SOURCE), "UNSTALL_NO_CACHE": "" if cache else "1"}
    if cache:
        env["XDG_CACHE_HOME"] = str(cache)
    done = subprocess.run(
        [python, "-c", code + SAY, str(path), what], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{python} failed:\n{done.stderr[-2000:]}")
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said


def told(name: str, taken: list[dict[str, float]], size: int) -> dict[str, float]:
    median = {key: statistics.median(one[key] for one in taken) for key in taken[0]}
    spread = f"{min(one['cpu_s'] for one in taken):.2f}-{max(one['cpu_s'] for one in taken):.2f}"
    print(
        f"{name:16} {median['cpu_s']:7.2f} s CPU ({spread})  {median['wall_s']:7.2f} s wall  {median['peak_mb']:6.0f} MB peak"
        f"  {int(median['events']):9,} events  {size / 1e6 / max(median['cpu_s'], 1e-9):6.0f} MB/s"
    )
    return median


def compare(args: argparse.Namespace, folder: Path) -> None:
    path = make(args.trace, int(args.mb * 1e6), folder / ("trace.json.gz" if args.packed else "trace.json"))
    size = int(args.mb * 1e6)
    what = "account" if args.account else "read"
    kinds: dict[str, tuple[str, str, Path | None]] = {
        "unstall": (sys.executable, READ, None),
        "unstall, cached": (sys.executable, READ, folder / "cache"),
    }
    if args.hta_python:
        kinds["HTA"] = (args.hta_python, HTA, None)
    measured(*kinds["unstall, cached"][:2], path, what, kinds["unstall, cached"][2])  # fills the cache
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    for turn in range(args.rounds):
        for name in list(kinds)[:: 1 if turn % 2 else -1]:
            python, code, cache = kinds[name]
            taken[name].append(measured(python, code, path, what, cache))
    print(
        f"{what} {size / 1e6:.0f} MB of JSON{' in gzip' if args.packed else ''}, {args.rounds} rounds in turns, {_load()}"
    )
    medians = {name: told(name, times, size) for name, times in taken.items()}
    if "HTA" in medians:
        for key, words in (("cpu_s", "less CPU"), ("peak_mb", "less memory")):
            ratios = [theirs[key] / ours[key] for theirs, ours in zip(taken["HTA"], taken["unstall"])]
            print(f"HTA / unstall: {statistics.median(ratios):.1f}x {words} ({min(ratios):.1f}-{max(ratios):.1f})")


def linear(args: argparse.Namespace, folder: Path) -> None:
    print(f"reading parts of {args.mb:.0f} MB, {args.rounds} rounds, {_load()}")
    for part in (0.25, 0.5, 1.0):
        size = int(args.mb * 1e6 * part)
        path = make(args.trace, size, folder / "trace.json")
        told(f"{size / 1e6:.0f} MB", [measured(sys.executable, READ, path, "read") for _ in range(args.rounds)], size)


def _load() -> str:
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="a real trace to repeat")
    parser.add_argument("--mb", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--packed", action="store_true", help="read .json.gz")
    parser.add_argument("--account", action="store_true", help="the accounts as well")
    parser.add_argument("--linear", action="store_true")
    parser.add_argument("--hta-python", help="the Python of an environment that has HolisticTraceAnalysis")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (linear if args.linear else compare)(args, Path(folder))


if __name__ == "__main__":
    main()
