"""Each data worker computes with several threads, and together they want more cores than there are.

## What it is
PyTorch gives a data worker one thread for tensor operations. Where that is raised in the worker, or a library keeps a
pool of its own there (OpenMP and BLAS behind numpy, OpenCV), each of N workers runs a team as large as the machine.

## Why it costs
The teams push each other and the model off the cores. A thread that waits for its team spins meanwhile, which takes
CPU time from the ones it waits for. A batch then costs more CPU time than with one thread, and comes later.

## How it is told
The CPU time of all threads of a worker during a fetch is well above that of the thread that makes it, and the threads
of all workers exceed the usable cores. Lost are the loop's wait for its batches and the time in which the training thread
itself has no core, unless other programs leave too few for it. What one thread would need lies between the CPU time
of the fetch's own thread and that of its whole team; the time claimed rests on their geometric mean, the bounds of the
saving on the two ends. One worker with threads on free cores is left alone: there they help.

## Sources
PyTorch documentation, "Multiprocessing best practices: CPU oversubscription"; `torch/utils/data/_utils/worker.py`,
which sets one thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from unstall.causes._cause import Cause
from unstall.causes.data._input import CROWDED, Wait, crowd, place_of, usable, wait_of
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.loading import LoaderUse
from unstall.model.remedy import Edit, Remedy, RemoveCall, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Cores, Tables
from unstall.model.words import count

LEAST_LOST = 0.05  # of the step
_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDDFB|DDDDDDDDFB
    host   |wwwwwwww..|wwwwwwww..
"""


_USE = LoaderUse(
    0,
    Line("train.py", 9),
    "DataLoader",
    True,
    2,
    1.0,
    16 * _MS,
    workers=2,
    batch_wall_ns=16 * _MS,
    batch_cpu_ns=1 * _MS,
    batch_team_cpu_ns=9 * _MS,
    worker_threads=8,
)


# the picture's wait is 16 ms; here it is the model that has no core for 10 of 20 ms, and nothing waits for its batch
_MODEL = """
    step   |ssssssssss|ssssssssss
    main   |DFFFFFFBBB|DFFFFFFBBB
    host   |w.........|w.........
"""
_WAITED = {(Phase.FETCH, Activity.WAIT_DATA): 2 * _MS}
_PUSHED = _WAITED | {(Phase.FORWARD, Activity.STARVED): 6 * _MS, (Phase.BACKWARD, Activity.STARVED): 4 * _MS}
_READY = replace(_USE, wait_ns=_MS * 4 // 5)
_BRIEF = replace(_USE, batch_wall_ns=2 * _MS, batch_cpu_ns=_MS // 2, batch_team_cpu_ns=_MS * 7 // 5)


def _given_parts(parts: Mapping[tuple[Phase, Activity], int], cores: Cores) -> Given:
    return Given(tables={"loaders": (_READY,), "cores": cores, "steady_parts": parts})


_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Filtered(Dataset):
    def __init__(self):
        self.mix = torch.randn(192, 192, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return 960

    def __getitem__(self, i):
        return (self.mix @ self.mix).sum(0) / (i + 1), i % 4


def prepare(worker):
    torch.manual_seed(worker)
    torch.set_num_threads(8)  # <- fault


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(Filtered(), batch_size=16, num_workers=2, worker_init_fn=prepare)
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"{loss.item():.3f}")
"""


class ThreadsInWorkers(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS})

    cases = (
        # with one thread 3 ms of CPU time a batch, two workers on two cores: the step falls from 10 ms to 2.5 ms
        Fires(_PICTURE, spent_ms=15, given=Given(tables={"loaders": (_USE,), "cores": Cores(2.0, 1, 1.0, 1.0)})),
        # 0.8 ms on one thread, two workers: the step falls from 10 ms to 2 ms, which the model takes
        Fires(_PICTURE, spent_ms=16, given=Given(tables={"loaders": (_BRIEF,), "cores": Cores(2.0, 1, 1.0, 1.0)})),
        # 3 ms of CPU time a batch beside 4 ms of the model's: two cores take that within the 4.6 ms that the model takes
        Fires(_MODEL, spent_ms=10.8, given=_given_parts(_PUSHED, Cores(2.0, 1, 0.4, 0.4, 0.0, 0.5))),
        Silent(
            """
            step   |ssssssssss|ssssssssss
            main   |FFFFFFFBBB|FFFFFFFBBB
            """,
            "the model has a core all along, and the batches are there in time",
            _given_parts({(Phase.FORWARD, Activity.COMPUTE): 14 * _MS}, Cores(2.0, 1, 1.0, 1.0, 0.0, 0.0)),
        ),
        Silent(
            _MODEL,
            "it is other programs that take the model's core",
            _given_parts(_PUSHED, Cores(2.0, 1, 0.4, 0.4, 1.6, 0.5)),
        ),
        Silent(
            _PICTURE,
            "so much of a small batch is what sending it off takes, and the worker has one thread",
            Given(tables={"loaders": (replace(_BRIEF, worker_threads=1),), "cores": Cores(2.0, 1, 1.0, 1.0)}),
        ),
        Silent(
            _PICTURE,
            "one worker's team has cores to itself",
            Given(tables={"loaders": (replace(_USE, workers=1),), "cores": Cores(16.0, 1, 1.0, 1.0)}),
        ),
        Silent(
            _PICTURE,
            "the batch waits for a disk or the net: what its queue's thread adds to little CPU time is no team's work",
            Given(
                tables={
                    "loaders": (replace(_USE, batch_cpu_ns=_MS // 2, batch_team_cpu_ns=2 * _MS),),
                    "cores": Cores(2.0, 1, 1.0, 1.0),
                }
            ),
        ),
        Silent(
            _PICTURE,
            "more threads are allowed than are used: all CPU time is the fetch's own thread's",
            Given(tables={"loaders": (replace(_USE, batch_team_cpu_ns=1 * _MS),), "cores": Cores(2.0, 1, 1.0, 1.0)}),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("    torch.set_num_threads(8)  # <- fault\n", ""),
            also=frozenset(
                {"kernels/too-few-threads", "data/slow-transform", "data/starved-loader", "data/slow-worker-start"}
            ),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        for use in tables.loaders:
            if use.trains and crowd(use, tables.cores) >= CROWDED:
                wait = wait_of(use, ledger, tables)
                pushed = _pushed_off(run, tables) if wait.scope is Scope.STEADY else {}
                yield from self._of(use, wait, pushed, run, tables)

    def _of(
        self, use: LoaderUse, wait: Wait, pushed: Mapping[Phase, int], run: Run, tables: Tables
    ) -> Iterator[Finding]:
        ends = (use.batch_cpu_ns, use.batch_team_cpu_ns)
        likely, most, least = (
            _lost_ns(use, wait, sum(pushed.values()), tables, ns) for ns in (int(math.sqrt(ends[0] * ends[1])), *ends)
        )
        if likely < LEAST_LOST * _step_ns(wait, tables):
            return
        over = 1 if wait.scope is Scope.STEADY else wait.steps
        threads = use.worker_threads or 1
        where = use.threads_set_at if threads > 1 and use.threads_set_at is not None else place_of(use, run)
        yield Finding(
            self.id,
            f"{count(use.workers or 0, 'worker')} with several threads each crowd {usable(tables.cores):g} cores: "
            f"a batch takes {ends[1] / max(1, ends[0]):.1f} times the CPU time of the thread that makes it.",
            where,
            wait.scope,
            _stakes(wait, pushed, likely),
            Weight.NEEDLESS,
            Basis.SAMPLED,
            (
                Evidence("CPU time of a fetch, all threads, median", ends[1], "ns", "rank 0: worker fetches"),
                Evidence("CPU time of a fetch, its own thread, median", ends[0], "ns", "rank 0: worker fetches"),
                Evidence(
                    "time of a fetch without a core, median", use.batch_run_queue_ns, "ns", "rank 0: worker fetches"
                ),
                Evidence("threads for tensor operations, a worker", threads, "count", "workers' settings"),
                Evidence("usable cores", tables.cores.usable, "count", "machine"),
            ),
            Saving(int(min(least, most) * over), int(most * over)),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        edits: tuple[Edit, ...] = ()
        title = "Give each worker one thread (OMP_NUM_THREADS=1, cv2.setNumThreads(0) in worker_init_fn)"
        if isinstance(finding.where, Line) and any(use.threads_set_at == finding.where for use in tables.loaders):
            title = "Leave each worker at the one thread that PyTorch gives it"
            edits = (RemoveCall(finding.where.file, finding.where.line, "torch.set_num_threads"),)
        yield Remedy(
            f"{self.id}#one-thread",
            title,
            Safety.SAME_MATH,
            edits,
            why="sums are rounded in another order with another number of threads",
        )


def _step_ns(wait: Wait, tables: Tables) -> float:
    return tables.steady_ns / tables.rank_steps if wait.step_ns <= tables.step_ns else wait.step_ns


def _pushed_off(run: Run, tables: Tables) -> dict[Phase, int]:
    """Return the steady time in which the training thread had no core outside its fetches, by phase, ns.

    Less what is the other programs' doing: what they leave of the cores may be less than the model's threads need.
    """
    phases = {
        phase: ns
        for (phase, activity), ns in tables.steady_parts.items()
        if activity is Activity.STARVED and phase is not Phase.FETCH
    }
    cores = usable(tables.cores)
    need = min(cores, run.ranks[0].facts.number("threads.intra") or 1.0)
    lacking = max(0.0, need + (tables.cores.others_busy or 0.0) - cores) / need
    ours = max(0.0, 1 - lacking * tables.steady_ns / max(1, sum(phases.values())))
    return {phase: int(ns * ours) for phase, ns in phases.items() if ns * ours >= 1}


def _lost_ns(use: LoaderUse, wait: Wait, pushed_ns: int, tables: Tables, cpu_ns: int) -> float:
    """Return the time that a step takes longer than where a batch takes *cpu_ns* on one thread of each worker.

    Args:
        pushed_ns: steady time in which the training thread had no core, all steps.
    """
    step_ns = _step_ns(wait, tables)
    gone_ns = wait.step_ns + pushed_ns / tables.rank_steps
    busy = tables.cores.busy_outside_fetch
    work = max(0.0, step_ns - wait.step_ns) * (1.0 if busy is None else busy) + cpu_ns * use.per_step
    least = max(step_ns - gone_ns, cpu_ns * use.per_step / max(1, use.workers or 1), work / usable(tables.cores))
    return min(gone_ns, max(0.0, step_ns - least))


def _stakes(wait: Wait, pushed: Mapping[Phase, int], lost_ns: float) -> tuple[Stake, ...]:
    """Return what *lost_ns* a step stands on: the wait, and beyond it the time without a core, by phase."""
    waited = min(1.0, lost_ns / max(1.0, wait.step_ns))
    rest = max(0.0, lost_ns * wait.steps - wait.ns) / max(1, sum(pushed.values()))
    starved = tuple(Stake(phase, Activity.STARVED, int(ns * min(1.0, rest))) for phase, ns in pushed.items() if rest)
    return (*((wait.stake(waited),) if wait.ns else ()), *starved)
