"""A batch that is ready takes long to get from the worker to the loop.

## What it is
The workers hand over batches of many small tensors, or of Python objects (lists, strings, dictionaries), instead of a
few tensors.

## Why it costs
The data of a tensor lies in shared memory and is not copied, but each tensor is a file descriptor that the loop's
thread asks the worker for: 0.1 ms and more apiece, the same for four bytes as for four megabytes. Python objects are
pickled by the worker and built anew by the loop, one by one. The loop's thread does it, so no number of workers hides it.

## How it is told
Batches were ready before the loop asked for most of them, and getting one took a tenth of the step or more still: the
median time of `next` where the queue held a batch. What a batch holds is counted in a few of them. A batch that
was not ready is another matter (`data/starved-loader`), and so is one of few tensors.

## Sources
PyTorch documentation, "Multiprocessing package: sharing strategies"; https://github.com/pytorch/pytorch/issues/973.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import Cause
from unstall.causes._configured import head_file
from unstall.causes.data._input import LEAST_SAMPLES, heaviest, place_of
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.loading import LoaderUse
from unstall.model.remedy import AddCall, Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables
from unstall.model.words import count

LEAST_SHARE = 0.1  # of the step
LEAST_NS = 1_000_000  # a batch; two tensors from a busy worker take a part of that
HANDED_NS = 300_000  # what a batch of a few tensors takes to get
MANY_TENSORS, MANY_OBJECTS = 16, 256  # a batch
MOSTLY = 0.5  # of the batches were ready
_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDFFBB|DDDDDDFFBB
    host   |wwwwww....|wwwwww....
"""
_USE = LoaderUse(
    0,
    Line("train.py", 30),
    "DataLoader",
    True,
    2,
    1.0,
    12 * _MS,
    workers=2,
    batch_wall_ns=4 * _MS,
    batch_cpu_ns=4 * _MS,
    pickle_ns=2 * _MS,
    ready_ns=5_300_000,
    ready_batches=2,
    tensors=64.0,
    objects=0.0,
)
_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rings(Dataset):
    def __len__(self):
        return 4800

    def __getitem__(self, i):
        return torch.full((24,), i / 4800), i % 4


def together(samples):
    return [x for x, _ in samples], torch.tensor([y for _, y in samples])  # <- fault


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Rings(), batch_size=48, num_workers=2, collate_fn=together)  # <- fault
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(torch.stack(tuple(x))), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())
"""


class CostlyTransport(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS})

    cases = (
        # 5.3 ms to get a batch that is ready, where 0.3 ms would do
        Fires(_PICTURE, spent_ms=10, given=Given(tables={"loaders": (_USE,)})),
        Fires(_PICTURE, spent_ms=10, given=Given(tables={"loaders": (replace(_USE, tensors=1.0, objects=4000.0),)})),
        Silent(
            _PICTURE,
            "no batch is ready: the loop waits for the workers' work",
            Given(tables={"loaders": (replace(_USE, ready_batches=0, ready_ns=0),)}),
        ),
        Silent(
            _PICTURE,
            "two tensors, each sample with a number beside it: whatever it waits for, there is little to hand over",
            Given(tables={"loaders": (replace(_USE, tensors=2.0, objects=32.0),)}),
        ),
        Silent(
            _PICTURE,
            "many tensors, but a ready batch is there at once",
            Given(tables={"loaders": (replace(_USE, ready_ns=400_000),)}),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("  # <- fault", "")
            .replace("    return [x for x, _ in samples],", "    return torch.stack([x for x, _ in samples]),")
            .replace("net(torch.stack(tuple(x)))", "net(x)"),
            also=frozenset(
                {
                    "data/starved-loader",
                    "data/slow-worker-start",
                    "data/slow-collate",
                    "data/row-by-row",
                    "kernels/too-few-threads",
                }
            ),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        for use in tables.loaders:
            many = (use.tensors or 0) >= MANY_TENSORS or (use.objects or 0) >= MANY_OBJECTS
            if use.trains and use.workers and many and use.ready_batches >= MOSTLY * max(1, use.batches):
                yield from self._of(use, run, tables)

    def _of(self, use: LoaderUse, run: Run, tables: Tables) -> Iterator[Finding]:
        each = use.ready_ns - HANDED_NS
        ns = min(use.wait_ns, each * use.ready_batches)
        if each < LEAST_NS or ns / max(1, tables.steady_steps) < LEAST_SHARE * tables.steady_ns / tables.rank_steps:
            return
        line = heaviest(tables.batch_lines, "collate")
        seen = (
            line is not None and line.samples >= LEAST_SAMPLES
        )  # fewer may be torn, with the lines of other functions
        held = [count(round(use.tensors or 0), "tensor"), count(round(use.objects or 0), "other object")]
        saved = ns // max(1, tables.steady_steps)
        yield Finding(
            self.id,
            f"A batch that is ready takes {use.ready_ns / 1e6:.3g} ms to reach the loop: it holds {' and '.join(held)}.",
            line.line if line is not None and line.line is not None and seen else place_of(use, run),
            Scope.STEADY,
            (Stake(Phase.FETCH, Activity.WAIT_DATA, ns),),
            Weight.NEEDLESS,
            Basis.MEASURED,
            (
                Evidence("getting a ready batch, median", use.ready_ns, "ns", "rank 0: events WAIT_DATA"),
                Evidence("batches that were ready", use.ready_batches, "count", "rank 0: events WAIT_DATA"),
                Evidence("tensors in a batch, mean", use.tensors or 0, "count", "batches looked at"),
                Evidence("other objects in a batch, mean", use.objects or 0, "count", "batches looked at"),
                Evidence("pickling in the worker, a batch, median", use.pickle_ns or 0, "ns", "worker fetches"),
            ),
            Saving(int(0.7 * saved), int(saved)),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        file = head_file(run, tables)
        yield Remedy(
            f"{self.id}#few-tensors",
            "Let the collate function return few tensors: stack or concatenate what it collects (with a tensor of offsets)",
            Safety.SAME_BITS,
            why="the loop can split the tensors again, by views, and gets the same numbers",
        )
        yield Remedy(
            f"{self.id}#sharing-strategy",
            'torch.multiprocessing.set_sharing_strategy("file_system") shares tensors by name, without asking the worker',
            Safety.SAME_BITS,
            (AddCall(file, "torch.multiprocessing.set_sharing_strategy", ("file_system",)),)
            if file is not None
            else (),
            why="only how memory is shared changes; what a killed worker leaves in /dev/shm stays until it is removed",
        )
