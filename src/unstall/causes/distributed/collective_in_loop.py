"""The loop calls collectives in every step for what need not be known in every step, as metrics or logs.

## What it is
The script's own code (or a library on its behalf) gathers predictions, reduces a metric or sets a barrier between the
steps. The training does not need it: the gradients are averaged elsewhere.

## Why it costs
Every rank stops until all have come. Gathering objects pickles them, copies them through the host and unpickles as
many of them as there are ranks.

## How it is told
Collectives called on the training thread are timed, with the line that calls them, the bytes they carry and their place
in the step. Told are gathered objects and barriers outside of backward and optimizer; tensors gathered after the optimizer;
and small tensors reduced there or before the backward pass. What may be needed to train is left alone: collectives
that torch itself makes (inside DDP, FSDP or SyncBatchNorm), all that lies between backward and optimizer, large tensors
that are reduced or broadcast (parameters), and tensors gathered before the backward pass (a loss over all ranks). Only
time that all ranks spend in the call is claimed: where one rank waits there for another, it would wait elsewhere.

## Sources
torchmetrics documentation, "Metrics in Distributed Data Parallel"; the documentation of
`torch.distributed.all_gather_object`; Lightning documentation of `self.log(sync_dist=True)`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from unstall.causes._cause import Cause
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Collectives, Tables

LEAST_SHARE = 0.03  # of the steady step; a reduced scalar takes 0.3 ms between two processes, and steps may be short
SMALL = 4096  # bytes; metrics and losses have a few numbers, parameters many
OF_OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "barrier", "monitored_barrier")
GATHERS = ("all_gather", "all_gather_into_tensor", "gather")
REDUCES = ("all_reduce", "reduce", "broadcast")
OF_TORCH = "-packages/torch/"

_GATHERED = Collectives(
    Line("train.py", 19, "update"), "all_gather_object", Phase.BETWEEN, Phase.OPTIMIZER, 6_000_000, 5_000_000, 1.0
)
_BARRIER = Collectives(
    Line("train.py", 22, "update"), "barrier", Phase.BETWEEN, Phase.OPTIMIZER, 2_000_000, 1_000_000, 1.0
)
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |bbbbFFBBBO|bbbbFFBBBO
    host   |CCCC......|CCCC......
"""


def _given(*calls: Collectives) -> Given:
    return Given(tables={"collectives": calls})


def _call(
    operation: str, after: Phase, nbytes: int, phase: Phase = Phase.BETWEEN, of: str | None = None
) -> Collectives:
    line = Line("train.py", 19, "update", framework=of)
    return Collectives(line, operation, phase, after, 6_000_000, 5_000_000, 1.0, nbytes)


_SCRIPT = """\
import os
import socket
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def worker(rank, world):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 40)))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    draw = torch.Generator().manual_seed(rank)
    right = seen = 0
    for step in range(60):
        x = torch.randn(512, 64, generator=draw)
        y = x[:, :40].argmax(1)
        out = net(x)
        loss = nn.functional.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
{count}
    print(right, seen)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    mp.start_processes(worker, args=(2,), nprocs=2, start_method="fork")
"""
_BEFORE = """\
        everyone = [None] * world
        dist.all_gather_object(everyone, [out.detach(), y] * 12)  # <- fault
        right += sum(int((part[0].argmax(1) == part[1]).sum()) for part in everyone)
        seen += sum(len(part[1]) for part in everyone)"""
_AFTER = """\
        right += int((out.argmax(1) == y).sum())
        seen += len(y)
    both = torch.tensor([right, seen])
    dist.all_reduce(both)
    right, seen = both.tolist()"""


class CollectiveInLoop(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COLLECTIVES})

    cases = (
        # 8 ms of collectives; all ranks spend 5 of 6 and 1 of 2 ms there, the rest waits for the last to come
        Fires(_PICTURE, spent_ms=6.0, given=_given(_GATHERED, _BARRIER)),
        Fires(_PICTURE, spent_ms=5.0, given=_given(_call("all_reduce", Phase.OPTIMIZER, 16))),
        Silent(
            _PICTURE,
            "gradients averaged by hand, which the training needs",
            _given(_call("all_reduce", Phase.BACKWARD, 16)),
        ),
        Silent(_PICTURE, "parameters averaged now and then", _given(_call("all_reduce", Phase.OPTIMIZER, 1 << 20))),
        Silent(_PICTURE, "a loss over all ranks", _given(_call("all_gather", Phase.FORWARD, 1 << 16))),
        Silent(
            _PICTURE,
            "torch's own: sharded parameters are gathered in the forward pass",
            _given(
                _call(
                    "all_gather_into_tensor",
                    Phase.OPTIMIZER,
                    64,
                    Phase.FORWARD,
                    "/lib/python3.11/site-packages/torch/nn/modules/module.py:1776:_wrapped_call_impl",
                )
            ),
        ),
        Silent(
            _PICTURE,
            "a scalar reduced at little cost",
            _given(
                Collectives(Line("train.py", 9), "all_reduce", Phase.BETWEEN, Phase.OPTIMIZER, 500_000, 400_000, 1.0, 4)
            ),
        ),
        Silent(
            _PICTURE,
            "at a barrier one rank waits for the other, which it would do elsewhere",
            _given(
                Collectives(Line("train.py", 9), "barrier", Phase.BETWEEN, Phase.OPTIMIZER, 8_000_000, 200_000, 1.0)
            ),
        ),
    )

    planted = (
        Planted(
            before=_SCRIPT.format(count=_BEFORE),
            after=_SCRIPT.format(count=_AFTER),
            also=frozenset({"host/hot-line"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        groups: dict[tuple[str, str], list[Collectives]] = defaultdict(list)
        for call in tables.collectives:
            if _is_needless(call):
                groups[call.line.file, call.line.function].append(call)
        for group in groups.values():
            if sum(call.together_ns for call in group) >= LEAST_SHARE * max(1, tables.steady_ns):
                yield self._of(group, run, tables)

    def _of(self, group: Sequence[Collectives], run: Run, tables: Tables) -> Finding:
        worst = max(group, key=lambda call: call.together_ns)
        spent, waited = sum(call.together_ns for call in group), sum(call.spent_ns for call in group)
        rank_steps = tables.rank_steps
        share = spent / max(1, tables.steady_ns)
        names = " and ".join(dict.fromkeys(call.operation for call in group))
        stakes = tuple(
            Stake(call.phase, Activity.COLLECTIVE, call.together_ns, f"{call.line.file}:{call.line.line}")
            for call in group
        )
        return Finding(
            self.id,
            f"The loop's own {names} takes {share:.0%} of the step, {spent / rank_steps / 1e6:.3g} ms on every rank.",
            worst.line, Scope.STEADY, stakes, Weight.NEEDLESS, Basis.MEASURED,
            (
                Evidence("calls a step and rank", sum(call.per_step for call in group), "count", "events COLLECTIVE"),
                Evidence("time in them", waited / rank_steps, "ns a step", "all ranks: ledger COLLECTIVE"),
                Evidence("of it every rank spends", spent / rank_steps, "ns a step", "all ranks: events COLLECTIVE"),
                Evidence("tensor bytes a call, median", worst.nbytes, "bytes", "events COLLECTIVE"),
            ),
            Saving(int(0.8 * spent / rank_steps), int(waited / rank_steps)),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        yield Remedy(
            f"{self.id}#less-often", "sum up on each rank, reduce once an epoch", Safety.SAME_BITS,
            why="Keep counts and sums as tensors on each rank, and reduce them with one all_reduce at the end of the epoch "
            "or every N steps, where they are read. Predictions need not be gathered to count what is right; no barrier is "
            "needed between steps, since the gradients are averaged in step anyway.",
        )  # fmt: skip


def _is_needless(call: Collectives) -> bool:
    """Return whether the training can do without this collective in every step."""
    if call.phase not in (Phase.FORWARD, Phase.BETWEEN) or OF_TORCH in (call.line.framework or ""):
        return False
    if call.operation in OF_OBJECTS:
        return True
    if call.after is Phase.BACKWARD or call.phase is Phase.FORWARD:
        return False
    if call.operation in GATHERS:
        return call.after is Phase.OPTIMIZER or call.nbytes <= SMALL
    return call.operation in REDUCES and call.nbytes <= SMALL
