"""Every epoch makes the same samples again, byte for byte.

## What it is
`__getitem__` decodes, transforms or computes a sample from its index, and the result is the same each time: nothing in
it is random. The work is done at every epoch, though its result could be kept.

## Why it costs
The work of one epoch would do for all. Where the loop makes its batches itself it is added to every step; where workers
have no more cores to use, the loop waits for them.

## How it is told
A few samples (32 of a dataset, chosen by their index) are digested where they are made, in every process and epoch.
Twelve or more of them were made twice, all of these came out the same, and making a batch draws no random numbers.
Samples cost CPU time, the loop spends a tenth of the step or more on its batches, and keeping a sample would cost far
less than making it. One differing sample is enough to keep silent: it is augmented. With one epoch only it cannot be
told, and that is said. Where the work is the user's own interpreted code, `data/slow-transform` names the line; where
the same file is opened each time, or read over and over, `data/reopened-file` or `data/inflating-chunks` does.

## Sources
PyTorch documentation, `torch.utils.data.Dataset`; tf.data performance guide, "Caching"; Mohan et al. 2021, "Analyzing
and mitigating data stalls in DNN training", arXiv:2007.06775.
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
    heaviest,
    is_busy,
    is_much,
    is_walked,
    place_of,
    reopened,
    rows_line,
    saved_share,
    share_of,
    wait_for_work,
)
from unstall.causes.data._keeping import LEAST_TWICE, keep_samples
from unstall.causes.data._reads import inflation, size
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Abstained, Evidence, Finding, Line, Weight, Where
from unstall.model.ledger import Basis, Ledger
from unstall.model.loading import BatchLine, LoaderUse, Repeats
from unstall.model.remedy import Remedy
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

LEAST_PART = 0.3  # of a batch's cost, that keeping the samples would save
KEPT_SAMPLE_NS = 5_000  # to take a kept sample from a list or an array: 2 to 5 us
BYTES_PER_NS = 1.0  # to copy a kept sample; what one core reaches from memory, and fast storage nearly
OWN_LINE = 0.3  # of a batch's cost on the user's own interpreted line: that line is to be named
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
_SAME = Repeats(samples=30, same=30, once=2, nbytes=20_000)
_USE = LoaderUse(
    0, Line("train.py", 30), "DataLoader", True, 2, 1.0, 16 * _MS, workers=0, batch_wall_ns=8 * _MS, batch_cpu_ns=8 * _MS,
    getitem_ns=8 * _MS, collate_ns=0, draws_random=False, samples=16, length=1000, repeats=_SAME,
)  # fmt: skip
_DECODES = BatchLine(Line("train.py", 12, "__getitem__"), "getitem", 0, 0.95, 0.1, 60, "numpy.fft.rfft", 0.1, 0.0)
_LOOPS = replace(_DECODES, callee="encode", python=0.95)
_DRAWS = replace(_DECODES, callee="", python=0.95)
_OPENS = replace(_DECODES, callee="zipfile.ZipFile.__init__", opens="zipfile.ZipFile(self.path)")


def _given(use: LoaderUse = _USE, line: BatchLine = _DECODES) -> Given:
    return Given(tables={"loaders": (use,), "batch_lines": (line,)})


_SCRIPT = """\
import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sounds(Dataset):
    def __init__(self):
        self.seeds = list(range(192))

    def __len__(self):
        return len(self.seeds)

    def __getitem__(self, i):
        wave = numpy.random.default_rng(self.seeds[i]).standard_normal(65536)  # <- fault
        bands = numpy.abs(numpy.fft.rfft(wave))  # <- fault
        return torch.from_numpy(bands[1:].reshape(64, -1).mean(1)).float(), i % 4


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.001)
    sounds = Sounds()
    loader = DataLoader(sounds, batch_size=8, shuffle=True)
    for epoch in range(4):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(loss.item())
"""


class RepeatedPreprocessing(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS, Sensor.RANDOMNESS})

    cases = (
        # of 16 ms all but what keeping a sample costs: 25 us of 500 us
        Fires(_PICTURE, spent_ms=15.2, given=_given()),
        Silent(
            _PICTURE,
            "one sample of thirty came out otherwise: it is augmented",
            _given(replace(_USE, repeats=replace(_SAME, same=29))),
        ),
        Silent(
            _PICTURE,
            "one epoch: none was made twice, so it is not known",
            _given(replace(_USE, repeats=Repeats(0, 0, 32, 20_000))),
        ),
        Silent(_PICTURE, "making a batch draws random numbers", _given(replace(_USE, draws_random=True))),
        Silent(
            _PICTURE,
            "a sample is large and cheap to make: to keep it costs as much",
            _given(replace(_USE, repeats=replace(_SAME, nbytes=450_000))),
        ),
        Silent(
            _PICTURE,
            "the sample is waited for, not computed",
            _given(replace(_USE, batch_cpu_ns=_MS, batch_blocked_ns=7 * _MS)),
        ),
        # one call into a library holds the interpreter lock, and no loop of the user's walks
        Fires(_PICTURE, spent_ms=15.2, given=_given(line=_DRAWS)),
        Silent(_PICTURE, "a loop of the user's own does it, and has a name of its own", _given(line=_LOOPS)),
        Silent(_PICTURE, "the line stands in such a loop", _given(line=replace(_DRAWS, loop=True))),
        Silent(_PICTURE, "most of it is opening the same file anew", _given(line=_OPENS)),
        Silent(_HIDDEN, "workers make them beside the model", _given(replace(_USE, workers=1, wait_ns=0))),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("  # <- fault", "").replace(
                "DataLoader(sounds,", "DataLoader([sounds[i] for i in range(len(sounds))],"
            ),
            also=frozenset(
                {"data/slow-transform", "data/starved-loader", "data/row-by-row", "kernels/too-few-threads"}
            ),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Abstained]:
        for use in tables.loaders:
            if use.trains and is_made(use, tables):
                wait = wait_for_work(use, ledger, tables)
                saved = part_saved(use)
                if wait.share < LEAST_WAIT or saved < LEAST_PART or use.draws_random is not False:
                    continue
                if use.repeats is None:
                    yield Abstained(
                        self.id, "samples hold what cannot be compared: other than tensors, arrays, numbers"
                    )
                elif use.repeats.same < use.repeats.samples:
                    continue
                elif use.repeats.samples < min(LEAST_TWICE, use.length or LEAST_TWICE):
                    yield Abstained(self.id, "few samples were made twice: record two epochs")
                else:
                    yield self._of(use, use.repeats, saved, wait, run, tables)

    def _of(self, use: LoaderUse, repeats: Repeats, part: float, wait: Wait, run: Run, tables: Tables) -> Finding:
        share = saved_share(use, wait, part)
        each = (use.getitem_ns or 0) / max(1, use.samples or 1)
        return Finding(
            self.id,
            f"Every epoch makes the same samples again, {each / 1e6:.3g} ms each: all {repeats.samples} that were made "
            f"twice had the same bytes. To keep all {use.length or 0} takes {size(repeats.nbytes * (use.length or 0))}.",
            _where(use, run, tables),
            wait.scope,
            (wait.stake(share),),
            Weight.TIMED,
            Basis.MEASURED,
            (
                Evidence("samples made twice, and the same", repeats.same, "count", "rank 0: facts digests"),
                Evidence("making the samples of a batch, median", use.getitem_ns or 0, "ns", "rank 0: fetches"),
                Evidence("cost of a batch, median", use.batch_wall_ns, "ns", "rank 0: fetches"),
                Evidence("share of it that kept samples would save", part, "share", "arithmetic"),
                Evidence("a sample", repeats.nbytes, "bytes", "rank 0: facts digests"),
                Evidence("all samples", repeats.nbytes * (use.length or 0), "bytes", "arithmetic"),
                Evidence("time that the loop spends on its batches", wait.step_ns, "ns a step", "rank 0: ledger FETCH"),
            ),
            wait.saving(0.7 * share, share),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        use = next(use for use in tables.loaders if use.trains and use.repeats is not None)
        yield keep_samples(self.id, use, run, tables)


def is_made(use: LoaderUse, tables: Tables) -> bool:
    """Return whether the loader's samples are computed in a way that no other cause names more closely."""
    if use.made_by != "DataLoader" or use.iterable or not is_much(use.getitem_ns, use) or not is_busy(use):
        return False
    if inflation(use):
        return False
    if crowd(use, tables.cores) >= CROWDED or rows_line(use, tables.batch_lines) is not None:
        return False
    line, opened = heaviest(tables.batch_lines, "getitem"), reopened(tables.batch_lines)
    if line is None:
        return True
    if opened is not None and opened.share >= 0.25:
        return False
    part = line.share / share_of(tables.batch_lines, "getitem") * (use.getitem_ns or 0) / max(1, use.batch_wall_ns)
    return not (is_walked(line) and part >= OWN_LINE and line.samples >= LEAST_SAMPLES)


def part_saved(use: LoaderUse) -> float:
    """Return the share of a batch's cost that goes where its samples are kept instead of made."""
    samples = max(1, use.samples or use.batch_size or 1)
    nbytes = use.repeats.nbytes if use.repeats is not None else use.nbytes / samples
    kept = samples * (KEPT_SAMPLE_NS + nbytes / BYTES_PER_NS)
    return max(0.0, (use.getitem_ns or 0) - kept) / max(1, use.batch_wall_ns)


def _where(use: LoaderUse, run: Run, tables: Tables) -> Where:
    line = heaviest(tables.batch_lines, "getitem")
    if line is not None and line.line is not None and line.samples >= LEAST_SAMPLES:
        return line.line
    return use.dataset_at or place_of(use, run)
