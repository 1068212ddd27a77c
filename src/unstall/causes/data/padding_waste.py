"""The model computes on padding.

## What it is
The rows of a batch are sequences of different lengths, filled up to one width: to a fixed length, or to the longest
sequence of the batch where short and long ones come together by chance.

## Why it costs
Most layers compute on the filled positions as on the others, forward and backward, and throw the result away. A row of
20 tokens in a batch 128 wide costs as much as one of 128; in attention, several times as much as it would need.

## How it is told
A few batches are looked at on the host: one value (or zeros) stands at the end of the rows, or at their beginning, and
hardly anywhere else. Tensors padded alike must be at least half of the batch's bytes. Where all batches are equally wide,
the claim is the share of the width that not even the longest row of a batch needs, if that is a fifth or more.
Otherwise it is the padding that remains at the longest row, if that is half or more: short and long rows are then to be
batched apart. The claim is that share of the time that forward and backward compute: an estimate, as layers differ in
what they do with padding. Training code that packs its rows (`pack_padded_sequence`, nested tensors) is left alone.

## Sources
Hugging Face, "Dynamic padding" and `group_by_length`; Krell et al. 2021, "Efficient sequence packing without
cross-contamination", arXiv:2107.02027.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.data._input import LEAST_SAMPLES, place_of
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Device, Ledger, Phase
from unstall.model.loading import BatchLine, LoaderUse, Padding
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

LEAST_UNUSED = 0.2  # of the width, that no row of a batch needs
LEAST_UNEVEN = 0.5  # of the positions; less is what batches of natural lengths have
LEAST_PART = 0.5  # of the batch's bytes
_FILLS = re.compile(
    r"\b(pad\w*|max_length|(new_)?(zeros|ones|full|empty)(_like)?)\b"
)  # the text of a line that fills up
_MS = 1_000_000
_COMPUTES = (Phase.FORWARD, Phase.BACKWARD)
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DFFFFBBBBO|DFFFFBBBBO
    host   |lxxxxxxxx.|lxxxxxxxx.
"""
_FIXED = Padding(width=100.0, length=25.0, longest=50.0, part=1.0, same_width=True, looks=4)


def _given(padding: Padding | None) -> Given:
    use = LoaderUse(
        0, Line("train.py", 30), "DataLoader", True, 2, 1.0, 2 * _MS, workers=0, batch_wall_ns=_MS, padding=padding
    )
    return Given(tables={"loaders": (use,), "batch_lines": ()})


_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

WIDTH = 160


def pad(samples):
    ids = torch.zeros(len(samples), WIDTH, dtype=torch.long)  # <- fault
    for row, (words, _) in enumerate(samples):
        ids[row, : words.numel()] = words
    return ids, torch.tensor([kind for _, kind in samples])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 128, padding_idx=0)
        self.mix = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))
        self.head = nn.Linear(128, 2)

    def forward(self, ids):
        real = (ids > 0).unsqueeze(2)
        return self.head((self.mix(self.embed(ids)) * real).sum(1) / real.sum(1))


torch.manual_seed(0)
torch.set_num_threads(1)
texts = [(torch.arange(i * 7, i * 7 + 10 + i % 31) % 99 + 1, i % 2) for i in range(480)]
loader = DataLoader(texts, batch_size=16, shuffle=True, collate_fn=pad)  # <- fault
net = Tagger()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for ids, kinds in loader:
        loss = nn.functional.cross_entropy(net(ids), kinds)
        opt.zero_grad()
        loss.backward()
        opt.step()
print(f"{loss.item():.2f}")
"""


class PaddingWaste(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS})

    cases = (
        # half of the width is more than any row needs: half of 2 x 8 ms
        Fires(_PICTURE, spent_ms=8, given=_given(_FIXED)),
        # wide as the longest of each batch, 60 % of it padding
        Fires(_PICTURE, spent_ms=9.6, given=_given(replace(_FIXED, length=40.0, longest=100.0, same_width=False))),
        Silent(
            _PICTURE,
            "padded to the longest of each batch, a third of it: natural lengths are so",
            _given(replace(_FIXED, length=67.0, longest=100.0, same_width=False)),
        ),
        Silent(
            _PICTURE,
            "a fixed width that the longest rows fill: most rows are nearly as long",
            _given(replace(_FIXED, length=80.0, longest=95.0)),
        ),
        Silent(_PICTURE, "the code packs the rows before it computes", _given(replace(_FIXED, skipped=True))),
        Silent(
            _PICTURE,
            "what is padded is the smaller part of the batch, beside pictures",
            _given(replace(_FIXED, part=0.01)),
        ),
        Silent(_PICTURE, "nothing is padded", _given(None)),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("  # <- fault", "")
            .replace("WIDTH, dtype", "longest, dtype")
            .replace(
                "    ids = torch.zeros",
                "    longest = max(words.numel() for words, _ in samples)\n    ids = torch.zeros",
            )
            .replace("WIDTH = 160\n\n\n", "\n"),
            also=frozenset({"kernels/too-few-threads", "data/starved-loader", "data/row-by-row", "data/slow-collate"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        training = [use for use in tables.loaders if use.trains]
        for use in training[:1]:  # the time that the model computes cannot be told apart by loader
            if use.padding is not None and use.padding.part >= LEAST_PART and not use.padding.skipped:
                share = wasted(use.padding)
                stakes = _stakes(share, tables) if share else ()
                if sum(stake.ns for stake in stakes) >= LEAST_SHARE * tables.steady_ns > 0:
                    yield self._of(use, use.padding, share, stakes, run, tables)

    def _of(
        self, use: LoaderUse, padding: Padding, share: float, stakes: tuple[Stake, ...], run: Run, tables: Tables
    ) -> Finding:
        needed = "no row needs" if is_fixed(padding) else "stands beside the longest row of a batch"
        saved = sum(stake.ns for stake in stakes) / tables.rank_steps
        return Finding(
            self.id,
            f"{1 - padding.length / padding.width:.0%} of the positions that the model computes are padding "
            f"(rows are {padding.length:.0f} long, batches {padding.width:.0f} wide); {share:.0%} {needed}.",
            _fills(tables.batch_lines) or place_of(use, run),
            Scope.STEADY,
            stakes,
            Weight.ESTIMATED,
            Basis.SAMPLED,
            (
                Evidence("width of a batch, mean", padding.width, "count", "batches looked at"),
                Evidence("length of a row, mean", padding.length, "count", "batches looked at"),
                Evidence("longest row of a batch, mean", padding.longest, "count", "batches looked at"),
                Evidence("share of the batch's bytes padded so", padding.part, "share", "batches looked at"),
                Evidence("batches looked at", padding.looks, "count", "rank 0: facts contents"),
            ),
            Saving(int(0.4 * saved), int(saved)),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        padding = next((use.padding for use in tables.loaders if use.trains), None)
        if padding is not None and is_fixed(padding):
            yield Remedy(
                f"{self.id}#longest",
                'Pad to the longest row of each batch (padding="longest", pad_sequence) instead of a fixed width',
                Safety.SAME_MATH,
                why="where padding is masked in attention, pooling and loss; a compiled model needs dynamic=True, or few "
                "widths (pad to a multiple of 32), so as not to be compiled for each",
            )
            return
        yield Remedy(
            f"{self.id}#by-length",
            "Batch rows of similar length together (group_by_length=True, or a batch sampler over sorted chunks)",
            Safety.CHANGES_TRAINING,
            why="which samples make up a batch changes: they are no longer drawn independently of their length",
        )


def _fills(lines: tuple[BatchLine, ...]) -> Line | None:
    """Return the hottest line of the collate function that fills up, by its text; None where no such line was sampled."""
    told = [line for line in lines if line.part == "collate" and line.line and _FILLS.search(line.line.code)]
    hottest = max(told, key=lambda line: line.share, default=None)
    return hottest.line if hottest is not None and hottest.samples >= LEAST_SAMPLES else None


def is_fixed(padding: Padding) -> bool:
    """Return whether batches are padded to one width that their longest rows do not need."""
    return padding.same_width and 1 - padding.longest / padding.width >= LEAST_UNUSED


def wasted(padding: Padding) -> float:
    """Return the share of the positions that need not be computed; 0 where it is too small to speak of."""
    if is_fixed(padding):
        return 1 - padding.longest / padding.width
    uneven = 1 - padding.length / padding.width
    return uneven if uneven >= LEAST_UNEVEN else 0.0


def _stakes(share: float, tables: Tables) -> tuple[Stake, ...]:
    """Return *share* of the time that forward and backward compute: the device's, where there is one."""
    parts = tables.device_parts
    on_device = any(device is not Device.NONE for _, _, device in parts)
    computing = Device.COMPUTE if on_device else Device.NONE
    return tuple(
        Stake(phase, activity, int(share * ns), device=device)
        for (phase, activity, device), ns in sorted(parts.items())
        if phase in _COMPUTES and device is computing and (on_device or activity is Activity.COMPUTE)
    )
