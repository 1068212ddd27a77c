"""Making a batch waits for the storage that the data lie on.

## What it is
The samples are read from a disk or a network file system that does not deliver as fast as the training asks: large
reads at its full rate, or many small ones, each of which takes as long as a large one.

## Why it costs
A process that waits for storage does nothing. More workers overlap such waits up to what the storage can do at once;
beyond that each of them only waits longer.

## How it is told
Most of a batch's time is neither CPU time nor waiting for a core; bytes came from storage while it was made (those
from the page cache are not counted), or pages of mapped files did; and storage held up some task for a quarter of that
time or more (`/proc/pressure/io`, which cores that compute meanwhile dilute). Where the kernel does not tell that,
storage must have delivered 10 MB/s or more while the batch waited; with less the cause abstains. What more workers
would hide goes to `data/starved-loader` first. Where later passes find in memory what the first one read, most batches
do not wait, and nothing is said.

## Sources
Linux documentation, `filesystems/proc.rst` (`/proc/PID/io`) and `accounting/psi.rst`; Mohan et al. 2021, "Analyzing and
mitigating data stalls in DNN training", arXiv:2007.06775.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import Cause
from unstall.causes.data._input import (
    LEAST_BATCH_NS,
    LEAST_SAMPLES,
    LEAST_WAIT,
    Wait,
    heaviest,
    place_of,
    saved_share,
    wait_of,
)
from unstall.causes.data._keeping import come_out_the_same, keep_samples
from unstall.causes.data._reads import LEAST_STALLED, is_blocked, reading, size, stalled_share
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Abstained, Evidence, Finding, Line, Weight, Where
from unstall.model.ledger import Basis, Ledger
from unstall.model.loading import LoaderUse, Reads
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

SMALL_READ = 131_072  # bytes a read; below it the time is that of the reads, not of the bytes
_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDDFB|DDDDDDDDFB
    host   |wwwwwwww..|wwwwwwww..
"""
_HIDDEN = """
    step   |ssssssssss|ssssssssss
    main   |DFFFFBBBBB|DFFFFBBBBB
    host   |..........|..........
"""
_READS = Reads(9, nbytes=1000, read_bytes=1e6, calls=1, stored_bytes=1e6, faults=0, stalled_ns=4 * _MS)
_USE = LoaderUse(
    0, Line("train.py", 30), "DataLoader", True, 2, 1.0, 16 * _MS, workers=8, batch_wall_ns=80 * _MS, batch_cpu_ns=8 * _MS,
    batch_blocked_ns=72 * _MS, getitem_ns=80 * _MS, collate_ns=0, samples=16, length=4000, reads=_READS,
)  # fmt: skip


def _given(reads: Reads | None = _READS, **fields: int) -> Given:
    use = replace(_USE, reads=reads, **fields)  # type: ignore[arg-type]
    return Given(tables={"loaders": (use,), "batch_lines": ()})


_SCRIPT = """\
import mmap
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

SIZE, COUNT = 1 << 20, 96


class Frames(Dataset):
    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY | os.O_DIRECT)  # past the page cache, as where data exceed the memory
        self.buffer = None

    def __len__(self):
        return COUNT

    def __getitem__(self, i):
        self.buffer = self.buffer or mmap.mmap(-1, SIZE)
        os.preadv(self.file, [self.buffer], i * SIZE)  # <- fault
        return torch.frombuffer(bytearray(self.buffer[:65536]), dtype=torch.uint8), i % 4


def store(file):
    for i in range(COUNT):
        file.write(os.urandom(4096) * (SIZE // 4096))
    file.flush()
    os.fsync(file.fileno())


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.AvgPool1d(256), nn.Linear(256, 4))
    opt = torch.optim.SGD(net.parameters(), lr=1e-6)
    with tempfile.NamedTemporaryFile(dir=".") as file:
        store(file)
        frames = Frames(file.name)
        some = RandomSampler(frames, replacement=True, num_samples=960)
        loader = DataLoader(frames, batch_size=12, sampler=some, num_workers=8, persistent_workers=True)  # <- fault
        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x.float()), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
    print(loss.item())
"""


class SlowStorage(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS, Sensor.RUN_QUEUE})

    cases = (
        # of a batch's 80 ms 72 wait for storage; over eight workers that is more than the 8 ms wait
        Fires(_PICTURE, spent_ms=16, given=_given()),
        # stalls are not known: 16 MB in 72 ms are from storage, so all of these are taken; no more than the wait is claimed
        Fires(_PICTURE, spent_ms=16, given=_given(replace(_READS, stalled_ns=None))),
        Silent(
            _PICTURE,
            "something is read, but storage holds it up for a tenth of the time: it waits for a server or a lock",
            _given(replace(_READS, stalled_ns=_MS / 2)),
        ),
        Silent(
            _PICTURE,
            "all of it comes from the page cache, and yet the batch waits",
            _given(replace(_READS, stored_bytes=0)),
        ),
        Silent(
            _PICTURE,
            "the kernel does not tell of stalls, and little came from storage in the time",
            _given(replace(_READS, stalled_ns=None, stored_bytes=4000)),
        ),
        Silent(
            _PICTURE,
            "reading takes CPU time: decoding, or copies",
            _given(batch_cpu_ns=72 * _MS, batch_blocked_ns=8 * _MS),
        ),
        Silent(_HIDDEN, "the workers wait for storage beside the model", _given(wait_ns=0)),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("  # <- fault", "")
            .replace(
                "self.file = os.open(path, os.O_RDONLY | os.O_DIRECT)  # past the page cache, as where data exceed the memory",
                "self.stored = open(path, 'rb').read()",
            )
            .replace("        self.buffer = None\n", "")
            .replace("        self.buffer = self.buffer or mmap.mmap(-1, SIZE)\n", "")
            .replace("        os.preadv(self.file, [self.buffer], i * SIZE)\n", "")
            .replace("self.buffer[:65536]", "self.stored[i * SIZE : i * SIZE + 65536]")
            .replace("import mmap\n", ""),
            also=frozenset({"data/slow-worker-start", "data/starved-loader", "data/slow-transform"})
            | {
                "data/costly-transport",
                "data/uneven-samples",
                "data/too-many-workers",
                "data/slow-collate",
                "kernels/too-few-threads",
            },
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Abstained]:
        for use in tables.loaders:
            reads = use.reads
            if not use.trains or reads is None or (use.getitem_ns or 0) < LEAST_BATCH_NS or not is_blocked(use, reads):
                continue
            wait, share = wait_of(use, ledger, tables), stalled_share(use, reads)
            if wait.share < LEAST_WAIT:
                continue
            if share is None:
                yield Abstained(self.id, "batches wait, and the kernel does not tell for what (/proc/pressure/io)")
            elif share >= LEAST_STALLED:
                yield self._of(use, reads, share, wait, run, tables)

    def _of(self, use: LoaderUse, reads: Reads, share: float, wait: Wait, run: Run, tables: Tables) -> Finding:
        saved = saved_share(use, wait, use.batch_blocked_ns / max(1, use.batch_wall_ns))
        samples = use.samples or use.batch_size or 1
        rate = reads.stored_bytes * samples * (use.workers or 1) / max(1, use.batch_wall_ns)
        return Finding(
            self.id,
            f"A batch waits {use.batch_blocked_ns / 1e6:.3g} of its {use.batch_wall_ns / 1e6:.3g} ms for storage: "
            f"{size(reads.stored_bytes)} a sample in {reads.calls:.0f} reads, {size(1e9 * rate)} a second in all.",
            _where(use, run, tables),
            wait.scope,
            (wait.stake(saved),),
            Weight.ESTIMATED,
            Basis.MEASURED,
            (
                Evidence("cost of a batch, median", use.batch_wall_ns, "ns", "rank 0: fetches"),
                Evidence("of it blocked", use.batch_blocked_ns, "ns", "rank 0: fetches"),
                Evidence("of it CPU time", use.batch_cpu_ns, "ns", "rank 0: fetches"),
                Evidence("share of that with storage holding up", share, "share", "rank 0: facts reads"),
                Evidence("bytes from storage, a sample", reads.stored_bytes, "bytes", "rank 0: facts reads"),
                Evidence("bytes read, page-cached or not, a sample", reads.read_bytes, "bytes", "rank 0: facts reads"),
                Evidence("reads, a sample", reads.calls, "count", "rank 0: facts reads"),
                Evidence("time that the loop spends on its batches", wait.step_ns, "ns a step", "rank 0: ledger FETCH"),
            ),
            wait.saving(0.7 * share * saved, saved),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        use = next(use for use in tables.loaders if use.trains and use.reads is not None)
        assert use.reads is not None
        whole = size(use.reads.stored_bytes * (use.length or 0))
        yield Remedy(
            f"{self.id}#stage",
            f"Copy the data ({whole} are read in a pass) to memory (/dev/shm) or a local disk before the training",
            Safety.SAME_BITS,
            why="the samples hold the same bytes",
        )
        if come_out_the_same(use):
            yield keep_samples(self.id, use, run, tables)
        if use.reads.read_bytes < SMALL_READ * max(1.0, use.reads.calls):
            yield Remedy(
                f"{self.id}#shards",
                "Pack the samples into few large files, and read them in sequence (shuffle shards, then within a buffer)",
                Safety.CHANGES_TRAINING,
                why="the order in which samples come differs",
            )


def _where(use: LoaderUse, run: Run, tables: Tables) -> Where:
    for line in (reading(tables.batch_lines), heaviest(tables.batch_lines, "getitem")):
        if line is not None and line.line is not None and line.samples >= LEAST_SAMPLES:
            return line.line
    return place_of(use, run)
