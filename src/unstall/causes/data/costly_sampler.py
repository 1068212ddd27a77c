"""The loop waits while its sampler draws the indices of the next batches.

## What it is
A sampler runs on the training thread, workers or not. Shuffling a huge index (`randperm(n).tolist()`), drawing by
weights from all of it, or a sampler written in Python takes long at the start of each pass, or at every batch.

## Why it costs
A list of Python integers takes some 40 ns and 36 bytes for each sample of the dataset, though an epoch may use few of
them. Nothing runs meanwhile: the workers wait for their indices, and the loop for the workers.

## How it is told
The time of each draw on the training thread, the first of a pass apart from the others. Nothing is said below 2 % of
the step (or of the loop, where passes are too long to lie in the steady steps), nor of a draw below 1 ms a pass or 0.3 ms
a batch. Half of the passes are to take that long, and what one of these takes is claimed for each: on a busy machine a
few draws lose their core in the midst.

## Sources
PyTorch source, `torch/utils/data/sampler.py`: `RandomSampler`, `WeightedRandomSampler`;
https://github.com/pytorch/pytorch/issues/50689.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.data._input import loop_ns, place_of
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.loading import Draws, LoaderUse
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Cores, Tables

LEAST_PASS_NS = 1_000_000  # of the first draw of a pass, median; less is not worth a line
LEAST_BATCH_NS = (
    300_000  # of another draw, mean; a BatchSampler takes 20 to 60 us for 256 indices, more on a busy machine
)
MOST_USED = 0.5  # of the indices that a pass draws; where it takes more of them, to draw fewer saves little
_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDFFFBBO|DDDDFFFBBO
    host   |llll......|llll......
"""
_LONG = """
    step   |..........|ssssssssss|ssssssssss
    main   |DDDDDDDDDD|DDDDFFFBBO|DDDDFFFBBO
    host   |llllllllll|llll......|llll......
"""
_AT_START = Draws("RandomSampler", None, (3 * _MS, 3 * _MS), 5_000, 9, passes=2, taken=2)
_EACH = Draws("Balanced", Line("train.py", 5, "__iter__"), (2 * _MS,), 2 * _MS, 9, passes=0, taken=2)
_BUSY = Draws("RandomSampler", None, (100_000,), 400_000, 9, passes=2, taken=2)
_ONE_PASS = Draws("RandomSampler", None, (9 * _MS,), 5_000, 2, passes=0, taken=2)
_HELD_UP = Draws("RandomSampler", None, (100_000, 100_000, 9 * _MS), 5_000, 9, passes=2, taken=2)
_CHEAP = Draws("RandomSampler", None, (100_000,), 200_000, 9, passes=2, taken=2)
_USE = LoaderUse(
    0, Line("train.py", 30), "DataLoader", True, 2, 1.0, 8 * _MS, workers=0, length=4_000_000, draws=_AT_START
)
_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Clicks(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.full((64,), i / self.count), i % 4


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    clicks = Clicks(2_000_000)
    few = RandomSampler(clicks, num_samples=320)
    loader = DataLoader(clicks, batch_size=32, sampler=few)  # <- fault
    for part in range(12):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(loss.item())
"""


class CostlySampler(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS})

    cases = (
        # two passes begin in the steady steps, 3 ms each
        Fires(_PICTURE, spent_ms=6, given=Given(tables={"loaders": (_USE,)})),
        # every batch, 2 ms
        Fires(_PICTURE, spent_ms=4, given=Given(tables={"loaders": (replace(_USE, draws=_EACH),)})),
        # one long pass, which began before the steady steps
        Fires(_LONG, spent_ms=9, given=Given(tables={"loaders": (replace(_USE, draws=_ONE_PASS),)})),
        Silent(
            _PICTURE,
            "the batches cost 8 ms, but drawing their indices hardly any of it",
            Given(tables={"loaders": (replace(_USE, draws=_CHEAP),)}),
        ),
        Silent(
            _PICTURE,
            "one draw of three lost its core for 9 ms; the others take hardly any time",
            Given(tables={"loaders": (replace(_USE, draws=_HELD_UP),)}),
        ),
        Silent(
            _PICTURE,
            "a draw of each batch takes 0.4 ms, as the machine gives the thread no core for half of the time",
            Given(tables={"loaders": (replace(_USE, draws=_BUSY),), "cores": Cores(2.0, starved_share=0.5)}),
        ),
        Silent(
            _PICTURE,
            "the loader that draws so long is an evaluation's",
            Given(tables={"loaders": (replace(_USE, trains=False),)}),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("  # <- fault", "").replace("num_samples=320)", "num_samples=320, replacement=True)"),
            also=frozenset(
                {"kernels/too-few-threads", "data/starved-loader", "data/row-by-row", "data/slow-transform"}
            ),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        loop, ran = loop_ns(ledger), 1 - min(0.9, tables.cores.starved_share or 0.0)
        for use in tables.loaders:
            if use.trains and use.draws is not None:
                draws = use.draws
                each = draws.batch_ns if ran * draws.batch_ns >= LEAST_BATCH_NS else 0
                typical = int(statistics.median(draws.first_ns or (0,)))
                of_pass = min(draws.pass_ns, typical) if typical >= LEAST_PASS_NS else 0
                steady, whole = of_pass * draws.passes + each * draws.taken, sum(draws.first_ns) + each * draws.batches
                if steady >= max(1, LEAST_SHARE * tables.steady_ns):
                    yield self._of(use, draws, Scope.STEADY, steady, run, tables)
                elif max(of_pass, each) and whole >= LEAST_SHARE * loop:
                    yield self._of(use, draws, Scope.PERIODIC, whole, run, tables)

    def _of(self, use: LoaderUse, draws: Draws, scope: Scope, ns: int, run: Run, tables: Tables) -> Finding:
        saved = ns // tables.rank_steps if scope is Scope.STEADY else ns
        told = f"{draws.pass_ns / 1e6:.3g} ms at the start of each pass"
        if draws.batch_ns * draws.batches > sum(draws.first_ns):
            told = f"{draws.batch_ns / 1e6:.3g} ms at every batch"
        of = f" over {use.length:,} samples" if use.length else ""
        return Finding(
            self.id,
            f"The loop waits while {draws.sampler or 'its sampler'} draws indices{of}: {told}.",
            draws.at or place_of(use, run),
            scope,
            (Stake(Phase.FETCH, Activity.WAIT_DATA if use.workers else Activity.LOAD, ns),),
            Weight.TIMED,
            Basis.MEASURED,
            (
                Evidence("first draw of a pass, mean", draws.pass_ns, "ns", "rank 0: facts sampler"),
                Evidence("passes", len(draws.first_ns), "count", "rank 0: facts sampler"),
                Evidence("draw of another batch, mean", draws.batch_ns, "ns", "rank 0: facts sampler"),
                Evidence("draws of other batches", draws.batches, "count", "rank 0: facts sampler"),
                Evidence("samples in the dataset", use.length or 0, "count", "loader's settings"),
            ),
            Saving(int(0.7 * saved), int(saved)),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        use, draws = next((use, use.draws) for use in tables.loaders if use.trains and use.draws is not None)
        if draws.at is not None:
            yield Remedy(
                f"{self.id}#arrays",
                "Draw with operations on whole arrays (torch.randperm, index tensors), once a pass, not sample by sample",
                Safety.SAME_DISTRIBUTION,
                why="the indices come from the same distribution; which are drawn depends on how the generator is asked",
            )
            return
        if _is_used(use):
            yield Remedy(
                f"{self.id}#tensors",
                "Draw tensors of indices, not lists: a sampler that yields torch.randperm(n).split(batch_size), with "
                "batch_size=None and a dataset that is indexed by them",
                Safety.SAME_DISTRIBUTION,
                why="the batches come from the same distribution; no Python number is made for each index",
            )
            return
        yield Remedy(
            f"{self.id}#chunks",
            "Draw what a batch needs and no more: replacement=True with num_samples, or a batch sampler that shuffles "
            "blocks of indices and then within a block",
            Safety.CHANGES_TRAINING,
            why="the order differs; with replacement a sample may come twice, which is rare where few are drawn of many",
        )


def _is_used(use: LoaderUse) -> bool:
    """Return whether a pass takes most of what it draws, so that no fewer can be drawn."""
    draws, taken = use.draws, use.samples or use.batch_size or 1
    if draws is None or not use.length or not draws.first_ns:
        return False
    a_pass = (draws.batches + len(draws.first_ns)) / len(draws.first_ns)
    return a_pass * taken >= MOST_USED * use.length
