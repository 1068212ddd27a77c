"""The same file is opened anew for every sample.

## What it is
`__getitem__`, or what it calls, opens an archive, a data base or a container that holds all samples, takes one sample
out of it and closes it again; or it reads a whole file to use one row of it.

## Why it costs
Opening reads the file's index: a zip's directory, the tables of an HDF5 file, the schema of a data base. That is work
in proportion to all samples, done for each of them. Reading a whole file for one row is the square of the work.

## How it is told
Stack samples below the fetch are on lines that open, close or read a file whose name does not depend on the sample: a
constant, a variable of the module or an attribute of the dataset, by the text of the function. The loop spends a
tenth of the step or more on its batches. A file for each sample (`self.files[i]`) has to be opened and is left alone,
and so is a file opened once in `__init__`, in `__iter__`, or behind a cache. What is opened but read little further
is no fault either, as long as the opening is less than a quarter of a batch's cost.

## Sources
https://docs.h5py.org/en/stable/high/file.html; PyTorch documentation, `torch.utils.data.get_worker_info`;
https://github.com/pytorch/pytorch/issues/11929.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import Cause
from unstall.causes.data._input import (
    LEAST_SAMPLES,
    LEAST_WAIT,
    Reopened,
    Wait,
    is_much,
    reopened,
    saved_share,
    share_of,
    wait_for_work,
)
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Weight
from unstall.model.ledger import Basis, Ledger
from unstall.model.loading import BatchLine, LoaderUse
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

LEAST_PART = 0.25  # of a batch's cost in opening
_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDDFB|DDDDDDDDFB
    host   |llllllll..|llllllll..
"""
_HIDDEN = """
    step   |ssssssssss|ssssssssss
    main   |DFFFFBBBBB|DFFFFBBBBB
    host   |..........|..........
"""
_USE = LoaderUse(
    0,
    Line("train.py", 30),
    "DataLoader",
    True,
    2,
    1.0,
    16 * _MS,
    workers=0,
    batch_wall_ns=8 * _MS,
    batch_cpu_ns=7 * _MS,
    getitem_ns=8 * _MS,
    collate_ns=0,
    samples=16,
)
_OPENS = BatchLine(
    Line("train.py", 12, "__getitem__"), "getitem", 0, 0.5, 0.1, 60, "zipfile.ZipFile.__init__",
    opens="zipfile.ZipFile(self.path)",
)  # fmt: skip
_CLOSES = BatchLine(
    Line("train.py", 14, "__getitem__"), "getitem", 0, 0.25, 0.1, 30, "zipfile.ZipFile.close",
    opens="zipfile.ZipFile(self.path)",
)  # fmt: skip
_READS = BatchLine(Line("train.py", 13, "__getitem__"), "getitem", 0, 0.25, 0.25, 30, "zipfile.ZipFile.read")
_OWN_FILE = BatchLine(Line("train.py", 12, "__getitem__"), "getitem", 0, 0.9, 0.1, 90, "PIL.Image.open")
_SCRIPT = """\
import tempfile
import zipfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TOTAL = 1000


class Waves(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 160

    def __getitem__(self, i):
        with zipfile.ZipFile(self.path) as archive:  # <- fault
            stored = archive.read(f"{i}.f32")
        return torch.frombuffer(bytearray(stored), dtype=torch.float32), i % 4


def store(path):
    generator = torch.Generator().manual_seed(0)
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(TOTAL):
            archive.writestr(f"{i}.f32", torch.randn(64, generator=generator).numpy().tobytes())


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    with tempfile.NamedTemporaryFile(suffix=".zip") as file:
        store(file.name)
        loader = DataLoader(Waves(file.name), batch_size=8, shuffle=True)
        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
    print(loss.item())
"""


class ReopenedFile(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS, Sensor.SAMPLES})

    cases = (
        # opening and closing, three quarters of 16 ms
        Fires(
            _PICTURE, spent_ms=12, given=Given(tables={"loaders": (_USE,), "batch_lines": (_OPENS, _READS, _CLOSES)})
        ),
        Silent(
            _PICTURE,
            "each sample has a file of its own, which must be opened",
            Given(tables={"loaders": (_USE,), "batch_lines": (_OWN_FILE,)}),
        ),
        Silent(
            _PICTURE,
            "opening the file again is a tenth of the work: the rest is spent on the sample",
            Given(tables={"loaders": (_USE,), "batch_lines": (replace(_READS, share=0.9), replace(_OPENS, share=0.1))}),
        ),
        Silent(
            _HIDDEN,
            "a worker opens it, beside the model: the loop does not wait",
            Given(
                tables={
                    "loaders": (replace(_USE, workers=1, wait_ns=0),),
                    "batch_lines": (_OPENS, _READS, _CLOSES),
                }
            ),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace(
                """\
        with zipfile.ZipFile(self.path) as archive:  # <- fault
            stored = archive.read(f"{i}.f32")
""",
                """\
        if self.archive is None:
            self.archive = zipfile.ZipFile(self.path)
        stored = self.archive.read(f"{i}.f32")
""",
            )
            .replace("        self.path = path\n", "        self.path = path\n        self.archive = None\n")
            .replace("range(2)", "range(20)"),
            also=frozenset({"data/slow-transform", "data/starved-loader", "kernels/too-few-threads"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        opened = reopened(tables.batch_lines)
        for use in tables.loaders:
            if opened and use.trains and not use.iterable and is_much(use.getitem_ns, use):
                wait = wait_for_work(use, ledger, tables)
                if wait.share >= LEAST_WAIT:
                    yield from self._of(use, wait, opened, tables.batch_lines)

    def _of(self, use: LoaderUse, wait: Wait, opened: Reopened, lines: tuple[BatchLine, ...]) -> Iterator[Finding]:
        share = opened.share / share_of(lines, "getitem")
        part = share * (use.getitem_ns or 0) / max(1, use.batch_wall_ns)
        if part < LEAST_PART or opened.samples < LEAST_SAMPLES or opened.line.line is None:
            return
        saved = saved_share(use, wait, part)
        per_sample = part * use.batch_wall_ns / max(1, use.samples or use.batch_size or 1)
        yield Finding(
            self.id,
            f"{opened.line.opens} works on the same file anew for every sample: {per_sample / 1e6:.3g} ms each, "
            f"{part:.0%} of a batch's {use.batch_wall_ns / 1e6:.3g} ms.",
            opened.line.line,
            wait.scope,
            (wait.stake(saved),),
            Weight.NEEDLESS,
            Basis.SAMPLED,
            (
                Evidence("cost of a batch, median", use.batch_wall_ns, "ns", "rank 0: fetches"),
                Evidence("share of it in opening the file", part, "share", "stack samples below the fetch"),
                Evidence("samples on the lines that open it", opened.samples, "count", "stack samples below the fetch"),
                Evidence("time that the loop spends on its batches", wait.step_ns, "ns a step", "rank 0: ledger FETCH"),
            ),
            wait.saving(0.8 * saved, saved),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        yield Remedy(
            f"{self.id}#keep-open",
            "Open it once a process, at the first sample, and keep it in an attribute of the dataset",
            Safety.SAME_BITS,
            why="the samples hold the same bytes; open it in __getitem__ where the attribute is None, not in __init__: "
            "processes that share an open file share its position",
        )
