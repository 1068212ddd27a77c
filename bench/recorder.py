"""What recording costs the training: ``python bench/recorder.py [--processes N] [--rounds N] [--steps N]``.

Three measures that check one another:

- counted: how often a step of the reference loop calls each main part of the recorder, times what one call costs alone;
- switched: the same loop in one process, on tensors of three sizes, its probes switched on for a random half
  of the steps; torch.profiler for blocks of steps, as it takes long to start. All that the probes do is in it, the
  writing too, but their closed doors are not (0.1 us a call);
- observed: the reference loop in two fresh processes, one with the recorder, that take turns.

All are CPU time of the training thread. Counting tells too little, as between two steps the caches are the tensors';
and two processes differ by more than the recorder takes, so the switched measure is the one to state.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import math
import os
import pstats
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unstall.probes._recorder import Probe

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


class Loop:
    """The reference loop in a process of its own; it runs only while it is asked for a block of steps."""

    def __init__(self, mode: str) -> None:
        env = environment(recording() if mode == "recorder" else None)
        arguments = [mode] if mode in ("profiler", "stacks") else []
        self.process = subprocess.Popen(
            [sys.executable, str(LOOP), *arguments],
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.ask, self.answer = self.process.stdin, self.process.stdout
        while "ready" not in self.answer.readline():
            pass

    def block(self, steps: int) -> Steps:
        self.ask.write(f"{steps}\n")
        self.ask.flush()
        found: Steps = json.loads(self.answer.readline())
        return found

    def end(self) -> None:
        self.ask.close()
        self.process.wait()


def paired(mode: str, rounds: int, steps: int) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return by round: us a step that *mode* adds, the ratio; and all steps' wall time without and with it, ms.

    A round is blocks without, with, with, without: a drift of the machine cancels in it.
    """
    plain, other = Loop("plain"), Loop(mode)
    added, ratio, wall_plain, wall = [], [], list[float](), list[float]()
    for _ in range(rounds):
        blocks = [loop.block(steps) for loop in (plain, other, other, plain)]
        without, with_it = (statistics.median(blocks[one]["cpu"] + blocks[two]["cpu"]) for one, two in ((0, 3), (1, 2)))
        added.append((with_it - without) / 1e3)
        ratio.append(with_it / without)
        wall_plain += [ns / 1e6 for n in (0, 3) for ns in blocks[n]["wall"]]
        wall += [ns / 1e6 for n in (1, 2) for ns in blocks[n]["wall"]]
    plain.end()
    other.end()
    return added, ratio, wall_plain, wall


def interval(values: list[float]) -> str:
    """Return the median and its 95 % interval, by the sign test: no wild round moves it."""
    ordered, count = sorted(values), len(values)
    off = max(1, math.floor(count / 2 - 0.98 * math.sqrt(count)))
    return f"{statistics.median(ordered):8.3f} ({ordered[off - 1]:.3f} to {ordered[-off]:.3f})"


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


# ---------------------------------------------------------------- switched


def switched(rounds: int = 30) -> None:
    """Print what the probes add to a step of one process, and what torch.profiler does in blocks off-on-on-off."""
    import torch
    from reference_parts import apart, deep, switches, training

    torch.set_num_threads(1)
    probes, spent = switches(), apart()
    print(f"\nswitched: {rounds} rounds of four blocks, 95 % intervals")
    others = "profiler", "stacks"
    sizes = ("tiny", training(2, 4), 40, others), ("larger", training(128, 16), 15, others), ("long", deep(), 20, ())
    for size, step, steps, beside in sizes:
        for _ in range(40):
            step()
        size += f" ({cost_ns(step, 10, 5) / 1e6:.1f} ms)"
        for mode in ("recorder", *beside):
            if mode == "recorder":
                told = at_random(step, probes, spent, rounds if beside else 2 * rounds, 5 * steps)
            else:
                added, ratio = turns(step, probes, mode, rounds // 3, steps)
                told = f"{interval(added)} us a step   ratio {interval(ratio)}"
            print(f"  {size} step, {mode:9} {told}   {load()}")


def at_random(step: Callable[[], None], probes: list[Probe], spent: list[int], rounds: int, steps: int) -> str:
    """Return what the probes add to a step, us, and as a part of it; each step of a round has them on or off by lot.

    A step is told against its neighbours, which share whatever else the machine does, and the two kinds by their medians
    over all rounds: this tells 2 us on a machine where blocks of steps tell 20. A median does not see what is done in some
    steps only, and how often the recorder writes is a matter of time: that is *spent*, timed apart over steps that all have
    the probes on. The intervals are of rounds drawn again.
    """
    lot = random.Random(0)
    seen: list[tuple[list[float], list[float], float]] = []
    whole = []
    for _ in range(rounds):
        times, watched = list[int](), list[bool]()
        for _ in range(steps):
            watched.append(lot.random() < 0.5)
            times.append(one(step, probes, spent, watched[-1]))
        begun, alone = spent[0], steps // 4
        for _ in range(alone):
            one(step, probes, spent, True)
        beside = residues(times)
        off, on = ([ns for ns, kind in zip(beside, watched) if kind == which] for which in (False, True))
        seen.append((off, on, (spent[0] - begun) / alone))
        whole += [ns for ns, kind in zip(times, watched) if not kind]

    def added(chosen: list[tuple[list[float], list[float], float]]) -> float:
        off, on = (statistics.median(ns for one_round in chosen for ns in one_round[which]) for which in (0, 1))
        return on - off + statistics.fmean(one_round[2] for one_round in chosen)

    again = sorted(added(lot.choices(seen, k=rounds)) for _ in range(400))
    values = [ns / 1e3 for ns in (added(seen), again[9], again[-10])]
    parts = [1e3 * us / statistics.median(whole) for us in values]
    return "{:8.1f} ({:.1f} to {:.1f}) us a step   {:.2%} ({:.2%} to {:.2%}) of it".format(*values, *parts)


def one(step: Callable[[], None], probes: list[Probe], spent: list[int], watched: bool) -> int:
    """Return CPU ns of a step, its probes on or off, less what was spent apart in it."""
    for probe in probes:
        probe.on = watched
    apart_before, before = spent[0], time.thread_time_ns()
    step()
    return time.thread_time_ns() - before - (spent[0] - apart_before)


def residues(times: list[int], near: int = 20) -> list[float]:
    """Return *times* less the median of their neighbours, *near* on each side, with the probes and without."""
    return [ns - statistics.median(times[max(0, at - near) : at + near + 1]) for at, ns in enumerate(times)]


def turns(step: Callable[[], None], probes: list[Probe], mode: str, rounds: int, steps: int) -> tuple[list[float], ...]:
    """Return by round what *mode* adds to a step, us, and the ratio."""

    def block(watched: bool) -> list[int]:
        for probe in probes:
            probe.on = False
        times = []
        with profiling(mode if watched else "plain"):
            for _ in range(steps):
                before = time.thread_time_ns()
                step()
                times.append(time.thread_time_ns() - before)
        return times[3:]  # the first ones of a block start the profiler

    added, ratio = [], []
    for _ in range(rounds):
        off, on, again, last = (block(which) for which in (False, True, True, False))
        without, with_it = statistics.median(off + last), statistics.median(on + again)
        added.append((with_it - without) / 1e3)
        ratio.append(with_it / without)
    return added, ratio


def profiling(mode: str) -> contextlib.AbstractContextManager[object]:
    if mode not in ("profiler", "stacks"):
        return contextlib.nullcontext()
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU], with_stack=mode == "stacks")


# ---------------------------------------------------------------- observed


def observed(rounds: int, steps: int, processes: int) -> None:
    print(f"\nobserved: {processes} x {rounds} rounds of 4 x {steps} steps, 95 % intervals")
    for mode in ("recorder", "profiler", "stacks"):
        before, tries = load(), processes if mode == "recorder" else 1
        columns: tuple[list[float], ...] = ([], [], [], [])
        for _ in range(tries):
            for column, more in zip(columns, paired(mode, rounds, steps), strict=True):
                column += more
        added, ratio, wall_plain, wall = columns
        print(f"  {mode:9} {interval(added)} us a step   ratio {interval(ratio)}   {before}")
        p99 = [sorted(times)[int(0.99 * len(times))] for times in (wall_plain, wall)]
        print(f"  {'':9} p99 of the step's wall time {p99[0]:.2f} ms without, {p99[1]:.2f} ms with")


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
    command = [sys.executable, "-m", "unstall", "run", "-q", "--out", str(folder), str(LOOP)]
    subprocess.run(command, env=env, input=f"{steps}\n", text=True, stdout=subprocess.DEVNULL, check=True)
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
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=15, help="in a block")
    parser.add_argument("--only", choices=("counted", "switched", "observed", "startup", "beside"))
    options = parser.parse_args()
    if options.only in (None, "counted"):
        counted()
    if options.only in (None, "switched"):
        switched()
    if options.only in (None, "observed"):
        observed(options.rounds, options.steps, options.processes)
    if options.only in (None, "startup"):
        startup()
    if options.only in (None, "beside"):
        sampler_and_disk(2000)


if __name__ == "__main__":
    main()
