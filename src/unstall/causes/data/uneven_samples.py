"""A few slow batches hold up the loop, though its workers are fast enough on average.

## What it is
Some samples take many times as long as the others: a long video, a large file, a read that times out once. Batches
reach the loop in the sampler's order, so it waits for the slow one while the other workers have theirs ready.

## Why it costs
What the workers made ahead covers `workers x prefetch_factor` steps. A batch that takes longer than that stops the
loop for the rest of its time, and the other workers, whose places are full, stop as well.

## How it is told
The loop waits a tenth of the step or more, though what is made ahead without end would take half of that away at
least: the workers' mean time for a batch, shared out over them, is hardly above the rest of the step. Some batches
take over three times the median, and longer than what is made ahead lasts. The wait claimed is what the mean does not
explain. Where all batches wait for storage, it is storage that is slow now and then (`data/slow-storage`). Where the
workers are too few on average it is `data/starved-loader`.

## Sources
PyTorch documentation, `torch.utils.data.DataLoader`: `prefetch_factor`, and `in_order` (since 2.6).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import Cause
from unstall.causes.data._input import LEAST_WAIT, Wait, loader_setting, place_of, wait_of
from unstall.causes.data._reads import waits_for_storage
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Scope, Weight
from unstall.model.ledger import Basis, Ledger
from unstall.model.loading import LoaderUse, Reads
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

LEAST_SAVED = 0.5  # of the wait, by what is made ahead without end: less, and the workers are too few on average
MOST_SLOW = 0.25  # of the batches; where more are slow, slow is what they are
SPARE = 1.25  # more is made ahead than the slow batch lasts
DEFAULT_PREFETCH, MOST_PREFETCH = 2, 64
MOST_BYTES = 2 << 30  # of batches made ahead
_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFBBBBBBO|DDDDFBBBBO
    host   |..........|wwww......
"""
_USE = LoaderUse(
    0,
    Line("train.py", 30),
    "DataLoader",
    True,
    2,
    1.0,
    4 * _MS,
    workers=4,
    prefetch=2,
    batch_wall_ns=10 * _MS,
    batch_mean_ns=20 * _MS,
    batch_slow_ns=110 * _MS,
    slow_share=0.1,
)
_STORED = Reads(9, nbytes=1000, read_bytes=1e6, calls=1, stored_bytes=1e6, faults=0, stalled_ns=_MS)
_SCRIPT = """\
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __len__(self):
        return 300

    def __getitem__(self, i):
        time.sleep(0.4 if i % 60 == 50 else 0.001)  # one clip of sixty is long
        return torch.full((1024,), i / 300), i % 4


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6)), nn.Linear(1024, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(Clips(), batch_size=4, num_workers=4, prefetch_factor=2)  # <- fault
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())
"""


class UnevenSamples(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS, Sensor.WORKERS})

    cases = (
        # 20 ms over four workers is 5 ms a batch on average, less than the model takes
        Fires(_PICTURE, spent_ms=4, given=Given(tables={"loaders": (_USE,)})),
        # 24 ms over four workers is 6 ms: just what the rest of the step takes
        Fires(_PICTURE, spent_ms=4, given=Given(tables={"loaders": (replace(_USE, batch_mean_ns=24 * _MS),)})),
        Silent(
            _PICTURE,
            "all batches take as long: more of them ahead would be used up as well",
            Given(tables={"loaders": (replace(_USE, batch_mean_ns=10 * _MS, batch_slow_ns=0, slow_share=0.0),)}),
        ),
        Silent(
            _PICTURE,
            "batches wait for storage, which is slower for some: all of them would be faster on another",
            Given(tables={"loaders": (replace(_USE, batch_blocked_ns=9 * _MS, samples=4, reads=_STORED),)}),
        ),
        Silent(
            _PICTURE,
            "the workers are too few on average",
            Given(tables={"loaders": (replace(_USE, workers=2),)}),
        ),
        Silent(
            _PICTURE,
            "what is made ahead lasts longer than the slow batch",
            Given(tables={"loaders": (replace(_USE, prefetch=8),)}),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("prefetch_factor=2)  # <- fault", "prefetch_factor=12)"),
            also=frozenset({"kernels/too-few-threads", "data/slow-worker-start", "data/starved-loader"}),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        for use in tables.loaders:
            slow = 0 < use.slow_share <= MOST_SLOW
            if use.trains and slow and (use.workers or 0) > 1 and not waits_for_storage(use):
                wait = wait_of(use, ledger, tables)
                if wait.scope is Scope.STEADY and wait.share >= LEAST_WAIT:
                    yield from self._of(use, wait, run, tables)

    def _of(self, use: LoaderUse, wait: Wait, run: Run, tables: Tables) -> Iterator[Finding]:
        rest_ns = _rest_ns(use, tables)
        mean_ns = use.batch_mean_ns * use.per_step / (use.workers or 1)
        ahead = _ahead(use)
        saved = 1 - max(0.0, mean_ns - rest_ns) / max(1.0, wait.step_ns)
        if saved < LEAST_SAVED or use.batch_slow_ns * use.per_step < ahead * rest_ns:
            return
        yield Finding(
            self.id,
            f"{use.slow_share:.0%} of the batches take {use.batch_slow_ns / 1e6:.3g} ms, "
            f"the others about {use.batch_wall_ns / 1e6:.3g} ms; the {ahead} made ahead do not last so long.",
            place_of(use, run),
            wait.scope,
            (wait.stake(saved),),
            Weight.OVERLAP,
            Basis.MEASURED,
            (
                Evidence("cost of a batch, median", use.batch_wall_ns, "ns", "rank 0: worker fetches"),
                Evidence("cost of a batch, mean", use.batch_mean_ns, "ns", "rank 0: worker fetches"),
                Evidence("cost of a slow batch, mean", use.batch_slow_ns, "ns", "rank 0: worker fetches"),
                Evidence("batches that are slow", use.slow_share, "share", "rank 0: worker fetches"),
                Evidence("batches made ahead", ahead, "count", "loader's settings"),
                Evidence("time that the loop spends on its batches", wait.step_ns, "ns a step", "rank 0: ledger FETCH"),
                Evidence("rest of the step", rest_ns, "ns", "rank 0: ledger"),
            ),
            wait.saving(0.6 * saved, saved),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        use = next(use for use in tables.loaders if use.trains and place_of(use, run) == finding.where)
        steps = SPARE * use.batch_slow_ns * use.per_step / max(1.0, _rest_ns(use, tables))
        prefetch = min(MOST_PREFETCH, math.ceil((steps + 1) / (use.workers or 1)))
        held = prefetch * (use.workers or 1) * use.nbytes
        if held <= MOST_BYTES:
            how = loader_setting(use, "prefetch_factor", prefetch, run, tables)
            high = max(prefetch, min(MOST_PREFETCH, 2 * prefetch))
            knobs = how.knobs(prefetch, min(DEFAULT_PREFETCH, prefetch), high)
            why = f"the same batches in the same order, made earlier; {held / 1e6:.0f} MB of them ahead"
            why = f"{why}; {how.by_hand}" if how.by_hand else why
            title = f"{how.name}={prefetch}"
            yield Remedy(f"{self.id}#prefetch_factor", title, Safety.SAME_BITS, how.edits, knobs, why)
        how = loader_setting(use, "in_order", False, run, tables)
        yield Remedy(
            f"{self.id}#in_order",
            "in_order=False: take batches as they become ready (PyTorch 2.6 and later)",
            Safety.CHANGES_TRAINING,
            how.edits,
            why="the order of the batches depends on how long each took to make, and differs from run to run"
            + (f"; {how.by_hand}" if how.by_hand else ""),
        )


def _ahead(use: LoaderUse) -> int:
    """Return how many batches are made ahead when all workers keep up."""
    return (use.workers or 1) * (use.prefetch or DEFAULT_PREFETCH)


def _rest_ns(use: LoaderUse, tables: Tables) -> float:
    return tables.steady_ns / tables.rank_steps - use.wait_ns / max(1, tables.steady_steps)
