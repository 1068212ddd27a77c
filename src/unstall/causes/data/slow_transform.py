"""The code that makes one sample works too long.

## What it is
A line of `__getitem__`, or of what it calls, does most of the work of making a batch: it decodes, tokenizes, parses
or computes, often the same for a sample at every epoch.

## Why it costs
It is done once for every sample of every epoch. Where the loop makes its batches itself it is added to the step;
where the workers have no more cores to use, the loop waits for them.

## How it is told
Making a batch is CPU work (its CPU time is most of its running time), the loop spends a tenth of the step or more on
it (a batch that takes less than half a millisecond is made well, unless its few samples take long), and stack samples
below the fetch share it out over lines. Interpreted work that draws no random numbers is the
same at every epoch, so it need not be done: it is blamed before missing overlap. Work that is needed is left to
`data/starved-loader` as far as more workers would hide it. Work of workers that the model hides costs nothing and is
not named, nor is a wait that other programs of the machine make by taking the workers' cores.

## Sources
PyTorch Performance Tuning Guide, "Enable asynchronous data loading and augmentation".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import Cause
from unstall.causes.data._input import (
    CROWDED,
    LEAST_SAMPLES,
    LEAST_WAIT,
    Wait,
    crowd,
    gist,
    heaviest,
    is_busy,
    is_much,
    is_walked,
    reopened,
    rows_line,
    saved_share,
    share_of,
    wait_for_work,
)
from unstall.causes.data._keeping import come_out_the_same, keep_samples
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Weight
from unstall.model.ledger import Basis, Ledger
from unstall.model.loading import BatchLine, LoaderUse
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Cores, Tables

LEAST_PART = 0.3  # of a batch's cost on the line; with less no line is to blame
_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDDFB|DDDDDDDDFB
    host   |llllllll..|llllllll..
"""
_WORKERS = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDDFB|DDDDDDDDFB
    host   |wwwwwwww..|wwwwwwww..
"""
_HIDDEN = """
    step   |ssssssssss|ssssssssss
    main   |DFFFFBBBBB|DFFFFBBBBB
    host   |..........|..........
"""
_FIFTH = """
    step   |ssssssssss|ssssssssss
    main   |DDFFFFFBBB|DDFFFFFBBB
    host   |ll........|ll........
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
    batch_cpu_ns=8 * _MS,
    getitem_ns=8 * _MS,
    collate_ns=0,
    draws_random=False,
    samples=16,
)
_WITH_WORKERS = LoaderUse(
    0,
    Line("train.py", 30),
    "DataLoader",
    True,
    2,
    1.0,
    16 * _MS,
    workers=2,
    batch_wall_ns=20 * _MS,
    batch_cpu_ns=19 * _MS,
    getitem_ns=20 * _MS,
    collate_ns=0,
    draws_random=True,
    samples=16,
)
_ALL_HIDDEN = LoaderUse(
    0,
    Line("train.py", 30),
    "DataLoader",
    True,
    2,
    1.0,
    0,
    workers=1,
    batch_wall_ns=9 * _MS,
    batch_cpu_ns=9 * _MS,
    getitem_ns=9 * _MS,
    collate_ns=0,
    draws_random=True,
    samples=16,
)
_WAITS = LoaderUse(
    0,
    Line("train.py", 30),
    "DataLoader",
    True,
    2,
    1.0,
    16 * _MS,
    workers=0,
    batch_wall_ns=8 * _MS,
    batch_cpu_ns=1 * _MS,
    batch_blocked_ns=7 * _MS,
    getitem_ns=8 * _MS,
    collate_ns=0,
    draws_random=False,
    samples=16,
)
_FEW = replace(_USE, wait_ns=4 * _MS, batch_wall_ns=200_000, batch_cpu_ns=200_000, getitem_ns=200_000, samples=4)
_LINES = (
    BatchLine(Line("train.py", 12, "__getitem__"), "getitem", 0, 0.75, 0.1, 60, "encode", 0.9, 0.0),
    BatchLine(Line("train.py", 13, "__getitem__"), "getitem", 0, 0.25, 0.25, 20, "", 0.5, 0.0),
)
_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def digits(text):
    count = [0] * 10
    for letter in text:  # <- fault
        if letter.isdigit():  # <- fault
            count[int(letter)] += 1  # <- fault
    return count


class Numbers(Dataset):
    def __init__(self):
        self.texts = [str(7 ** (i + 300)) * 4 for i in range(512)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        counts = digits(self.texts[i])  # <- fault
        return torch.tensor(counts, dtype=torch.float32), i % 2


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2))
    opt = torch.optim.SGD(net.parameters(), lr=1e-6)
    for epoch in range(6):
        for x, y in DataLoader(Numbers(), batch_size=32, shuffle=True):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(loss.item())
"""


class SlowTransform(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, spent_ms=12, given=Given(tables={"loaders": (_USE,), "batch_lines": _LINES})),
        # other programs take cores, but the workers' own 20 ms over two of them would keep the loop waiting as well
        Fires(
            _WORKERS,
            spent_ms=15,
            given=Given(
                tables={
                    "loaders": (_WITH_WORKERS,),
                    "batch_lines": _LINES,
                    "cores": Cores(2.0, others_busy=1.5),
                }
            ),
        ),
        # three quarters of 20 ms over two workers is 7.5 ms of the 8 ms wait
        Fires(_WORKERS, spent_ms=15, given=Given(tables={"loaders": (_WITH_WORKERS,), "batch_lines": _LINES})),
        # 50 us a sample, however short the batch
        Fires(_FIFTH, spent_ms=3, given=Given(tables={"loaders": (_FEW,), "batch_lines": _LINES})),
        Silent(
            _FIFTH,
            "a batch of 32 such samples in 0.2 ms is made well",
            Given(tables={"loaders": (replace(_FEW, samples=32),), "batch_lines": _LINES}),
        ),
        Silent(
            _HIDDEN,
            "a worker augments all the time, beside the model: the loop does not wait",
            Given(tables={"loaders": (_ALL_HIDDEN,), "batch_lines": _LINES}),
        ),
        Silent(
            _WORKERS,
            "other programs take the workers' cores: alone they make a batch in half of the time that the model takes",
            Given(
                tables={
                    "loaders": (replace(_WITH_WORKERS, batch_cpu_ns=_MS, batch_run_queue_ns=18 * _MS),),
                    "batch_lines": _LINES,
                    "cores": Cores(2.0, others_busy=1.5),
                }
            ),
        ),
        Silent(
            _PICTURE,
            "the line waits for a disk or the net, which more workers would overlap",
            Given(tables={"loaders": (_WAITS,), "batch_lines": _LINES}),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace(
                "self.texts = [str(7 ** (i + 300)) * 4 for i in range(512)]",
                "self.counts = torch.tensor([digits(str(7 ** (i + 300)) * 4) for i in range(512)]).float()",
            )
            .replace("len(self.texts)", "len(self.counts)")
            .replace("        counts = digits(self.texts[i])  # <- fault\n", "")
            .replace("torch.tensor(counts, dtype=torch.float32), i % 2", "self.counts[i], i % 2")
            .replace("  # <- fault", "")
            .replace("in DataLoader(Numbers()", "in DataLoader(numbers")
            .replace("    for epoch", "    numbers = Numbers()\n    for epoch"),
            also=frozenset({"kernels/too-few-threads", "data/starved-loader", "data/row-by-row"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        for use in tables.loaders:
            if use.trains and is_much(use.getitem_ns, use) and is_busy(use) and crowd(use, tables.cores) < CROWDED:
                wait = wait_for_work(use, ledger, tables)
                line = heaviest(tables.batch_lines, "getitem")
                if wait.share >= LEAST_WAIT and line is not None and rows_line(use, tables.batch_lines) is None:
                    yield from self._of(use, wait, line, tables)

    def _of(self, use: LoaderUse, wait: Wait, line: BatchLine, tables: Tables) -> Iterator[Finding]:
        part = line.share / share_of(tables.batch_lines, "getitem") * (use.getitem_ns or 0) / max(1, use.batch_wall_ns)
        if part < LEAST_PART or line.samples < LEAST_SAMPLES or line.line is None:
            return
        opened = reopened(tables.batch_lines)
        if opened is not None and opened.share >= 0.5 * line.share:
            return  # most of it is opening a file anew
        same = use.draws_random is False and is_walked(line)
        saved = saved_share(use, wait, part)
        per_sample = part * use.batch_wall_ns / max(1, use.samples or use.batch_size or 1)
        yield Finding(
            self.id,
            f"{part:.0%} of a batch's {use.batch_wall_ns / 1e6:.3g} ms goes into this line{gist(line)}: "
            f"{per_sample / 1e6:.3g} ms a sample{', the same at every epoch' if same else ''}.",
            line.line,
            wait.scope,
            (wait.stake(saved),),
            Weight.NEEDLESS if same else Weight.ESTIMATED,
            Basis.SAMPLED,
            (
                Evidence("cost of a batch, median", use.batch_wall_ns, "ns", "rank 0: fetches"),
                Evidence("of it CPU time", use.batch_cpu_ns, "ns", "rank 0: fetches"),
                Evidence(
                    "share of the batch's samples on the line", line.share, "share", "stack samples below the fetch"
                ),
                Evidence("samples on the line", line.samples, "count", "stack samples below the fetch"),
                Evidence("time that the loop spends on its batches", wait.step_ns, "ns a step", "rank 0: ledger FETCH"),
                *inner(tables.batch_lines, line),
            ),
            wait.saving(0.0, saved),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        if finding.weight is Weight.NEEDLESS:
            use = next((use for use in tables.loaders if use.trains and use.getitem_ns), None)
            if use is not None and come_out_the_same(use):
                yield keep_samples(self.id, use, run, tables)
                return
            title = "Do this work once, before the training, and keep its result (in memory or in a file)"
            yield Remedy(
                f"{self.id}#once",
                title,
                Safety.SAME_BITS,
                why="it draws no random numbers: a sample comes out the same each time",
            )
            return
        title = "Make the line cheaper: store what it decodes smaller or decoded, or do it for a whole batch at once"
        yield Remedy(
            f"{self.id}#cheaper", title, Safety.CHANGES_TRAINING, why="what another decoder or size yields differs"
        )


def inner(lines: tuple[BatchLine, ...], line: BatchLine) -> tuple[Evidence, ...]:
    """Return the user's innermost hot line, where that is another one."""
    own = max(
        (each for each in lines if each.part == line.part and each.line), key=lambda each: each.own_share, default=line
    )
    if own.line is None or own.line == line.line:
        return ()
    return (
        Evidence(
            f"share with {own.line.file}:{own.line.line} ({own.line.function}) innermost",
            own.own_share,
            "share",
            "stack samples",
        ),
    )
