"""Gradients are accumulated over several backward passes, and all ranks average them in every one.

## What it is
The step has several backward passes before its optimizer step, under DistributedDataParallel and without `no_sync()`:
each pass ends with an all-reduce of all gradients, though only the last sum is used.

## Why it costs
Every pass but the last sends all gradients in vain, and waits for the slowest rank.

## How it is told
Backward passes are counted by step, and DDP's reducer counts how many passes it synchronised. Where both are
several a step, the time that backward waits for other ranks (off the CPU inside torch, by stack samples) is shared among
the passes, and all but one pass's part is claimed. Where one rank waits longer than another it waits for
that one: only what the rank that waits least spends is claimed of each. Steps of several optimizers are left alone.

## Sources
PyTorch documentation, `DistributedDataParallel.no_sync`; PyTorch issue 43201.
"""

from __future__ import annotations

from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import HotLine, Tables

LEAST_SYNCED = 1.5  # passes a step that the reducer synchronised; 1 where only the last is

_ENTRY = (Phase.BACKWARD, Activity.COLLECTIVE)
_LINE = HotLine(Line("train.py", 26, "worker"), Phase.BACKWARD, 12_000_000, ((Activity.COMPUTE, 12_000_000),), 90, 100)
_DDP: dict[str, Fact] = {"world_size": 2, "ddp:0": {"site": "train.py:14:worker", "synced": 2.67}}
_NO_SYNC: dict[str, Fact] = {"world_size": 2, "ddp:0": {"site": "train.py:14:worker", "synced": 1.0}}
_PICTURE = """
    step   |ssssssssssssssssss|ssssssssssssssssss
    main   |FBBBFBBBFBBBFBBBOO|FBBBFBBBFBBBFBBBOO
    host   |..CC..CC..CC..CC..|..CC..CC..CC..CC..
"""
_ONE_PASS = """
    step   |sssssssss|sssssssss
    main   |FBBBBBBBO|FBBBBBBBO
    host   |...CCCCC.|...CCCCC.
"""
_NO_WAITING = """
    step   |ssssssssss|ssssssssss
    main   |FBBBFBBBOO|FBBBFBBBOO
"""
_SCRIPT = """\
import contextlib
import os
import socket
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PASSES = 8


def worker(rank, world):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(32, 2000), nn.ReLU(), nn.Linear(2000, 1000)))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    draw = torch.Generator().manual_seed(rank)
    for step in range(12):
        opt.zero_grad()
        for k in range(PASSES):
            x, y = torch.randn(4, 32, generator=draw), torch.randint(0, 1000, (4,), generator=draw)
            with {context}:
                loss = nn.functional.cross_entropy(net(x), y) / PASSES
                loss.backward(){mark}
        opt.step()
    print(loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    mp.start_processes(worker, args=(2,), nprocs=2, start_method="fork")
"""


class SyncedEveryMicroStep(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COLLECTIVES})

    cases = (
        # 16 ms of waiting in eight passes over two steps; three passes of four wait in vain
        Fires(_PICTURE, spent_ms=12.0, given=Given(facts=_DDP, tables={"lines": (_LINE,)})),
        Silent(_PICTURE, "no_sync() is used", Given(facts=_NO_SYNC, tables={"lines": (_LINE,)})),
        Silent(_PICTURE, "the gradients are not averaged by DDP", Given(facts={"world_size": 2})),
        Silent(_ONE_PASS, "gradients are not accumulated", Given(facts=_DDP, tables={"lines": (_LINE,)})),
        Silent(_NO_WAITING, "averaging costs nothing here", Given(facts=_DDP, tables={"lines": (_LINE,)})),
    )

    planted = (
        Planted(
            before=_SCRIPT.format(context="contextlib.nullcontext()", mark="  # <- fault"),
            after=_SCRIPT.format(context="net.no_sync() if k < PASSES - 1 else contextlib.nullcontext()", mark=""),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        passes, facts = tables.backward_passes, run.ranks[0].facts
        synced = max((ddp.number("synced") or 0.0 for ddp in facts.family("ddp").values()), default=0.0)
        if passes < 2 or synced < LEAST_SYNCED or len(facts.family("parameters")) > 1:
            return
        waits = [ledger.total_ns(rank=r, phase=_ENTRY[0], activity=_ENTRY[1]) for r in range(len(run.ranks))]
        alike = len(waits) * min(waits) / max(1, sum(waits))
        held = tables.steady_parts.get(_ENTRY, 0)
        spent = round(held * alike * (passes - 1) / passes)
        where = _backward_line(run, tables)
        if where is None or spent < LEAST_SHARE * max(1, tables.steady_ns):
            return
        rank_steps = tables.rank_steps
        yield Finding(
            self.id,
            f"All ranks average the gradients in each of the {passes} backward passes of a step; all but the last wait in "
            f"vain, {spent / max(1, tables.steady_ns):.0%} of the step.",
            where, Scope.STEADY, (Stake(*_ENTRY, spent),), Weight.NEEDLESS, Basis.SAMPLED,
            (
                Evidence("backward passes a step, median", passes, "count", "rank 0: rows"),
                Evidence("passes a step that DDP synchronised, of the first", synced, "count", "rank 0: fact ddp"),
                Evidence("waiting in backward", held / rank_steps, "ns a step", "all ranks: ledger BACKWARD"),
                Evidence("of it the rank that waits least", alike, "share", "all ranks: ledger BACKWARD"),
            ),
            Saving(int(0.7 * spent / rank_steps), int(held * (passes - 1) / passes / rank_steps)),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        yield Remedy(
            f"{self.id}#no_sync", "net.no_sync() around all passes but the last", Safety.SAME_MATH,
            why="Wrap forward and backward in `with net.no_sync() if not last else contextlib.nullcontext():`, where net is the "
            "DistributedDataParallel module; with Accelerate use `with accelerator.accumulate(net):`. The same gradients "
            "are summed, in another order.",
        )  # fmt: skip


def _backward_line(run: Run, tables: Tables) -> Line | None:
    """Return the line that runs backward the longest, else the one that made the DDP module."""
    hot = next((hot.line for hot in tables.lines if hot.phase is Phase.BACKWARD), None)
    sites = (ddp.text("site") for ddp in run.ranks[0].facts.family("ddp").values())
    return hot or next((line for site in sites if (line := tables.place(site or ""))), None)
