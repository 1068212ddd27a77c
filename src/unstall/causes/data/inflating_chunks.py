"""Each sample reads and decodes many times what it keeps.

## What it is
Samples lie together in compressed or chunked storage: an array of an `.npz` file, a chunk of HDF5 or zarr, a row group
of Parquet, a gzip stream. To get one sample all of its chunk is read and decoded, the sample is taken out of it, and
the rest is thrown away; the next sample decodes the same chunk again.

## Why it costs
The work is that of the chunk, not of the sample: with a hundred samples in a chunk, a hundred times as much. In a
shuffled order no cache of chunks helps.

## How it is told
The bytes that reads of files returned while a few batches were made, page-cached or not, against the bytes of the
samples that came of them: four times as many or more. And the files that the process keeps open are so small that a
pass over the data reads all of them four times over: so it is the same parts that are read again. The claim is the
share of the line that reads, by stack samples below the fetch. Files of one sample each, mapped files, and archives so well
compressed that little is read, are left alone: there it cannot be told from counts.

## Sources
numpy documentation, `numpy.load`: arrays of an `.npz` file are loaded at each access;
https://docs.h5py.org/en/stable/high/dataset.html, "Chunked storage".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import Cause
from unstall.causes.data._input import (
    LEAST_SAMPLES,
    LEAST_WAIT,
    Wait,
    gist,
    is_much,
    reopened,
    saved_share,
    share_of,
    wait_for_work,
)
from unstall.causes.data._reads import inflation, reading, size
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Weight
from unstall.model.ledger import Basis, Ledger
from unstall.model.loading import BatchLine, LoaderUse, Reads
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

LEAST_PART = 0.25  # of a batch's cost
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
_READS = Reads(9, nbytes=20_000, read_bytes=200_000, calls=2, stored_bytes=0, faults=0, open_bytes=400_000)
_USE = LoaderUse(
    0, Line("train.py", 30), "DataLoader", True, 2, 1.0, 16 * _MS, workers=0, batch_wall_ns=8 * _MS, batch_cpu_ns=7 * _MS,
    getitem_ns=8 * _MS, collate_ns=0, samples=16, length=200, reads=_READS,
)  # fmt: skip
_LINE = BatchLine(
    Line("train.py", 12, "__getitem__"), "getitem", 0, 1.0, 0.1, 60, "numpy.lib._npyio_impl.NpzFile.__getitem__"
)
_ELSE = replace(_LINE, line=Line("train.py", 13, "__getitem__"), share=0.8, callee="numpy.fft.rfft")
_OPENS = replace(_LINE, opens="numpy.load(self.path)")


def _given(reads: Reads | None = _READS, lines: tuple[BatchLine, ...] = (_LINE,), **fields: int) -> Given:
    use = replace(_USE, reads=reads, **fields)  # type: ignore[arg-type]
    return Given(tables={"loaders": (use,), "batch_lines": lines})


_SCRIPT = """\
import tempfile

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, path):
        self.file = numpy.load(path)

    def __len__(self):
        return 300

    def __getitem__(self, i):
        wave = self.file["waves"][i]  # <- fault
        return torch.from_numpy(wave), i % 4


def store(file):
    waves = numpy.random.default_rng(0).standard_normal((300, 256), dtype=numpy.float32)
    numpy.savez_compressed(file, waves=waves)
    file.flush()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        store(file)
        loader = DataLoader(Waves(file.name), batch_size=6, shuffle=True)
        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
    print(loss.item())
"""


class InflatingChunks(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS, Sensor.SAMPLES})

    cases = (
        # nine tenths of 16 ms: a tenth of what is read is kept
        Fires(_PICTURE, spent_ms=14.4, given=_given()),
        Silent(
            _PICTURE,
            "a pass reads the file once: it is read from end to end, and little of it is kept",
            _given(replace(_READS, open_bytes=200 * 200_000)),
        ),
        Silent(
            _PICTURE,
            "windows that overlap are read over and over, and kept as they are",
            _given(replace(_READS, nbytes=190_000)),
        ),
        Silent(
            _PICTURE,
            "each sample has a file of its own, which is closed again",
            _given(replace(_READS, open_bytes=0)),
        ),
        Silent(_PICTURE, "the same file is opened anew each time, which is another fault", _given(lines=(_OPENS,))),
        Silent(
            _PICTURE,
            "a line beside the reading does most of the work",
            _given(lines=(_ELSE, replace(_LINE, share=0.2))),
        ),
        Silent(_HIDDEN, "a worker decodes beside the model", _given(workers=1, wait_ns=0)),
        Silent(_PICTURE, "nothing is known of what was read", _given(None)),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("  # <- fault", "")
            .replace("self.file = numpy.load(path)", 'self.waves = numpy.load(path)["waves"]')
            .replace('self.file["waves"][i]', "self.waves[i]")
            .replace("range(2)", "range(30)"),
            also=frozenset(
                {"data/slow-transform", "data/starved-loader", "data/row-by-row", "kernels/too-few-threads"}
            ),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        line, opened = reading(tables.batch_lines), reopened(tables.batch_lines)
        if line is None or (opened is not None and opened.share >= 0.5 * line.share):
            return
        for use in tables.loaders:
            if use.trains and is_much(use.getitem_ns, use) and use.reads is not None and inflation(use):
                wait = wait_for_work(use, ledger, tables)
                if wait.share >= LEAST_WAIT:
                    yield from self._of(use, use.reads, wait, line, tables)

    def _of(self, use: LoaderUse, reads: Reads, wait: Wait, line: BatchLine, tables: Tables) -> Iterator[Finding]:
        over, passes = inflation(use), reads.read_bytes * (use.length or 0) / max(1, reads.open_bytes or 0)
        share = line.share / share_of(tables.batch_lines, "getitem") * (use.getitem_ns or 0) / max(1, use.batch_wall_ns)
        part = share * (1 - 1 / over)
        if part < LEAST_PART or line.samples < LEAST_SAMPLES or line.line is None:
            return
        saved = saved_share(use, wait, part)
        yield Finding(
            self.id,
            f"Each sample reads {size(reads.read_bytes)} of its files and keeps {size(reads.nbytes)}{gist(line)}: "
            f"a pass over the data reads all of them {passes:.0f} times.",
            line.line,
            wait.scope,
            (wait.stake(saved),),
            Weight.NEEDLESS,
            Basis.SAMPLED,
            (
                Evidence("read from files, a sample", reads.read_bytes, "bytes", "rank 0: facts reads"),
                Evidence("a sample", reads.nbytes, "bytes", "rank 0: facts reads"),
                Evidence("reads, a sample", reads.calls, "count", "rank 0: facts reads"),
                Evidence("files that are kept open", reads.open_bytes or 0, "bytes", "rank 0: facts open"),
                Evidence("cost of a batch, median", use.batch_wall_ns, "ns", "rank 0: fetches"),
                Evidence("share of it on the line", share, "share", "stack samples below the fetch"),
                Evidence("samples on the line", line.samples, "count", "stack samples below the fetch"),
                Evidence("time that the loop spends on its batches", wait.step_ns, "ns a step", "rank 0: ledger FETCH"),
            ),
            wait.saving(0.7 * saved, saved),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        reads = next(use.reads for use in tables.loaders if use.trains and use.reads is not None and inflation(use))
        yield Remedy(
            f"{self.id}#once",
            f"Decode the array once ({size(reads.open_bytes or 0)} as stored) and index it in memory, or store it uncompressed "
            "and map it (numpy.load(..., mmap_mode='r'))",
            Safety.SAME_BITS,
            why="the samples hold the same bytes; memory for the decoded array, or disk for it, is needed once",
        )
        yield Remedy(
            f"{self.id}#chunks",
            "Store chunks of one sample each (HDF5 and zarr: chunks=(1, ...); Parquet: small row groups)",
            Safety.SAME_BITS,
            why="the samples hold the same bytes; small chunks compress less",
        )
