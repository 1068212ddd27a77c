"""The loader's workers are stopped and started again at every epoch.

## What it is
A `DataLoader` with workers makes an iterator for each pass over the data. Without `persistent_workers=True` its
workers end with the pass and new ones are started for the next; the loop stands still meanwhile.

## Why it costs
Starting a worker forks or spawns a process, and its first batch comes late: caches, open files and imports of the old
one are gone. Stopping waits for the processes to end. Short epochs pay this over and over; over long ones it is
nothing.

## How it is told
The times of making each iterator, of waiting for its first batch beyond what a batch costs, and of stopping the
workers, in the steady steps (or over the run, where few epochs lie in them). The very first start is not counted:
kept workers pay it too. Nothing is said where that is under 2 % of the loop. The saving may be twice the wait that is
counted, by no more than half of the rest of the step: workers that start take cores from the model, and memory that a
fork shares is copied where it is written next.
Measured on 2 cores, four trainings: 1.4, 1.9, 2.0 and 2.9 times 0.85 of it.

## Sources
PyTorch documentation, `torch.utils.data.DataLoader`, `persistent_workers`.
"""

from __future__ import annotations

from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.data._input import cold_ns, loader_setting, loop_ns, place_of
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.loading import LoaderUse
from unstall.model.remedy import Edit, Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables
from unstall.model.words import count

LEAST_SAVED = 0.7  # of the wait that is counted
MOST_BESIDE, MOST_OF_REST = 1.0, 0.5  # saved beside it: of the wait, and of the rest of the step; see the page
_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss|ssssssssss
    main   |DDDDDDDFBO|DDDDDDDFBO|DFFFBBBBBO
    host   |wwwwwww...|wwwwwww...|w.........
"""
_RESPAWNED = LoaderUse(
    0,
    Line("train.py", 9),
    "DataLoader",
    True,
    3,
    1.0,
    9 * _MS,
    workers=2,
    persistent=False,
    iterators=3,
    iterator_ns=(3 * _MS, 3 * _MS, 3 * _MS),
    first_batch_ns=(4 * _MS, 4 * _MS, 4 * _MS),
    stop_ns=(_MS, _MS, _MS),
    restarts=2,
    making_ns=6 * _MS,
    first_ns=6 * _MS,
    stopping_ns=2 * _MS,
    batch_wall_ns=1 * _MS,
)
_KEPT = LoaderUse(
    0,
    Line("train.py", 9),
    "DataLoader",
    True,
    3,
    1.0,
    9 * _MS,
    workers=2,
    persistent=True,
    iterators=3,
    iterator_ns=(3 * _MS, 3 * _MS, 3 * _MS),
    first_batch_ns=(4 * _MS, 4 * _MS, 4 * _MS),
    restarts=2,
    making_ns=6 * _MS,
    first_ns=6 * _MS,
    batch_wall_ns=1 * _MS,
)
_ONCE = LoaderUse(
    0,
    Line("train.py", 9),
    "DataLoader",
    True,
    3,
    1.0,
    9 * _MS,
    workers=2,
    persistent=False,
    iterators=1,
    iterator_ns=(7 * _MS,),
    first_batch_ns=(4 * _MS,),
    batch_wall_ns=1 * _MS,
)
_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((32,), i / 64).sin(), i % 4


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Waves(), batch_size=16, shuffle=True, num_workers=2)  # <- fault
    for epoch in range(12):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(loss.item())
"""


class WorkersRespawned(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS})

    cases = (
        # 6 ms of making, 6 - 2 x 1 ms of late first batches, 2 ms of stopping
        Fires(_PICTURE, spent_ms=12, given=Given(tables={"loaders": (_RESPAWNED,)})),
        Silent(_PICTURE, "the workers are kept: an iterator only begins anew", Given(tables={"loaders": (_KEPT,)})),
        Silent(
            _PICTURE, "there is one pass: the workers start once, as kept ones do", Given(tables={"loaders": (_ONCE,)})
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("num_workers=2)  # <- fault", "num_workers=2, persistent_workers=True)"),
            also=frozenset(
                {"kernels/too-few-threads", "data/starved-loader", "data/row-by-row", "data/slow-worker-start"}
                | {"data/repeated-preprocessing"}  # its sines are the same in each epoch: 4 % of the loop
            ),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        for use in tables.loaders:
            if use.trains and use.workers and use.persistent is False and use.iterators > 1:
                yield from self._of(use, run, ledger, tables)

    def _of(self, use: LoaderUse, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        scope, restarts, ns, whole = (
            Scope.STEADY,
            use.restarts,
            use.making_ns + cold_ns(use) + use.stopping_ns,
            tables.steady_ns,
        )
        if use.restarts < 2:  # epochs are long: what they cost is told from all of the run but the first start
            late = sum(max(0, first - use.batch_wall_ns) for first in use.first_batch_ns[1:])
            scope, restarts = Scope.PERIODIC, use.iterators - 1
            ns = sum(use.iterator_ns[1:]) + late + sum(use.stop_ns[: use.iterators - 1])
            whole = loop_ns(ledger)
        if ns < LEAST_SHARE * whole:
            return
        each = ns / max(1, restarts)
        over = max(1, tables.steady_steps) if scope is Scope.STEADY else 1
        saved, rest = ns // over, max(0, whole - ns) // over
        making, stopping = (
            sum(use.iterator_ns) / max(1, len(use.iterator_ns)),
            sum(use.stop_ns) / max(1, len(use.stop_ns)),
        )
        yield Finding(
            self.id,
            f"Each epoch stops its {count(use.workers or 0, 'worker')} and starts new ones: {each / 1e6:.3g} ms, {restarts} times.",
            place_of(use, run),
            scope,
            (Stake(Phase.FETCH, Activity.WAIT_DATA, ns),),
            Weight.TIMED,
            Basis.MEASURED,
            (
                Evidence("starts of workers", restarts, "count", "rank 0: events ITER"),
                Evidence("making an iterator, mean", making, "ns", "rank 0: events ITER"),
                Evidence("late first batch, stop and start, mean", each, "ns", "rank 0: events ITER, WAIT_DATA, STOP"),
                Evidence("stopping the workers, mean", stopping, "ns", "rank 0: events STOP"),
            ),
            Saving(int(LEAST_SAVED * saved), saved + int(min(MOST_BESIDE * saved, MOST_OF_REST * rest))),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        use = next(use for use in tables.loaders if use.workers and place_of(use, run) == finding.where)
        why = "a new iterator draws a seed from the global generator, a kept one does not: draws change from epoch 2 on"
        edits: tuple[Edit, ...] = ()
        title = "Keep the workers: persistent_workers=True"
        if use.made > 1:
            title = "Make the loader once, before the epochs, with persistent_workers=True"
            why = f"the line makes a new loader for each epoch, and with it new workers; {why}"
        else:
            how = loader_setting(use, "persistent_workers", True, run, tables)
            title = title if how.name == "persistent_workers" else f"{how.name}=True"
            edits, why = how.edits, f"{why}; {how.by_hand}" if how.by_hand else why
        yield Remedy(f"{self.id}#persistent_workers", title, Safety.SAME_DISTRIBUTION, edits, why=why)
