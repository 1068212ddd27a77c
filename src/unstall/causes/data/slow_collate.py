"""The function that puts samples together to a batch works too long.

## What it is
The loader's `collate_fn` takes most of the time of making a batch: it pads element by element, converts between
lists and tensors, or tokenizes.

## Why it costs
It is run for every batch, and in Python a loop over elements costs a hundred times the copy that one call for the
whole sample would be.

## How it is told
The time of the collate function in each fetch, against the rest of the fetch; stack samples below it name the line.
The loop spends a tenth of the step or more on its batches, and making them is CPU work. Work element by element
(interpreted, or far slower than a copy of the batch's bytes) is blamed before missing overlap; work inside a library
is left to `data/starved-loader` as far as more workers would hide it.

## Sources
PyTorch documentation, `torch.nn.utils.rnn.pad_sequence`; https://github.com/flairNLP/flair/issues/889.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    is_interpreted,
    is_much,
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

LEAST_PART = 0.4  # of a batch's cost in the collate function
SLOWEST_COPY_NS = 10  # a byte; a copy in one piece takes under 1, so what takes longer does something for each element
_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDDFB|DDDDDDDDFB
    host   |llllllll..|llllllll..
"""


def _use(collate_ms: int) -> LoaderUse:
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
        getitem_ns=(8 - collate_ms) * _MS,
        collate_ns=collate_ms * _MS,
        samples=32,
        collate="pad",
    )


_LINES = (BatchLine(Line("train.py", 12, "pad"), "collate", 0, 0.7, 0.7, 60, "", 0.9, 0.0),)
_LIBRARY = (
    BatchLine(
        None, "collate", 0, 0.7, 0.7, 60, "site-packages.torch.utils.data._utils.collate.default_collate", 0.9, 0.0
    ),
)
_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def pad(batch):
    longest = max(len(words) for words, _ in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    for row, (words, _) in enumerate(batch):
        for column, word in enumerate(words):  # <- fault
            ids[row, column] = word  # <- fault
    return ids, torch.tensor([kind for _, kind in batch])


torch.manual_seed(0)
torch.set_num_threads(1)
texts = [([(i * k) % 97 for k in range(20 + i % 80)], i % 2) for i in range(640)]
loader = DataLoader(texts, batch_size=16, shuffle=True, collate_fn=pad)
net = nn.Sequential(nn.EmbeddingBag(97, 16), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(4):
    for ids, kinds in loader:
        loss = nn.functional.cross_entropy(net(ids), kinds)
        opt.zero_grad()
        loss.backward()
        opt.step()
print(loss.item())
"""
_PAD = """\
    longest = max(len(words) for words, _ in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    for row, (words, _) in enumerate(batch):
        for column, word in enumerate(words):  # <- fault
            ids[row, column] = word  # <- fault
"""


class SlowCollate(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, spent_ms=12, given=Given(tables={"loaders": (_use(6),), "batch_lines": _LINES})),
        Silent(
            _PICTURE,
            "the samples take most of the time, not putting them together",
            Given(tables={"loaders": (_use(2),), "batch_lines": _LINES}),
        ),
        Silent(
            _PICTURE,
            "the library's own function stacks what it is given: no line of the user's is in it",
            Given(tables={"loaders": (_use(6),), "batch_lines": _LIBRARY}),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            # a list of Python's numbers takes 0.1 us for each to become a tensor, which is a fault of its own
            after=_SCRIPT.replace(
                _PAD, "    ids = nn.utils.rnn.pad_sequence([words for words, _ in batch], batch_first=True)\n"
            ).replace("[([(i * k) % 97 for k in range(20 + i % 80)], i", "[(torch.arange(20 + i % 80) * i % 97, i"),
            also=frozenset({"data/starved-loader", "kernels/too-few-threads"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        for use in tables.loaders:
            if use.trains and is_much(use.collate_ns, use) and is_busy(use) and crowd(use, tables.cores) < CROWDED:
                wait = wait_for_work(use, ledger, tables)
                line = heaviest(tables.batch_lines, "collate")
                if wait.share >= LEAST_WAIT and line is not None:
                    yield from self._of(use, wait, line, tables.batch_lines)

    def _of(self, use: LoaderUse, wait: Wait, line: BatchLine, lines: tuple[BatchLine, ...]) -> Iterator[Finding]:
        part = (use.collate_ns or 0) / max(1, use.batch_wall_ns)
        if part < LEAST_PART or line.samples < LEAST_SAMPLES or line.line is None:
            return
        saved = saved_share(use, wait, part)
        own = sum(each.own_share for each in lines if each.part == "collate" and each.line and not each.callee)
        copies = (use.collate_ns or 0) <= SLOWEST_COPY_NS * use.nbytes
        by_elements = is_interpreted(line) or (own >= 0.5 * share_of(lines, "collate") and not copies)
        yield Finding(
            self.id,
            f"Putting a batch's samples together takes {(use.collate_ns or 0) / 1e6:.3g} ms, {part:.0%} of making it; "
            f"its hottest line is this one{gist(line)}.",
            line.line,
            wait.scope,
            (wait.stake(saved),),
            Weight.NEEDLESS if by_elements else Weight.ESTIMATED,
            Basis.MEASURED,
            (
                Evidence("collate function, a batch, median", use.collate_ns or 0, "ns", "rank 0: fetches"),
                Evidence("fetching the samples, a batch, median", use.getitem_ns or 0, "ns", "rank 0: fetches"),
                Evidence(
                    "share of the batch's samples on the line", line.share, "share", "stack samples below the fetch"
                ),
                Evidence("samples on the line", line.samples, "count", "stack samples below the fetch"),
                Evidence("time that the loop spends on its batches", wait.step_ns, "ns a step", "rank 0: ledger FETCH"),
            ),
            wait.saving(0.0, saved),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        title = "Copy a sample at once rather than its elements (torch.nn.utils.rnn.pad_sequence; one slice a sample)"
        yield Remedy(f"{self.id}#at-once", title, Safety.SAME_BITS, why="the batch holds the same numbers")
