"""The loop stands still until the loader's workers are up.

## What it is
Starting the workers takes seconds: with the start method spawn (or forkserver) the dataset is pickled to every worker
and each imports its modules anew. A dataset of many Python objects (lists of dicts, say) takes long to pickle and to
unpickle.

## Why it costs
The training waits once a run, and again at every epoch where the workers are not kept (`data/workers-respawned`). The
memory is held once for each worker.

## How it is told
The time in which the iterator was made, and with spawn the wait for its first batch beyond what a batch costs. Below
a second in all, nothing is said. The dataset's class is named where handing it over is most of that, the loader else.

## Sources
https://github.com/pytorch/pytorch/issues/139792; PyTorch documentation, `torch.utils.data`, "Platform-specific
behaviors".
"""

from __future__ import annotations

from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import trains_on_cpu
from unstall.causes.data._input import loader_setting, loop_ns, place_of
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.loading import LoaderUse
from unstall.model.remedy import Edit, Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables
from unstall.model.words import count

LEAST_NS = 1_000_000_000  # in all; a start of less is no matter for a training
LEAST_FORK_NS = 500_000_000  # a worker; a fork takes 5 to 50 ms, on a busy machine several times that
HANDED_OVER = 0.4  # of the start spent in making the iterator: there the dataset is pickled
_SECOND = 1_000_000_000
_PICTURE = f"""
    step   |{"." * 2999}|ssssssssss|ssssssssss
    main   |{"D" * 2999}|DFFFFBBBBO|DFFFFBBBBO
    host   |{"w" * 2999}|w.........|w.........
"""  # the first 3 s are drawn as the start takes them
_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clicks(Dataset):
    def __init__(self):  # <- fault
        self.rows = [{"user": i % 50, "price": i / 7.0, "tags": [i % 3, i % 5]} for i in range(250_000)]

    def __len__(self):
        return 640

    def __getitem__(self, i):
        row = self.rows[i]
        return torch.tensor([row["price"], *row["tags"]]), row["user"]


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 50))
    opt = torch.optim.SGD(net.parameters(), lr=1e-6)
    loader = DataLoader(Clicks(), batch_size=32, num_workers=2, multiprocessing_context="spawn")
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())
"""


def _use(making_ns: int, first_ns: int, context: str) -> LoaderUse:
    return LoaderUse(
        0,
        Line("train.py", 30),
        "DataLoader",
        True,
        2,
        1.0,
        0,
        workers=2,
        context=context,
        iterators=1,
        iterator_ns=(making_ns,),
        first_batch_ns=(first_ns,),
        batch_wall_ns=1_000_000,
        dataset_at=Line("train.py", 5, "__init__"),
    )


class SlowWorkerStart(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.LOADERS})

    cases = (
        # 2 s of making, and 1 s until the first batch less the 1 ms that a batch costs
        Fires(_PICTURE, spent_ms=2999, given=Given(tables={"loaders": (_use(2 * _SECOND, _SECOND, "spawn"),)})),
        Silent(
            _PICTURE,
            "forked workers are up at once; their first batch is slow for what it does",
            Given(tables={"loaders": (_use(_SECOND // 20, 3 * _SECOND, "fork"),)}),
        ),
        Silent(
            _PICTURE,
            "a small dataset is spawned in a fraction of a second",
            Given(tables={"loaders": (_use(_SECOND // 10, _SECOND // 2, "spawn"),)}),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT,
            after=_SCRIPT.replace("  # <- fault", "").replace(', multiprocessing_context="spawn"', ""),
            also=frozenset(
                {"kernels/too-few-threads", "data/starved-loader", "data/slow-transform", "data/row-by-row"}
            ),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        loop = loop_ns(ledger)
        for use in tables.loaders:
            if use.trains and use.workers and use.iterator_ns:
                making, late = use.iterator_ns[0], 0
                if use.context in ("spawn", "forkserver") and use.first_batch_ns:
                    late = max(0, use.first_batch_ns[0] - use.batch_wall_ns)
                elif making < LEAST_FORK_NS * use.workers:
                    continue
                if making + late >= max(LEAST_NS, LEAST_SHARE * loop):
                    yield self._of(use, making, late, run)

    def _of(self, use: LoaderUse, making: int, late: int, run: Run) -> Finding:
        whole = making + late
        handed = use.context in ("spawn", "forkserver") and making >= HANDED_OVER * whole and use.dataset_at is not None
        where = use.dataset_at if handed and use.dataset_at is not None else place_of(use, run)
        why = (
            f"each of {count(use.workers or 0, 'worker')} gets a pickled copy of the dataset"
            if handed
            else f"start method {use.context}"
        )
        return Finding(
            self.id,
            f"The workers take {whole / 1e9:.3g} s to start: {why}.",
            where,
            Scope.STARTUP,
            (Stake(Phase.FETCH, Activity.WAIT_DATA, whole),),
            Weight.TIMED,
            Basis.MEASURED,
            (
                Evidence(
                    "making the iterator: starting the workers, handing the dataset over",
                    making,
                    "ns",
                    "rank 0: events ITER",
                ),
                Evidence("wait for the first batch, beyond what a batch costs", late, "ns", "rank 0: events WAIT_DATA"),
                Evidence("workers", use.workers or 0, "count", "loader's settings"),
                Evidence("samples in the dataset", use.length or 0, "count", "loader's settings"),
            ),
            Saving(int(0.5 * making), whole),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        if any(use.dataset_at == finding.where for use in tables.loaders):
            title = "Keep the data in tensors or arrays, or open it in the worker: then only a handle is pickled"
            yield Remedy(
                f"{self.id}#handles",
                title,
                Safety.SAME_BITS,
                why="a tensor's storage is shared with a worker, Python objects are copied",
            )
        title = "Start the workers by fork where nothing forbids it (no GPU context, no threads of other libraries yet)"
        why = "a forked worker shares the dataset's memory"
        others = (use for use in tables.loaders if use.trains and use.workers and use.context not in (None, "fork"))
        use = next(others, None)
        edits: tuple[Edit, ...] = ()
        if use is not None and trains_on_cpu(run):
            edits = loader_setting(use, "multiprocessing_context", "fork", run, tables).edits
        yield Remedy(f"{self.id}#fork", title, Safety.SAME_BITS, edits, why=why)
