"""The loop waits for a batch that too few workers (or none) prepare.

## What it is
The work of making a batch is needed, but nothing does it while the model works: the loop makes its batches
itself, or its workers are too few to keep up.

## Why it costs
Every nanosecond that the loop waits or loads is added to the step. Workers would have spent it beside the step.

## How it is told
Ledger time of FETCH in the training loop, against what a batch costs whoever makes it (wall, CPU, blocked and
run-queue time of each fetch). The number of workers follows from arithmetic: a batch's cost over the rest of the
step, bounded by the cores that this process may really use; time that a batch spends blocked (reads, latency)
overlaps beyond the cores. Only the time that these workers would hide is claimed. Where the cores are busy already
and the batch costs CPU time, more workers cannot help, and nothing is said here. Loaders of evaluations are left
alone, and so is the time in which workers start (`data/workers-respawned`, `data/slow-worker-start`).

## Sources
PyTorch Performance Tuning Guide, "Enable asynchronous data loading and augmentation".
"""

from __future__ import annotations

from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.data._input import LOADER, Wait, is_busy, loader_setting, place_of, usable, wait_of
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Scope, Weight
from unstall.model.ledger import Basis, Ledger
from unstall.model.loading import LoaderUse
from unstall.model.remedy import Edit, Knob, Remedy, Safety, SetKeyword, Switch
from unstall.model.run import Run, Sensor
from unstall.model.tables import Cores, Tables
from unstall.model.words import count

LATENCY_WORKERS = 8  # workers for batches that mostly wait, whatever the cores; beyond it memory and start-up cost more
MOST_WORKERS = 32
# To hand a batch from a worker to the loop: a queue, and for each tensor a file descriptor that the worker is asked for. 1.1 ms
# for one small tensor, 1.9, 2.3 and 3.3 for two, four and eight, measured in a loop that computes for 6 ms on two virtual cores
# with other work beside; less than half of it on a machine with cores to spare.
HANDED_NS, TENSOR_NS = 400_000, 300_000
CHEAP = 0.3  # of that, at least
FEW_TENSORS = 2.0  # of a batch that was not looked at
LEAST_GAIN = 0.05  # of the step; a smaller gain is not worth the processes
LEAST_GAIN_NS = 500_000  # a step; below it what handing a batch over takes is not known well enough

_LOADER = LoaderUse(
    0,
    Line("train.py", 9),
    "DataLoader",
    True,
    2,
    1.0,
    14_000_000,
    workers=0,
    batch_wall_ns=7_000_000,
    batch_cpu_ns=1_000_000,
    batch_blocked_ns=6_000_000,
)
_CPU_BOUND = LoaderUse(
    0,
    Line("train.py", 9),
    "DataLoader",
    True,
    2,
    1.0,
    14_000_000,
    workers=0,
    batch_wall_ns=7_000_000,
    batch_cpu_ns=7_000_000,
)
_HIDDEN = LoaderUse(0, Line("train.py", 9), "DataLoader", True, 2, 1.0, 0, workers=1, batch_wall_ns=10_000_000)
_EVALUATES = LoaderUse(
    0,
    Line("train.py", 9),
    "DataLoader",
    False,
    2,
    1.0,
    14_000_000,
    workers=0,
    batch_wall_ns=7_000_000,
    batch_cpu_ns=1_000_000,
)
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDFBO|DDDDDDDFBO
    host   |lllllll...|lllllll...
"""
_SCRIPT = """\
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, i):
        time.sleep(0.015)  # the store answers in 15 ms
        return torch.full((64,), i / 80), i % 10


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Remote(), batch_size=4, shuffle=True, num_workers=0)  # <- fault
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())
"""


def predicted_step_ns(use: LoaderUse, cores: Cores, rest_ns: float, workers: int, handed: float = 1.0) -> float:
    """Return the step time with *workers* workers: the slowest of model, latency and cores.

    Args:
        handed: part of what handing a batch over takes at most.
    """
    per_step = max(use.per_step, 1e-9)
    cost, cpu = use.batch_wall_ns - use.batch_run_queue_ns, max(use.batch_cpu_ns, use.batch_team_cpu_ns)
    model_cpu = rest_ns * (cores.busy_outside_fetch if cores.busy_outside_fetch is not None else 1.0)
    handed_ns = handed * (HANDED_NS + TENSOR_NS * (FEW_TENSORS if use.tensors is None else use.tensors))
    return max(rest_ns + handed_ns * per_step, cost * per_step / workers, (model_cpu + cpu * per_step) / usable(cores))


def advised(use: LoaderUse, cores: Cores, rest_ns: float) -> tuple[int, float]:
    """Return the fewest workers that come within 2 % of the best predicted step, and that step."""
    most = min(MOST_WORKERS, max(LATENCY_WORKERS, int(usable(cores)) if is_busy(use) else 0))
    steps = {n: predicted_step_ns(use, cores, rest_ns, n) for n in range(1, most + 1)}
    best = min(steps.values())
    workers = next(n for n in steps if steps[n] <= 1.02 * best)
    return workers, steps[workers]


class StarvedLoader(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS})

    cases = (
        # three workers hide the batch: the step falls from 10 ms to 4 ms, the model's 3 ms and handing a batch over
        Fires(_PICTURE, spent_ms=12.0, given=Given(tables={"loaders": (_LOADER,), "cores": Cores(2.0, 1, 1.0, 1.0)})),
        Silent(
            _PICTURE,
            "the one core is busy making batches: a worker would only take it from the model",
            Given(tables={"loaders": (_CPU_BOUND,), "cores": Cores(1.0, 1, 1.0, 1.0)}),
        ),
        Silent(
            _PICTURE,
            "the loader is an evaluation's",
            Given(tables={"loaders": (_EVALUATES,), "cores": Cores(2.0, 1, 1.0, 1.0)}),
        ),
        Silent(
            """
            step   |ssssssssss|ssssssssss
            main   |DFFFFBBBBO|DFFFFBBBBO
            host   |..........|..........
            worker |WWWWWWWWWW|WWWWWWWWWW
            """,
            "the workers are busy all the time, and the loop does not wait for them",
            Given(tables={"loaders": (_HIDDEN,)}),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("num_workers=0)  # <- fault", "num_workers=8)"),
            also=frozenset({"kernels/too-few-threads", "data/slow-worker-start"}),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        for use in tables.loaders:
            if use.trains and use.made_by == "DataLoader" and use.batch_wall_ns:
                wait = wait_of(use, ledger, tables)
                if wait.scope is Scope.STEADY and wait.share >= LEAST_SHARE:
                    yield from self._of(use, wait, run, tables)

    def _of(self, use: LoaderUse, wait: Wait, run: Run, tables: Tables) -> Iterator[Finding]:
        step_ns = tables.steady_ns / tables.rank_steps
        rest_ns = step_ns - wait.step_ns
        workers, predicted = advised(use, tables.cores, rest_ns)
        hidden = wait.step_ns
        if not use.workers:  # what the machine gave to others is not the loader's
            hidden = min(hidden, (use.batch_wall_ns - use.batch_run_queue_ns) * use.per_step)
        gain = min(step_ns - predicted, hidden)
        if workers <= (use.workers or 0) or gain < max(LEAST_GAIN * step_ns, LEAST_GAIN_NS):
            return
        who = (
            f"its {count(use.workers, 'worker')} cannot keep up"
            if use.workers
            else "nobody prepares it while the model works"
        )
        part = gain / wait.step_ns
        most = min(step_ns - predicted_step_ns(use, tables.cores, rest_ns, workers, CHEAP), hidden) / wait.step_ns
        yield Finding(
            self.id,
            f"A batch costs {use.batch_wall_ns / 1e6:.3g} ms, "
            f"{use.batch_blocked_ns / use.batch_wall_ns:.0%} of it blocked; {who}.",
            place_of(use, run),
            wait.scope,
            (wait.stake(part),),
            Weight.OVERLAP,
            Basis.MEASURED,
            (
                Evidence("cost of a batch, median", use.batch_wall_ns, "ns", "rank 0: worker fetches"),
                Evidence("of it CPU time", use.batch_cpu_ns, "ns", "rank 0: worker fetches"),
                Evidence("of it blocked", use.batch_blocked_ns, "ns", "rank 0: worker fetches"),
                Evidence("time that the loop spends on its batches", wait.step_ns, "ns a step", "rank 0: ledger FETCH"),
                Evidence("rest of the step", rest_ns, "ns", "rank 0: ledger"),
                Evidence("usable cores", tables.cores.usable, "count", "machine"),
                Evidence(f"predicted step with {count(workers, 'worker')}", predicted, "ns", "arithmetic"),
            ),
            wait.saving(0.85 * part, max(part, most)),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        use = next(use for use in tables.loaders if use.trains and place_of(use, run) == finding.where)
        rest_ns = tables.steady_ns / tables.rank_steps - use.wait_ns / max(1, tables.steady_steps)
        workers, _ = advised(use, tables.cores, rest_ns)
        safety = tables.input_safety
        why = (
            "__getitem__ drew no random numbers"
            if safety is Safety.SAME_BITS
            else "making a batch draws random numbers"
        )
        edits: tuple[Edit, ...] = ()
        knobs: tuple[Knob, ...] = ()
        title = f"num_workers={workers}"
        if use.iterable:
            safety = Safety.CHANGES_TRAINING
            why = "each worker of an IterableDataset yields all samples, unless it shares them out (get_worker_info)"
        else:
            how = loader_setting(use, "num_workers", workers, run, tables)
            title = f"{how.name}={workers}"
            edits, why = how.edits, f"{why}; {how.by_hand}" if how.by_hand else why
            knobs = how.knobs(workers, 1, max(workers, min(MOST_WORKERS, 2 * workers)))
        yield Remedy(f"{self.id}#num_workers", title, safety, edits, knobs, why, _switched(edits, workers))


def _switched(edits: tuple[Edit, ...], workers: int) -> Switch | None:
    """Return what gives the loader other workers in a running training; None where the user's call does not make it itself."""
    mine = [edit for edit in edits if isinstance(edit, SetKeyword) and edit.call == LOADER]
    return Switch("num_workers", (), (workers,), site=f"{mine[0].file}:{mine[0].line}") if mine else None
