"""The function that makes the batch takes much of the step, and there is no loader to take it over.

## What it is
The loop has no `DataLoader`: it calls a function that slices, pads, converts or reads the next batch, and waits for
it.

## Why it costs
The function runs in the training process between two steps, so all of its time is added to the step.

## How it is told
The function whose return value reaches the model was found in early steps and timed since. Its time is a tenth of the
step or more; stack samples inside it name the hottest line. Below half a millisecond a batch is taken for well made,
unless that line is interpreted code.

## Sources
nanoGPT, `train.py`, `get_batch`; PyTorch documentation, "Memory pinning".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import Cause
from unstall.causes.data._input import (
    LEAST_BATCH_NS,
    LEAST_OF_FEW_NS,
    LEAST_SAMPLES,
    LEAST_WAIT,
    Wait,
    gist,
    heaviest,
    is_interpreted,
    share_of,
    wait_of,
)
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Weight
from unstall.model.ledger import Basis, Ledger
from unstall.model.loading import BatchLine, LoaderUse
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

LEAST_PART = 0.3  # of the function's samples on a line; with less the function itself is named
_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDDFB|DDDDDDDDFB
    host   |llllllll..|llllllll..
"""
_QUICK = """
    step   |ssssssssssssssssssss|ssssssssssssssssssss
    main   |DFFFFFFFFFBBBBBBBBBB|DFFFFFFFFFBBBBBBBBBB
    host   |l...................|l...................
"""
_FIFTH = """
    step   |ssssssssss|ssssssssss
    main   |DDFFFFFBBB|DDFFFFFBBB
    host   |ll........|ll........
"""
_USE = LoaderUse(-1, Line("train.py", 5, "get_batch"), "get_batch", True, 2, 1.0, 16 * _MS, batch_wall_ns=8 * _MS)
_LITTLE = LoaderUse(-1, Line("train.py", 5, "get_batch"), "get_batch", True, 2, 1.0, 2 * _MS, batch_wall_ns=1 * _MS)
_BRIEF = replace(_LITTLE, wait_ns=4 * _MS, batch_wall_ns=200_000)
_LINES = (BatchLine(Line("train.py", 8, "get_batch"), "source", 0, 0.8, 0.8, 60, "", 0.9, 0.0),)
_INDEXES = (replace(_LINES[0], python=0.2),)
_SCRIPT = """\
import torch
from torch import nn


def get_batch():
    rows = torch.randint(len(text) - 33, (64,))
    x = torch.tensor([[code[c] for c in text[r : r + 32]] for r in rows])  # <- fault
    return x, labels[rows % 64]


torch.manual_seed(0)
torch.set_num_threads(1)
text = "the quick brown fox jumps over the lazy dog " * 400
code = {letter: n for n, letter in enumerate(sorted(set(text)))}
labels = torch.arange(64) % 2
net = nn.Sequential(nn.EmbeddingBag(len(code), 16), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(600):
    x, y = get_batch()
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


class SlowGetBatch(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS})

    cases = (
        Fires(_PICTURE, spent_ms=16, given=Given(tables={"loaders": (_USE,), "batch_lines": _LINES})),
        # 0.2 ms of many small steps, in a loop of the user's own
        Fires(_FIFTH, spent_ms=4, given=Given(tables={"loaders": (_BRIEF,), "batch_lines": _LINES})),
        Silent(
            _FIFTH,
            "0.2 ms a batch, which one indexing of an array takes",
            Given(tables={"loaders": (_BRIEF,), "batch_lines": _INDEXES}),
        ),
        Silent(
            _QUICK, "it takes a twentieth of the step", Given(tables={"loaders": (_LITTLE,), "batch_lines": _LINES})
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace(
                "torch.tensor([[code[c] for c in text[r : r + 32]] for r in rows])  # <- fault",
                "codes[rows[:, None] + torch.arange(32)]",
            ).replace("labels =", "codes = torch.tensor([code[c] for c in text])\nlabels ="),
            also=frozenset({"kernels/too-few-threads", "host/hot-line"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        for use in tables.loaders:
            if use.trains and use.number < 0 and use.batch_wall_ns >= _least_ns(tables):
                wait = wait_of(use, ledger, tables)
                if wait.share >= LEAST_WAIT:
                    yield self._of(use, wait, tables)

    def _of(self, use: LoaderUse, wait: Wait, tables: Tables) -> Finding:
        line = heaviest(tables.batch_lines, "source")
        part = line.share / share_of(tables.batch_lines, "source") if line is not None else 0.0
        known = line is not None and line.line is not None and line.samples >= LEAST_SAMPLES and part >= LEAST_PART
        where, hint = use.site, ""
        evidence = [Evidence(f"{use.made_by}, a batch, median", use.batch_wall_ns, "ns", "rank 0: events LOAD")]
        if known and line is not None and line.line is not None:
            where, hint = line.line, f", {part:.0%} of it in this line{gist(line)}"
            evidence.append(Evidence("share of the function's samples on the line", part, "share", "stack samples"))
            evidence.append(Evidence("samples on the line", line.samples, "count", "stack samples"))
        return Finding(
            self.id,
            f"{use.made_by} takes {use.batch_wall_ns / 1e6:.3g} ms a batch{hint}; the loop waits for it.",
            where,
            wait.scope,
            (wait.stake(),),
            Weight.OVERLAP,
            Basis.MEASURED,
            tuple(evidence),
            wait.saving(0.0, 1.0),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        title = "Make the batch from arrays in one indexing, or one batch ahead in a thread or a DataLoader's worker"
        yield Remedy(
            f"{self.id}#ahead",
            title,
            Safety.SAME_DISTRIBUTION,
            why="a batch made ahead draws its random numbers earlier",
        )


def _least_ns(tables: Tables) -> int:
    """Return what a batch is to take at least: less where most of it is interpreted code of the user's."""
    line = heaviest(tables.batch_lines, "source")
    part = line.share / share_of(tables.batch_lines, "source") if line is not None else 0.0
    loops = line is not None and line.samples >= LEAST_SAMPLES and part >= LEAST_PART and is_interpreted(line)
    return LEAST_OF_FEW_NS if loops else LEAST_BATCH_NS
