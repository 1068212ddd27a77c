"""Tensor operations use fewer threads than there are cores, and the other cores have nothing to do.

## What it is
torch divides a large operation among its intra-op threads. Their number was set to one (or a few), by a line of
the script, by OMP_NUM_THREADS, or by torchrun, which sets OMP_NUM_THREADS=1 unless it is set already.

## Why it costs
The step is bound by tensor operations, and cores that could take their share of each stand idle.

## How it is told
The number of threads that torch uses and what set it, against the cores that this process may use. Cores that
other ranks, data workers (by the CPU time of their fetches) and other programs keep busy are not idle, and where they
are all busy, this is only a candidate. So it is where threads and workers together have all cores: that is how cores
are divided on purpose, and what a thread more gives beside workers only a trial tells. Operations that take less than
some ten microseconds are not divided at all, so nothing is said where the compute time of a step over the operations
that its parameters suggest is that small. No interval shows what more threads would do: the saving is estimated by
Amdahl's law, with 30 to 95 % of the compute time divisible.

## Sources
PyTorch documentation, "CPU threading and TorchScript inference"; `torch.distributed.run`, which says that it
sets OMP_NUM_THREADS. Measured on 2 cores: 1.5x to 1.9x from one thread to two for matrices from 256 x 256 on,
0.6x for 64 x 64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.kernels._threads import IN_TORCH, fair_cores, operation_ns, set_threads, threads_of, who_set
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.loading import LoaderUse
from unstall.model.remedy import Remedy
from unstall.model.run import Run, Sensor
from unstall.model.tables import Cores, Tables

LEAST_COMPUTE = 0.4  # of the step; below it the loop is bound by something else
LEAST_OPERATION_NS = 50_000  # torch divides from 32768 elements on, about 20 us of work
INTERPRETED = 0.15  # of a line's CPU time; operations that are worth dividing leave less to the interpreter
MOST_WALKED = 0.1  # of the step in loops over such operations; there a thread more gives nothing
DIVISIBLE = (0.3, 0.7, 0.95)  # of the compute time: least, claimed, most
IDLE = 0.5  # of a core, free of other work: less than that gives a thread nothing to run on

_PARTS = {
    (Phase.FORWARD, Activity.COMPUTE): 8_000_000,
    (Phase.BACKWARD, Activity.COMPUTE): 10_000_000,
    (Phase.OPTIMIZER, Activity.COMPUTE): 2_000_000,
}
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFBBBBBO|FFFFBBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""


def _given(
    threads: int,
    cores: Cores,
    parts: dict[tuple[Phase, Activity], int] | None = None,
    tensors: int = 4,
    *,
    set_by: bool = True,
    loaders: tuple[LoaderUse, ...] = (),
) -> Given:
    facts: dict[str, object] = {"threads.intra": threads, "parameters:0": {"tensors": tensors}}
    if set_by:
        facts["threads.set_by"] = "/p/train.py:3:<module>"
    return Given(facts=facts, tables={"cores": cores, "steady_parts": parts or _PARTS, "loaders": loaders})  # type: ignore[arg-type]


_WAITS = LoaderUse(  # its worker computes for 1 ms of a step of 10
    0, Line("train.py", 9), "DataLoader", True, 2, 1.0, 0, workers=1, batch_wall_ns=9_000_000, batch_cpu_ns=1_000_000
)


class TooFewThreads(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.SETTINGS})

    cases = (
        Fires(_PICTURE, 7.0, _given(1, Cores(2.0, 1, 1.0, 1.0, 0.1))),
        Fires(_PICTURE, 10.5, _given(1, Cores(4.0, 1, 1.0, 1.0, 0.0))),
        Fires(_PICTURE, 10.5, _given(1, Cores(4.0, 1, 1.0, 1.0), loaders=(_WAITS,))),
        # a candidate: a thread and a worker have the two cores
        Fires(_PICTURE, 0, _given(1, Cores(2.0, 1, 1.0, 1.0), loaders=(_WAITS,))),
        # a candidate: the worker computes most of the time, and has the other core
        Fires(_PICTURE, 0, _given(1, Cores(2.0, 1, 1.0, 1.0), loaders=(replace(_WAITS, batch_cpu_ns=8_000_000),))),
        # a candidate: what the worker takes was not observed
        Fires(_PICTURE, 0, _given(1, Cores(2.0, 1, 1.0, 1.0), loaders=(replace(_WAITS, batch_wall_ns=0),))),
        Silent(_PICTURE, "torch uses every core", _given(2, Cores(2.0, 1, 1.9, 1.9, 0.0))),
        Silent(_PICTURE, "the other rank has the other core", _given(1, Cores(2.0, 2, 1.0, 1.0, 0.0))),
        Silent(
            _PICTURE,
            "five thousand tensors: each operation is too small to be divided",
            _given(1, Cores(2.0, 1, 1.0, 1.0, 0.0), tensors=5000),
        ),
        Silent(
            _PICTURE,
            "the step is interpreted code",
            _given(
                1,
                Cores(2.0, 1, 1.0, 1.0, 0.0),
                {(Phase.FORWARD, Activity.PYTHON): 15_000_000, (Phase.BACKWARD, Activity.COMPUTE): 5_000_000},
            ),
        ),
        Silent(_PICTURE, "torch chose the number itself", _given(1, Cores(2.0, 1, 1.0, 1.0, 0.0), set_by=False)),
    )

    planted = (
        Planted(
            before="""\
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)  # <- fault
net = nn.Sequential(nn.Linear(512, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x, y = torch.randn(2048, 512), torch.randint(0, 10, (2048,))
for step in range(120):
    rows = torch.randint(0, 2048, (512,))
    loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
            after="""\
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(2)
net = nn.Sequential(nn.Linear(512, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x, y = torch.randn(2048, 512), torch.randint(0, 10, (2048,))
for step in range(120):
    rows = torch.randint(0, 2048, (512,))
    loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        threads, cores, where = threads_of(run), fair_cores(tables), who_set(run, tables)
        if threads is None or where is None or threads >= cores:
            return
        compute = {
            e: ns
            for e, ns in tables.steady_parts.items()
            if e[0] in IN_TORCH and e[1] in (Activity.COMPUTE, Activity.STARVED)
        }
        compute_ns, steps = sum(compute.values()), tables.rank_steps
        each_ns = operation_ns(compute_ns / steps, run)
        if compute_ns < LEAST_COMPUTE * tables.steady_ns or each_ns < LEAST_OPERATION_NS or _walks(tables):
            return
        busy = _busy_besides(tables)
        usable = min(
            cores, int(threads + max(0.0, tables.cores.usable / tables.cores.ranks_here - threads - busy) + IDLE)
        )
        share = compute_ns / tables.steady_ns
        title = f"Tensor operations use {threads} of {cores} cores, and take {share:.0%} of the step."
        if usable <= threads:
            because = f"the other cores were busy: data workers and other programs kept {busy:.1f} of them"
            yield Candidate(self.id, title, where, because)
            return
        if threads + sum(use.workers or 0 for use in tables.loaders if use.trains) >= cores:
            because = f"the data workers have the other cores, and kept {busy:.1f} of them busy"
            yield Candidate(self.id, title, where, because, tuple(set_threads(self.id, where, cores, cores)))
            return
        gained = 1 - threads / usable
        low, mid, high = (share * gained for share in DIVISIBLE)
        if mid * compute_ns < LEAST_SHARE * tables.steady_ns:
            return
        yield Finding(
            self.id,
            title,
            where,
            Scope.STEADY,
            tuple(Stake(p, a, round(mid * ns)) for (p, a), ns in compute.items()),
            Weight.ESTIMATED,
            Basis.SAMPLED,
            (
                Evidence("intra-op threads", threads, "count", "rank 0: facts threads.intra"),
                Evidence("cores for each rank", cores, "count", "machine"),
                Evidence("cores that others keep busy", busy, "count", "machine"),
                Evidence("compute time", compute_ns / steps, "ns a step", "ledger"),
                Evidence(
                    "of it each operation, about", each_ns, "ns", "arithmetic: ten operations for each parameter tensor"
                ),
            ),
            Saving(int(low * compute_ns / steps), int(high * compute_ns / steps)),
            notes=(f"an estimate: Amdahl's law for {usable} threads, with 30 to 95 % of the compute time divisible",),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        yield from set_threads(self.id, finding.where, fair_cores(tables), fair_cores(tables))


def _walks(tables: Tables) -> bool:
    """Return whether loops of the user's own walk over small operations: many more than the tensors suggest."""
    walked = 0
    for line in tables.lines:
        python, compute = line.part_ns(Activity.PYTHON), line.part_ns(Activity.COMPUTE)
        if any(not loop.turns for loop in line.loops) and python >= INTERPRETED * max(1, python + compute):
            walked += line.spent_ns
    return walked >= MOST_WALKED * max(1, tables.steady_ns)


def _busy_besides(tables: Tables) -> float:
    """Return the cores that the training's own data workers and other programs keep busy; other ranks have theirs."""
    step_ns = tables.steady_ns / max(1, tables.rank_steps)
    return sum(_busy_workers(use, step_ns) for use in tables.loaders if use.trains) + (tables.cores.others_busy or 0.0)


def _busy_workers(use: LoaderUse, step_ns: float) -> float:
    """Return the cores that a loader's workers keep busy, by the CPU time of their fetches; one each where none was seen."""
    workers = use.workers or 0
    if not use.batch_wall_ns:
        return workers
    return min(workers, max(use.batch_cpu_ns, use.batch_team_cpu_ns) * use.per_step / max(1.0, step_ns))
