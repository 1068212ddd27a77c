"""Tensor operations use more threads than there are cores, so that they wait for one another.

## What it is
torch divides a large operation among its intra-op threads. Their number was set for another machine, or each of
several ranks takes all cores.

## Why it costs
The parts of an operation meet at its end. With more threads than cores some parts have to wait for a core while
the threads that are done spin, and each operation takes as long as its unluckiest thread.

## How it is told
The number of threads that torch uses, against the cores that this process may use (affinity mask and quota,
shared among its ranks), and the run-queue time of its threads: time in which they were ready and had no core.
Not more of that time is claimed than threads in excess can cause, n threads on c cores: 1 - c/n. What remains
may be due to other programs, so the saving is an estimate with bounds.

## Sources
PyTorch documentation, "CPU threading and TorchScript inference"; PyTorch Performance Tuning Guide, "CPU
specific optimizations".
"""

from __future__ import annotations

from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.kernels._threads import IN_TORCH, fair_cores, set_threads, threads_of, who_set
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Environment, Evidence, Finding, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy
from unstall.model.run import Run, Sensor
from unstall.model.tables import Cores, Tables
from unstall.model.words import count

EXCESS = 1.5  # threads a core; a little more than one is the scheduler's ordinary work
LEAST_STARVED = 0.05  # of the steady time, where it was observed: threads that are never used cost nothing
UNSEEN = (
    0.25  # of the compute time, claimed where run-queue time was not observed; 2.67x was measured with 32 on 2 cores
)
SPINS = 0.5  # of the compute time left, at most, that threads spend spinning for those without a core

_FACTS = {"threads.intra": 16, "threads.set_by": "/p/train.py:7:<module>"}
_PARTS = {(Phase.FORWARD, Activity.STARVED): 6_000_000, (Phase.FORWARD, Activity.COMPUTE): 4_000_000}
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFBBBBBO|FFFFBBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""


def _given(
    facts: dict[str, object], starved: float | None, parts: dict[tuple[Phase, Activity], int], usable: float = 2.0
) -> Given:
    cores = Cores(usable, 1, 1.9, 1.9, 0.0, starved)
    return Given(facts=facts, tables={"cores": cores, "steady_parts": parts})  # type: ignore[arg-type]


class TooManyThreads(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.SETTINGS})

    cases = (
        Fires(_PICTURE, 6.0, _given(_FACTS, 0.6, _PARTS)),
        Fires(_PICTURE, 1.0, _given(_FACTS, None, {(Phase.FORWARD, Activity.COMPUTE): 4_000_000})),
        Silent(_PICTURE, "one thread a core", _given({"threads.intra": 2}, 0.6, _PARTS)),
        Silent(_PICTURE, "the machine has the cores", _given(_FACTS, 0.6, _PARTS, usable=16.0)),
        Silent(
            _PICTURE,
            "the operations are too small to be divided: the threads are never used",
            _given(_FACTS, 0.01, {(Phase.FORWARD, Activity.COMPUTE): 20_000_000}),
        ),
    )

    planted = (
        Planted(
            before="""\
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(32)  # <- fault
net = nn.Sequential(nn.Linear(256, 384), nn.GELU(), nn.Linear(384, 384), nn.GELU(), nn.Linear(384, 10))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(4096, 256), torch.randint(0, 10, (4096,))
for step in range(100):
    rows = torch.randint(0, 4096, (512,))
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
net = nn.Sequential(nn.Linear(256, 384), nn.GELU(), nn.Linear(384, 384), nn.GELU(), nn.Linear(384, 10))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(4096, 256), torch.randint(0, 10, (4096,))
for step in range(100):
    rows = torch.randint(0, 4096, (512,))
    loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        threads, cores, starved = threads_of(run), fair_cores(tables), tables.cores.starved_share
        if threads is None or threads < EXCESS * cores or (starved is not None and starved < LEAST_STARVED):
            return
        stakes = _stakes(tables, 1 - cores / threads, observed=starved is not None)
        claim_ns, steps = sum(stake.ns for stake in stakes), tables.rank_steps
        if claim_ns < LEAST_SHARE * tables.steady_ns:
            return
        rest_ns = sum(
            ns for (phase, a), ns in tables.steady_parts.items() if phase in IN_TORCH and a is Activity.COMPUTE
        )
        queued = (
            []
            if starved is None
            else [Evidence("time a thread was ready without a core", starved, "share", "machine: run queue")]
        )
        yield Finding(
            self.id,
            f"Tensor operations use {threads} threads on {count(cores, 'core')}; their parts wait for one another.",
            who_set(run, tables) or Environment("OMP_NUM_THREADS"),
            Scope.STEADY,
            stakes,
            Weight.NEEDLESS,
            Basis.SAMPLED,
            (
                Evidence("intra-op threads", threads, "count", "rank 0: facts threads.intra"),
                Evidence("cores for each rank", cores, "count", "machine"),
                *queued,
                Evidence("time that threads in excess can wait, at most", 1 - cores / threads, "share", "arithmetic"),
            ),
            Saving(
                int(0.3 * claim_ns / steps),
                int((claim_ns + SPINS * rest_ns) / steps) if starved is not None else int(2 * claim_ns / steps),
            ),
            notes=("an estimate: which thread waits for which is not recorded",),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        yield from set_threads(self.id, finding.where, fair_cores(tables), threads_of(run) or 1)


def _stakes(tables: Tables, most: float, *, observed: bool) -> tuple[Stake, ...]:
    """Return the time without a core, as much of it as threads in excess can cause; else a part of the compute time."""
    activity = Activity.STARVED if observed else Activity.COMPUTE
    spent = {entry: ns for entry, ns in tables.steady_parts.items() if entry[1] is activity}
    if not observed:
        return tuple(Stake(p, a, round(UNSEEN * ns)) for (p, a), ns in spent.items() if p in IN_TORCH)
    share = min(1.0, most * tables.steady_ns / max(1, sum(spent.values())))
    return tuple(Stake(phase, a, round(share * ns)) for (phase, a), ns in spent.items())
