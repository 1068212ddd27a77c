"""The loop waits for a batch that too few workers (or none) prepare.

## What it is
The work of making a batch is needed, but nothing does it while the model works: the loop makes its batches
itself, or its workers are too few to keep up.

## Why it costs
Every nanosecond that the loop waits or loads is added to the step. Workers would have spent it beside the step.

## How it is told
Ledger time of FETCH in the training loop, against what a batch costs whoever makes it (wall, CPU, blocked and
run-queue time of each fetch). The number of workers follows from arithmetic: a batch's cost over the rest of the
step, bounded by the cores that this process may really use; time that a batch spends blocked (reads, latency) overlaps
beyond the cores. Where the cores are busy already and the batch costs CPU time, more workers cannot help, and nothing is said here.

## Sources
PyTorch Performance Tuning Guide, "Enable asynchronous data loading and augmentation".
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Knob, Remedy, Safety, SetKeyword
from unstall.model.run import Run, Sensor
from unstall.model.tables import Cores, LoaderUse, Tables

MOST_WORKERS = 16  # a batch that mostly waits could use more; beyond this memory and start-up are the next bound
PER_BATCH_NS = 300_000  # to hand a batch from a worker to the loop: queue, shared memory; measured at small batches
LEAST_GAIN = 0.05  # of the step; a smaller gain is not worth the processes

_LOADER = LoaderUse(
    0, Line("train.py", 9), "DataLoader", True, 2, 1.0, 14_000_000, workers=0, batch_wall_ns=7_000_000, batch_cpu_ns=1_000_000,
    batch_blocked_ns=6_000_000,
)  # fmt: skip
_CPU_BOUND = LoaderUse(
    0, Line("train.py", 9), "DataLoader", True, 2, 1.0, 14_000_000, workers=0, batch_wall_ns=7_000_000, batch_cpu_ns=7_000_000
)
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDFBO|DDDDDDDFBO
    host   |lllllll...|lllllll...
"""


def predicted_step_ns(use: LoaderUse, cores: Cores, rest_ns: float, workers: int) -> float:
    """Return the step time with *workers* workers: the slowest of the model, the workers' latency and the cores' work."""
    per_step = max(use.per_step, 1e-9)
    cost, cpu = use.batch_wall_ns - use.batch_run_queue_ns, use.batch_cpu_ns
    model_cpu = rest_ns * (cores.busy_outside_fetch if cores.busy_outside_fetch is not None else 1.0)
    usable = cores.usable / max(1, cores.ranks_here)
    handed = PER_BATCH_NS * per_step
    return max(rest_ns + handed, cost * per_step / workers, (model_cpu + cpu * per_step) / usable)


def advised(use: LoaderUse, cores: Cores, rest_ns: float) -> tuple[int, float]:
    """Return the fewest workers that come within 2 % of the best predicted step, and that step."""
    steps = {n: predicted_step_ns(use, cores, rest_ns, n) for n in range(1, MOST_WORKERS + 1)}
    best = min(steps.values())
    workers = next(n for n in steps if steps[n] <= 1.02 * best)
    return workers, steps[workers]


class StarvedLoader(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS})

    cases = (
        Fires(_PICTURE, spent_ms=14, given=Given(tables={"loaders": (_LOADER,), "cores": Cores(2.0, 1, 1.0, 1.0)})),
        Silent(
            _PICTURE,
            "the one core is busy making batches: a worker would only take it from the model",
            Given(tables={"loaders": (_CPU_BOUND,), "cores": Cores(1.0, 1, 1.0, 1.0)}),
        ),
        Silent(
            """
            step   |ssssssssss|ssssssssss
            main   |DFFFFBBBBO|DFFFFBBBBO
            host   |..........|..........
            worker |WWWWWWWWWW|WWWWWWWWWW
            """,
            "the workers are busy all the time, and the loop does not wait for them",
            Given(tables={"loaders": (LoaderUse(0, Line("train.py", 9), "DataLoader", True, 2, 1.0, 0, workers=1, batch_wall_ns=10_000_000),)}),
        ),
    )

    planted = (
        Planted(
            before='''\
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, i):
        time.sleep(0.002)  # the store answers in 2 ms
        return torch.full((64,), i / 480), i % 10


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Remote(), batch_size=16, shuffle=True, num_workers=0)  # <- fault
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())
''',
            after='''\
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, i):
        time.sleep(0.002)  # the store answers in 2 ms
        return torch.full((64,), i / 480), i % 10


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Remote(), batch_size=16, shuffle=True, num_workers=16)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())
''',
            also=frozenset({"data/workers-respawned", "data/slow-worker-start"}),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        for use in tables.loaders:
            finding = self._of(use, ledger, tables) if use.trains and use.batch_wall_ns else None
            if finding is not None:
                yield finding

    def _of(self, use: LoaderUse, ledger: Ledger, tables: Tables) -> Finding | None:
        steps = max(1, tables.steady_steps)
        step_ns = tables.steady_ns / steps
        wait_ns = use.wait_ns / steps
        if wait_ns < LEAST_SHARE * step_ns:
            return None
        rest_ns = step_ns - wait_ns
        workers, predicted = advised(use, tables.cores, rest_ns)
        gain = step_ns - predicted
        if workers <= (use.workers or 0) or gain < LEAST_GAIN * step_ns:
            return None
        activity = Activity.WAIT_DATA if use.workers else Activity.LOAD
        blocked = use.batch_blocked_ns / use.batch_wall_ns
        who = f"its {use.workers} worker(s) cannot keep up" if use.workers else "nobody prepares it while the model works"
        return Finding(
            self.id, f"A batch costs {use.batch_wall_ns / 1e6:.3g} ms, {blocked:.0%} of it blocked; {who}.", use.site, Scope.STEADY,
            (Stake(Phase.FETCH, activity, min(use.wait_ns, use.wait_ns)),), Weight.OVERLAP, Basis.MEASURED,
            (
                Evidence("cost of a batch, median", use.batch_wall_ns, "ns", "rank 0: worker fetches"),
                Evidence("of it CPU time", use.batch_cpu_ns, "ns", "rank 0: worker fetches"),
                Evidence("of it blocked", use.batch_blocked_ns, "ns", "rank 0: worker fetches"),
                Evidence("rest of the step", rest_ns, "ns", "rank 0: ledger"),
                Evidence("usable cores", tables.cores.usable, "count", "machine"),
                Evidence(f"predicted step with {workers} workers", predicted, "ns", "arithmetic"),
            ),
            Saving(int(max(0.0, 0.85 * gain)), int(min(gain, wait_ns)) if gain > 0 else 0),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        use = next(use for use in tables.loaders if use.site == finding.where)
        steps = max(1, tables.steady_steps)
        rest_ns = (tables.steady_ns - use.wait_ns) / steps
        workers, _ = advised(use, tables.cores, rest_ns)
        safety = tables.input_safety
        why = "__getitem__ drew no random numbers" if safety is Safety.SAME_BITS else "making a batch draws random numbers"
        edits = ()
        if isinstance(finding.where, Line) and use.made_by == "DataLoader" and finding.where.framework is None:
            edits = (SetKeyword(use.site.file, use.site.line, "torch.utils.data.DataLoader", "num_workers", workers, 5),)
        high = max(workers, min(MOST_WORKERS, math.ceil(2 * workers)))
        yield Remedy(
            f"{self.id}#num_workers", f"num_workers={workers}", safety, edits, (Knob("num_workers", workers, 1, high),), why
        )
