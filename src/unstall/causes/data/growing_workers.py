"""The data workers' memory grows as they read the dataset.

## What it is
A forked worker shares the memory of the training until one of them writes to it. To read a Python object is to write to
it: its count of references changes. So a dataset of many Python objects (lists of strings, of dicts, of numbers) is
copied page by page into every worker.

## Why it costs
With time each worker holds a copy of the dataset. Where memory runs short the machine swaps, drops its page cache, or
kills a process of the training, often hours after the start.

## How it is told
The memory that a worker holds for itself is looked at ever more seldom, at its 8th batch and at most each time that
number has doubled. Copied pages are told from new memory: what the worker holds in all stays the same. The workers must
have grown by 64 MB together and by half of what each held. It is named without a time, unless tasks of the machine were
held up for memory (`/proc/pressure/memory`): then that share of the step is claimed, as far as the loop waits for data.

## Sources
https://github.com/pytorch/pytorch/issues/13246; PyTorch documentation, `torch.utils.data`, "Multi-process data loading".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.data._input import place_of, wait_of
from unstall.causes.data._reads import size
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Evidence, Finding, Line, Scope, Weight, Where
from unstall.model.ledger import Basis, Ledger
from unstall.model.loading import Growth, LoaderUse
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

LEAST_BYTES = 64_000_000  # of all workers together; a worker's own buffers and caches take some ten
LEAST_GROWN = 0.5  # of what a worker held at the first look
LEAST_COPIED = 0.5  # of the growth; the rest is memory that it asked for, a cache or a leak
_MB, _MS = 1_000_000, 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDDFB|DDDDDDDDFB
    host   |wwwwwwww..|wwwwwwww..
"""
_SHORT = Growth(50 * _MB, 450 * _MB, 400 * _MB, 900 * _MB, 1000, 0.25, 4)
_USE = LoaderUse(
    0, Line("train.py", 30), "DataLoader", True, 2, 1.0, 16 * _MS, workers=4, batch_wall_ns=30 * _MS, growth=_SHORT
)  # fmt: skip


def _given(**fields: float) -> Given:
    return Given(tables={"loaders": (replace(_USE, growth=replace(_SHORT, **fields)),)})  # type: ignore[arg-type]


_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self):  # <- fault
        self.texts = [[1000 + (i * n) % 5000 for n in range(200)] for i in range(40_000)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        words = self.texts[i]
        return torch.tensor(words[::8]) % 100, sum(words) % 4


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Embedding(100, 64), nn.Flatten(), nn.Linear(1600, 256), nn.ReLU(), nn.Linear(256, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in DataLoader(Texts(), batch_size=50, shuffle=True, num_workers=2):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())
"""


class GrowingWorkers(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS})

    cases = (
        # a quarter of 20 ms was lost to the shortage of memory
        Fires(_PICTURE, spent_ms=5, given=_given()),
        Silent(_PICTURE, "a worker asked for new memory: a cache of its own", _given(copied_bytes=20 * _MB)),
        Silent(
            _PICTURE,
            "some pages are copied at the start, and no more",
            _given(last_bytes=60 * _MB, copied_bytes=10 * _MB),
        ),
        Silent(
            _PICTURE,
            "a small dataset was copied",
            _given(first_bytes=4 * _MB, last_bytes=14 * _MB, copied_bytes=10 * _MB),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("  # <- fault", "")
            .replace("self.texts = [[", "self.texts = torch.tensor([[")
            .replace("range(40_000)]", "range(40_000)])")
            .replace("torch.tensor(words[::8]) % 100, sum(words) % 4", "words[::8] % 100, int(words.sum()) % 4"),
            also=frozenset(
                {"data/starved-loader", "data/slow-transform", "data/row-by-row", "data/slow-collate"}
                | {"kernels/too-few-threads", "data/slow-worker-start", "data/costly-transport"}
            ),
            edited=False,
            candidate=True,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        for use in tables.loaders:
            if use.trains and use.growth is not None and copies(use, use.growth):
                wait = wait_of(use, ledger, tables)
                lost = min(1.0, use.growth.stalled_share * tables.steady_ns / max(1, wait.ns))
                if wait.scope is Scope.STEADY and wait.share * lost >= LEAST_SHARE:
                    yield Finding(
                        self.id,
                        _title(use, use.growth),
                        _where(use, run),
                        wait.scope,
                        (wait.stake(lost),),
                        Weight.ESTIMATED,
                        Basis.SAMPLED,
                        _evidence(use.growth),
                        wait.saving(0.0, lost),
                    )
                else:
                    yield Candidate(self.id, _title(use, use.growth), _where(use, run), _because(use, use.growth))

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        yield Remedy(
            f"{self.id}#arrays",
            "Keep what the dataset holds in tensors or arrays: one array of all values, and one of where each sample begins",
            Safety.SAME_BITS,
            why="the samples hold the same bytes; an array has one count of references, so its pages stay shared",
        )


def copies(use: LoaderUse, growth: Growth) -> bool:
    """Return whether the workers copy memory that they shared with the training, and much of it."""
    much = growth.grown_bytes * (use.workers or growth.workers) >= LEAST_BYTES
    faster = growth.grown_bytes >= LEAST_GROWN * growth.first_bytes
    return much and faster and growth.copied_bytes >= LEAST_COPIED * growth.grown_bytes


def _title(use: LoaderUse, growth: Growth) -> str:
    return (
        f"Each of {use.workers or growth.workers} workers grew from {size(growth.first_bytes)} to "
        f"{size(growth.last_bytes)} of its own in {growth.batches} batches: it copies the dataset's objects as it reads them."
    )


def _because(use: LoaderUse, growth: Growth) -> str:
    each = growth.grown_bytes / max(1, growth.batches)
    return (
        f"It cost no time so far. {size(each)} more a batch, in each worker, until all that the training holds is copied: "
        "keep it in tensors or arrays, whose pages stay shared."
    )


def _evidence(growth: Growth) -> tuple[Evidence, ...]:
    return (
        Evidence("a worker's own memory, first look", growth.first_bytes, "bytes", "workers: facts memory"),
        Evidence("a worker's own memory, last look", growth.last_bytes, "bytes", "workers: facts memory"),
        Evidence("copied from what was shared", growth.copied_bytes, "bytes", "workers: facts memory"),
        Evidence("swapped out", growth.swapped_bytes, "bytes", "workers: facts memory"),
        Evidence("batches between the looks", growth.batches, "count", "workers: facts memory"),
        Evidence("time with tasks held up for memory", growth.stalled_share, "share", "/proc/pressure/memory"),
    )


def _where(use: LoaderUse, run: Run) -> Where:
    return use.dataset_at or place_of(use, run)
