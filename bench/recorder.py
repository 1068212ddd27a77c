"""What recording costs the training: ``python bench/recorder.py [--pairs N] [--steps N]``.

Two measures that check one another.  *Counted*: how often a step of the reference loop calls each part of the
recorder, times what one call costs by itself.  *Observed*: CPU time of the training thread in fresh processes without
and with the recorder, in blocks without-with-with-without, so that a drift of the machine cancels; torch.profiler
likewise.  The load of the machine stands beside the numbers: on a busy one trust the counted measure.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import math
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
LOOP = HERE / "reference_loop.py"
SOURCE = HERE.parent / "src"
sys.path.insert(0, str(SOURCE))

Steps = dict[str, list[int]]


def recording() -> Path:
    """Return a new empty recording folder."""
    from unstall.launch import recording as recordings

    folder = recordings.create("bench", tempfile.mkdtemp(), os.environ)
    recordings.write_config(folder, {})
    return folder


def environment(folder: Path | None) -> dict[str, str]:
    """Return the environment of a training that records to *folder*; without the recorder where it is None."""
    env = {name: value for name, value in os.environ.items() if name != "UNSTALL_RECORDING"}
    if folder is not None:
        env["UNSTALL_RECORDING"] = str(folder)
        env["PYTHONPATH"] = str(SOURCE / "unstall/launch/inject")
    return env


def observe(steps: int, mode: str) -> Steps:
    """Run the loop once in a fresh process: *mode* is plain, recorder, profiler or stacks."""
    env = environment(recording() if mode == "recorder" else None)
    arguments = [mode] if mode in ("profiler", "stacks") else []
    done = subprocess.run(
        [sys.executable, str(LOOP), str(steps), *arguments], env=env, stdout=subprocess.PIPE, check=True
    )
    found: Steps = json.loads(done.stdout.splitlines()[-1])
    return found


def paired(mode: str, steps: int, pairs: int) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return by pair: us a step that *mode* adds, the ratio, and the p99 of the step without and with it, ms."""
    added, ratio, p99_plain, p99 = [], [], [], []
    for n in range(pairs):
        order = ("plain", mode) if n % 2 == 0 else (mode, "plain")
        seen = {which: observe(steps, which) for which in order}
        plain, other = (statistics.median(seen[which]["cpu"]) for which in ("plain", mode))
        added.append((other - plain) / 1e3)
        ratio.append(other / plain)
        for which, into in (("plain", p99_plain), (mode, p99)):
            into.append(sorted(seen[which]["wall"])[int(0.99 * steps)] / 1e6)
    return added, ratio, p99_plain, p99


def interval(values: list[float]) -> str:
    """Return mean and half width of the 95 % interval (Student)."""
    t = {2: 12.7, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}.get(len(values), 2.1)
    half = t * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):8.3f} +- {half:.3f}"


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} CPUs"


# ---------------------------------------------------------------- counted

CALLS = {  # name in the table -> functions of the probes that are that call
    "enter and leave": ("_accounting.py:leave",),
    "wrapper": ("_around.py:observed",),
    "span": ("_recorder.py:span",),
    "close a step": ("_recorder.py:close_step",),
    "fetch": ("fetching.py:after",),
}


def counted_calls(steps: int = 50) -> dict[str, float]:
    """Return the calls a step of every function of the probes, ``FILE:FUNCTION``, in this process."""
    from reference_parts import training

    step = training()
    for _ in range(20):
        step()
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(steps):
        step()
    profile.disable()
    found: dict[str, float] = {}
    for (file, _, function), (_, calls, *_) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if "/unstall/probes/" in file:
            key = f"{os.path.basename(file)}:{function}"
            found[key] = found.get(key, 0) + calls / steps
    return found


def cost_ns(call: Callable[[], object], times: int = 2000, repeats: int = 15) -> float:
    """Return CPU ns of one call: the best of several rounds, as only noise adds to it."""
    best = math.inf
    for _ in range(repeats):
        start = time.thread_time_ns()
        for _ in range(times):
            call()
        best = min(best, (time.thread_time_ns() - start) / times)
    return best


def microbenchmarks() -> dict[str, float]:
    """Return CPU ns of one call of each part, an empty call taken off."""
    from reference_parts import parts

    empty = cost_ns(lambda: None)
    return {name: max(0.0, cost_ns(call, times) - empty) for name, (call, times) in parts().items()}


def counted() -> None:
    calls, cost = counted_calls(), microbenchmarks()
    print(f"\ncounted: calls a step x cost of a call ({load()})")
    total = 0.0
    for name, functions in CALLS.items():
        times = sum(calls.get(function, 0) for function in functions)
        total += times * cost[name]
        print(f"  {name:16} {times:6.2f} x {cost[name]:8.0f} ns = {times * cost[name] / 1e3:7.2f} us")
    print(f"  {'in all':16} {'':22} {total / 1e3:7.2f} us a step")
    rest = {name: times for name, times in calls.items() if not any(name in of for of in CALLS.values())}
    print(
        "  called from these:",
        ", ".join(f"{name} {times:g}" for name, times in sorted(rest.items(), key=lambda x: -x[1])[:14]),
    )


# ---------------------------------------------------------------- observed


def observed(steps: int, pairs: int) -> None:
    print(f"\nobserved: CPU time of the training thread, {pairs} pairs of {steps} steps, 95 % intervals")
    for mode in ("recorder", "profiler", "stacks"):
        before = load()
        added, ratio, p99_plain, p99 = paired(mode, steps, pairs if mode == "recorder" else max(2, pairs // 2))
        print(f"  {mode:9} {interval(added)} us a step   ratio {interval(ratio)}   {before}")
        print(f"  {'':9} p99 of the step's wall time {interval(p99_plain)} ms without, {interval(p99)} ms with")


# ---------------------------------------------------------------- the rest


def startup(repeats: int = 7) -> None:
    """Print what recording adds to the start of a process, with torch and without."""
    print(f"\nstart-up, CPU ms of the process, median of {repeats} ({load()})")
    for what, code in (("python without torch", "pass"), ("import torch", "import torch")):
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(repeats):
            for with_us in times:
                env = environment(recording() if with_us else None)
                script = f"import time; {code}; print(time.process_time())"
                done = subprocess.run([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, check=True)
                times[with_us].append(1e3 * float(done.stdout))
        plain, ours = statistics.median(times[False]), statistics.median(times[True])
        print(f"  {what:22} {plain:8.1f} without, {ours:8.1f} with: {ours - plain:+.1f}")


def sampler_and_disk(steps: int) -> None:
    """Print what the samplers and the launcher take, and what a recording grows by."""
    folder = Path(tempfile.mkdtemp()) / "recording"
    env = {**environment(None), "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "unstall", "run", "-q", "--out", str(folder), str(LOOP), str(steps)]
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
    about = json.loads((folder / "recording.json").read_text())
    seconds = (about["reap_ns"] - about["spawn_ns"]) / 1e9
    print(f"\nbeside the training, over {seconds:.0f} s ({load()})")
    print(f"  samplers and launcher   {about['tool_cpu_ns'] / 1e9 / seconds:.4f} CPU s a second")
    for kind, pattern in (("rows, spans, batches", "*.wire"), ("stacks", "stacks-*"), ("machine", "machine.jsonl")):
        size = sum(path.stat().st_size for path in folder.glob(pattern))
        print(f"  {kind:22} {size / 1e6:7.2f} MB, {size / 1e6 / seconds * 3600:7.1f} MB an hour at this rate")
    print(
        "  rows and spans are rolled up after 4000 steps, stacks and readings come seldom after ten minutes: less then"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--only", choices=("counted", "observed", "startup", "beside"))
    options = parser.parse_args()
    if options.only in (None, "counted"):
        counted()
    if options.only in (None, "observed"):
        observed(options.steps, options.pairs)
    if options.only in (None, "startup"):
        startup()
    if options.only in (None, "beside"):
        sampler_and_disk(2000)


if __name__ == "__main__":
    main()
