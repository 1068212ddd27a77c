"""The loader has more workers than its batches need and the cores can run.

## What it is
`num_workers` is well above both the cores that this process may use and the workers that are at work on average: most
of them wait for a free place in the queue, or for a core.

## Why it costs
Workers are started one after another, while the loop stands still. Then all of them begin at once and share the cores,
so the first batch takes as long as all first batches together. Each holds memory of its own, and batches made ahead.
Once the queue is full it costs no time: a short training, or short epochs, pay most.

## How it is told
A batch's cost without waiting for a core, times the batches a second, is the number of workers at work; half as many
again are enough, and no more than there are cores where the work is CPU time. The time claimed is what the workers
above that took in the first start: their share of making the iterator, and of the time that the first batches waited for
a core. Later starts are `data/workers-respawned`. Where that is too little time to speak of, and there are four times as
many workers as would do, they are named without a time.

## Sources
PyTorch documentation, `torch.utils.data.DataLoader`, the warning on excessive workers;
https://github.com/pytorch/pytorch/issues/5902 (memory).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import Cause
from unstall.causes.data._input import is_busy, loader_setting, loop_ns, place_of, usable
from unstall.causes.data._reads import size
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.loading import LoaderUse
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Cores, Tables
from unstall.model.words import count

SPARE = 1.5  # over the workers at work on average: batches do not come evenly
LEAST_NS = 100_000_000  # of the start; a few forks take that on a busy machine
LEAST_OF_LOOP = 0.05  # of the loop so far; any start is much of a short run
MANY_TIMES = 4  # as many workers as would do are worth a word, though they cost no time
_MS = 1_000_000
_PICTURE = f"""
    step   |{"." * 400}|ssssssssss|ssssssssss
    main   |{"D" * 400}|DFFFFBBBBO|DFFFFBBBBO
    host   |{"w" * 400}|w.........|w.........
"""
_USE = LoaderUse(
    0, Line("train.py", 30), "DataLoader", True, 2, 1.0, 2 * _MS, workers=16, iterators=1, iterator_ns=(240 * _MS,),
    first_batch_ns=(160 * _MS,), batch_wall_ns=40 * _MS, batch_cpu_ns=10 * _MS, batch_run_queue_ns=30 * _MS,
    early_queued_ns=120 * _MS,
)  # fmt: skip
_WAITS = replace(_USE, batch_wall_ns=90 * _MS, batch_cpu_ns=0, batch_blocked_ns=90 * _MS, batch_run_queue_ns=0)


def _given(use: LoaderUse, cores: float = 2.0) -> Given:
    return Given(tables={"loaders": (use,), "cores": Cores(cores)})


_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, i):
        wave = torch.arange(20_000) * (i + 1.0)
        return wave.sin().reshape(50, -1).mean(1), i % 4


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(50, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(Waves(), batch_size=8, num_workers=24)  # <- fault
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"{loss.item():.6f}")
"""


class TooManyWorkers(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS, Sensor.RUN_QUEUE})

    cases = (
        # one worker is at work on average, two would do: 14 of 16 parts of 240 and of 120 ms
        Fires(_PICTURE, spent_ms=315, given=_given(_USE)),
        Silent(_PICTURE, "there are as many cores", _given(_USE, cores=16)),
        Silent(_PICTURE, "batches wait for a server, and nine are under way at any time", _given(_WAITS)),
        Silent(
            _PICTURE,
            "three workers on two cores start at once",
            _given(replace(_USE, workers=3, iterator_ns=(50 * _MS,), early_queued_ns=10 * _MS)),
        ),
        Silent(
            _PICTURE,
            "most batches are cheap, but slow ones among them keep many workers at work",
            _given(replace(_WAITS, batch_wall_ns=5 * _MS, batch_blocked_ns=5 * _MS, batch_mean_ns=90 * _MS)),
        ),
        Silent(_PICTURE, "the loader is an evaluation's", _given(replace(_USE, trains=False))),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("num_workers=24)  # <- fault", "num_workers=2)"),
            also=frozenset(
                {"kernels/too-few-threads", "data/starved-loader", "data/slow-transform", "data/slow-worker-start"}
            ),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        loop = loop_ns(ledger)
        for use in tables.loaders:
            if use.trains and use.workers and use.iterator_ns and use.batch_wall_ns and tables.steady_ns:
                needed = enough(use, tables)
                if use.workers <= max(needed, math.ceil(usable(tables.cores))):
                    continue
                idle = 1 - needed / use.workers
                making, late = (
                    int(idle * use.iterator_ns[0]),
                    int(idle * min(use.early_queued_ns, *use.first_batch_ns[:1])),
                )
                if making + late >= max(LEAST_NS, LEAST_OF_LOOP * loop):
                    yield self._of(use, needed, making, late, run, tables)
                elif use.workers >= MANY_TIMES * max(needed, usable(tables.cores)):
                    yield Candidate(self.id, _title(use, needed, tables), place_of(use, run), _memory(use, needed))

    def _of(self, use: LoaderUse, needed: int, making: int, late: int, run: Run, tables: Tables) -> Finding:
        step_ns = tables.steady_ns / tables.rank_steps
        return Finding(
            self.id,
            f"{_title(use, needed, tables)[:-1]}; to start the others takes {(making + late) / 1e6:.3g} ms.",
            place_of(use, run),
            Scope.STARTUP,
            (Stake(Phase.FETCH, Activity.WAIT_DATA, making + late),),
            Weight.NEEDLESS,
            Basis.MEASURED,
            (
                Evidence("workers at work, mean", at_work(use, tables), "count", "rank 0: worker fetches, ledger"),
                Evidence("usable cores", tables.cores.usable, "count", "machine"),
                Evidence("making the first iterator", use.iterator_ns[0], "ns", "rank 0: events ITER"),
                Evidence("a first batch without a core, median", use.early_queued_ns, "ns", "rank 0: worker fetches"),
                Evidence("a batch without a core, median", use.batch_run_queue_ns, "ns", "rank 0: worker fetches"),
                Evidence("a batch with one, mean", _alone_ns(use), "ns", "rank 0: worker fetches"),
                Evidence(f"predicted step with {count(needed, 'worker')}, as now", step_ns, "ns", "arithmetic"),
            ),
            Saving(making // 2, making + late),
            notes=(_memory(use, needed),) if use.growth is not None else (),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        use = next(use for use in tables.loaders if use.trains and use.workers and place_of(use, run) == finding.where)
        needed, safety = enough(use, tables), tables.input_safety
        how = loader_setting(use, "num_workers", needed, run, tables)
        why = "making a batch draws random numbers, each worker from a generator of its own"
        if safety is Safety.SAME_BITS:
            why = "the same batches in the same order: making them draws no random numbers"
        if use.iterable:
            safety, why = Safety.CHANGES_TRAINING, "which worker yields which samples depends on how many there are"
        yield Remedy(
            f"{self.id}#num_workers", f"{how.name}={needed}", safety, how.edits,
            how.knobs(needed, 1, use.workers or needed), f"{why}; {how.by_hand}" if how.by_hand else why,
        )  # fmt: skip


def _alone_ns(use: LoaderUse) -> int:
    """Return what a batch costs where its worker need not wait for a core, mean: slow ones keep workers at work too."""
    return max(0, max(use.batch_mean_ns, use.batch_wall_ns) - use.batch_run_queue_ns)


def at_work(use: LoaderUse, tables: Tables) -> float:
    """Return how many workers make a batch at any time, mean; those that wait for a core left out."""
    return _alone_ns(use) * use.per_step * tables.rank_steps / max(1, tables.steady_ns)


def enough(use: LoaderUse, tables: Tables) -> int:
    """Return how many workers would keep the loop as fast as it is."""
    needed = max(1, math.ceil(SPARE * at_work(use, tables)))
    return min(needed, max(1, int(usable(tables.cores)))) if is_busy(use) else needed


def _title(use: LoaderUse, needed: int, tables: Tables) -> str:
    return (
        f"Of {use.workers} workers {at_work(use, tables):.1f} are at work on average, on {count(usable(tables.cores), 'core')}: "
        f"{needed} would keep the loop as fast."
    )


def _memory(use: LoaderUse, needed: int) -> str:
    if use.growth is None:
        return "Each worker is a process that holds memory of its own, and batches made ahead."
    more = size(use.growth.last_bytes * ((use.workers or 0) - needed))
    return f"Each worker holds {size(use.growth.last_bytes)} of its own: those above {needed} hold {more}."
