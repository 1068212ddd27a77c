"""Data that lies in memory is fetched row by row and put together again for every batch.

## What it is
The whole data set is in tensors, a list or a table in memory, and a `DataLoader` asks for one row after the other:
one Python call a sample, then a collation of many small pieces into what one indexing of the whole would have given.

## Why it costs
A row of a few numbers costs some 10 us of Python and of the tensor library's own work, a hundred times what copying
it takes (a row of a pandas table more than 100 us). With hundreds of rows a batch that is more than a small model
takes.

## How it is told
The loop spends a tenth of the step or more on its batches, all of it CPU work, with many samples a batch and either
little time and few bytes a sample, or a table library's look-up of a row in the line that takes most of the time.
Thousands of rows are as many new objects, for which the interpreter looks through all that is alive again and again:
such collections, where they begin as a batch is made, are part of it.

## Sources
https://github.com/pytorch/pytorch/issues/106704; PyTorch documentation, "Disable automatic batching".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import Cause
from unstall.causes.data._input import CROWDED, LEAST_WAIT, Wait, crowd, rows_line, saved_share, wait_for_work
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.loading import BatchLine, LoaderUse
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Collections, Tables

_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDDFB|DDDDDDDDFB
    host   |llllllll..|llllllll..
"""
_COLLECTED = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDDFB|DDDDDDDDFB
    host   |llllgggg..|llllgggg..
"""
_COLLECTIONS = Collections(Line("train.py", 40), False, 6, 8 * _MS, 2, Phase.FETCH)


def _use(dataset: str, samples: int, nbytes: int) -> LoaderUse:
    return LoaderUse(
        0,
        Line("train.py", 30),
        "DataLoader",
        True,
        2,
        1.0,
        16 * _MS,
        workers=0,
        batch_wall_ns=8 * _MS,
        batch_cpu_ns=8 * _MS,
        getitem_ns=5 * _MS,
        collate_ns=3 * _MS,
        draws_random=False,
        samples=samples,
        nbytes=nbytes,
        collate="default_collate",
        dataset=dataset,
    )


_TENSORS = "torch.utils.data.dataset.TensorDataset"
_FRAME = (
    BatchLine(
        Line("train.py", 12),
        "getitem",
        0,
        0.9,
        0.9,
        60,
        "site-packages.pandas.core.indexing._LocationIndexer.__getitem__",
    ),
)
_DECODE = (BatchLine(Line("train.py", 12), "getitem", 0, 0.9, 0.9, 60, "site-packages.PIL.Image.Image.convert"),)
_SHUFFLED = """\
class Shuffled:
    def __iter__(self):
        return iter(torch.randperm(len(rows)).split(400))
"""
_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(40_000, 20)
rows = TensorDataset(x, (x[:, 0] > 0).long())
loader = DataLoader(rows, batch_size=400, shuffle=True)  # <- fault
net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
print(loss.item())
"""


class RowByRow(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS})

    cases = (
        Fires(
            _PICTURE, spent_ms=16, given=Given(tables={"loaders": (_use(_TENSORS, 512, 50_000),), "batch_lines": ()})
        ),
        Fires(
            _PICTURE,
            spent_ms=16,
            given=Given(tables={"loaders": (_use("__main__.Rows", 64, 50_000),), "batch_lines": _FRAME}),
        ),
        Fires(
            _COLLECTED,
            spent_ms=16,
            given=Given(
                tables={"loaders": (_use(_TENSORS, 512, 50_000),), "batch_lines": (), "collections": (_COLLECTIONS,)}
            ),
        ),
        Silent(
            _PICTURE,
            "32 samples at 0.25 ms each: what is done for each is not the cost of a row",
            Given(tables={"loaders": (_use("__main__.Photos", 32, 50_000),), "batch_lines": _DECODE}),
        ),
        Silent(
            _PICTURE,
            "the samples are large: copying them is the work",
            Given(tables={"loaders": (_use(_TENSORS, 512, 512 * 100_000),), "batch_lines": ()}),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            # indices in tensors: a list of them takes longer to draw, and to index by, than the rows to copy
            after=_SCRIPT.replace(
                "loader = DataLoader(rows, batch_size=400, shuffle=True)  # <- fault",
                "loader = DataLoader(rows, sampler=Shuffled(), batch_size=None)",
            ).replace("\n\ntorch.manual_seed(0)", f"\n\n\n{_SHUFFLED}\n\ntorch.manual_seed(0)"),
            also=frozenset({"data/starved-loader", "kernels/too-few-threads"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        for use in tables.loaders:
            if use.trains and use.batch_wall_ns and crowd(use, tables.cores) < CROWDED:
                wait = wait_for_work(use, ledger, tables)
                where = rows_line(use, tables.batch_lines)
                saved = saved_share(use, wait, 1.0)  # workers hide the rest behind the wait for others
                if where is not None and wait.share >= LEAST_WAIT and wait.share * saved >= LEAST_WAIT / 2:
                    yield self._of(use, wait, where, saved, _collected_ns(use, tables))

    def _of(self, use: LoaderUse, wait: Wait, where: Line, saved: float, collected_ns: int) -> Finding:
        samples = use.samples or use.batch_size or 1
        return Finding(
            self.id,
            f"A batch is put together from {samples} rows, one call each: "
            f"{use.batch_cpu_ns / samples / 1e3:.3g} us a row, "
            f"{use.batch_wall_ns / 1e6:.3g} ms a batch.",
            where,
            wait.scope,
            _stakes(wait.stake(saved), collected_ns),
            Weight.NEEDLESS,
            Basis.MEASURED,
            (
                Evidence("samples a batch, median", samples, "count", "rank 0: fetches"),
                Evidence("CPU time a sample", use.batch_cpu_ns / samples, "ns", "rank 0: fetches"),
                Evidence("bytes a sample", use.nbytes / samples, "bytes", "rank 0: fetches"),
                Evidence("fetching the rows, a batch, median", use.getitem_ns or 0, "ns", "rank 0: fetches"),
                Evidence("putting them together, a batch, median", use.collate_ns or 0, "ns", "rank 0: fetches"),
                Evidence("time that the loop spends on its batches", wait.step_ns, "ns a step", "rank 0: ledger FETCH"),
            ),
            wait.saving(0.6 * saved, saved),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        in_line = not any(use.site == finding.where for use in tables.loaders)
        title = (
            "Index whole batches: batch_size=None, and a sampler that yields tensors of indices, as from "
            "torch.randperm(len(data)).split(batch_size)"
        )
        if in_line:
            title = "Turn the table into tensors or arrays once, before the training, and index those"
        yield Remedy(
            f"{self.id}#whole-batches",
            title,
            Safety.SAME_DISTRIBUTION,
            why="the same rows make up a batch, in the sampler's order",
        )


def _collected_ns(use: LoaderUse, tables: Tables) -> int:
    """Return the time of collections that making batches in the training process set off, in the steady steps."""
    if use.workers:
        return 0
    return sum(group.spent_ns for group in tables.collections if group.phase is Phase.FETCH and not group.explicit)


def _stakes(wait: Stake, collected_ns: int) -> tuple[Stake, ...]:
    """Return *wait*, of which the collections are a part, as the ledger has it."""
    collected_ns = min(collected_ns, wait.ns)
    rest = replace(wait, ns=wait.ns - collected_ns)
    return (rest, Stake(Phase.FETCH, Activity.GC, collected_ns)) if collected_ns else (rest,)
