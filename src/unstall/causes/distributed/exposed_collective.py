"""The device waits for its collectives: it communicates while it has nothing to compute.

## What it is
Gradients, parameters or activations are exchanged between ranks, and no kernel runs meanwhile: the exchange comes too
late, in too large pieces, too often, or what follows needs its result at once.

## Why it costs
Communication beside computation is free as long as it is shorter; communication by itself is added to the step.

## How it is told
Kernels of NCCL or RCCL in time in which no other kernel runs. A collective begins on a rank before the last one has come,
and its kernel spins until then: where the traces of several ranks are read, what one rank waits for another is taken off,
since that is imbalance and no matter of communication. With one rank's trace it cannot be told apart, and the least saving is
said to be none. Nothing can be hidden behind less computation than there is, which bounds the saving.

## Sources
PyTorch documentation of `DistributedDataParallel` (bucket_cap_mb, gradient_as_bucket_view, no_sync) and of FSDP
(forward_prefetch, backward_prefetch); S. Li et al., "PyTorch Distributed" (VLDB 2020); NCCL user guide.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._device import percent, spread, total, where
from unstall.model.case import Fires, Given, Silent
from unstall.model.device import DeviceCollectives, DeviceUse
from unstall.model.finding import Evidence, Finding, Saving, Scope, Weight
from unstall.model.ledger import Activity, Basis, Device, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

OPERATIONS = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Broadcast", "SendRecv", "Reduce")
_OPERATION = re.compile("|".join(f"(?P<{name}>{name})" for name in OPERATIONS), re.IGNORECASE)

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFBBBOOOO|FFFBBBOOOO
    stream |kkkkkk...k|kkkkkk...k
    comm   |....nnnnn.|....nnnnn.
"""
_ALL_REDUCE = DeviceCollectives(
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 2, 10_000_000, 6_000_000, 1 << 26
)
_PARTS = {(Phase.OPTIMIZER, Activity.SYNC, Device.COLLECTIVE): 6_000_000}


def _given(*collectives: DeviceCollectives) -> Given:
    use = DeviceUse(20_000_000, 14_000_000, 6_000_000, 0, 0, (), (), (), (), collectives, (), 100.0, 6_000)
    return Given(tables={"device": use, "device_parts": _PARTS})


class ExposedCollective(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.DEVICE})

    cases = (
        Fires(
            """
            step   |ssssssssss|ssssssssss
            main   |FFFBBBOOOO|FFFBBBOOOO
            stream |kkkkkk...k|kkkkkk...k
            comm   |....nnnnn.|....nnnnn.
            """,
            spent_ms=6.0,
        ),
        Fires(_PICTURE, spent_ms=6.0, given=_given(_ALL_REDUCE)),
        # with all ranks at hand 2 ms turn out to be spent waiting for the last one
        Fires(_PICTURE, spent_ms=4.0, given=_given(replace(_ALL_REDUCE, waited_ns=2_000_000))),
        Silent(
            _PICTURE,
            "all of it is waiting for a rank that comes late",
            _given(replace(_ALL_REDUCE, waited_ns=6_000_000)),
        ),
        Silent(
            """
            step   |ssssssssss|ssssssssss
            main   |FFFBBBOOOO|FFFBBBOOOO
            stream |kkkkkkkkkk|kkkkkkkkkk
            comm   |....nnnnn.|....nnnnn.
            """,
            "the device computes meanwhile",
            _given(replace(_ALL_REDUCE, exposed_ns=0)),
        ),
        Silent(_PICTURE, "only the last bucket shows", _given(replace(_ALL_REDUCE, exposed_ns=200_000))),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        use = tables.device
        if use is None:
            return
        groups: defaultdict[str, list[DeviceCollectives]] = defaultdict(list)
        for collective in use.collectives:
            groups[operation(collective.name)].append(collective)
        for name, group in sorted(groups.items()):
            if _cost(group) >= LEAST_SHARE * max(1, tables.steady_ns):
                finding = self._finding(name, group, use, run, tables)
                if finding.claim_ns >= LEAST_SHARE * tables.steady_ns:
                    yield finding

    def _finding(
        self, name: str, group: Sequence[DeviceCollectives], use: DeviceUse, run: Run, tables: Tables
    ) -> Finding:
        worst = max(group, key=lambda collective: collective.exposed_ns)
        stakes = spread(_cost(group), tables.device_parts, Device.COLLECTIVE)
        cost, steps = total(stakes), tables.rank_steps
        waited = None if any(c.waited_ns is None for c in group) else sum(c.waited_ns or 0 for c in group)
        late = waited is not None and waited >= 0.5 * sum(c.exposed_ns for c in group)
        hidden = min(cost, use.compute_ns)
        exposed = sum(c.exposed_ns for c in group)
        evidence = [
            Evidence("collectives", sum(c.ns for c in group) / steps, "ns a step", "all ranks: table collectives"),
            Evidence("of it while nothing was computed", exposed / steps, "ns a step", "all ranks: table collectives"),
            Evidence(
                "collectives a step", sum(c.count for c in group) / steps, "count", "all ranks: table collectives"
            ),
        ]
        if waited is not None:
            evidence.append(
                Evidence("until the last rank had come", waited / steps, "ns a step", "all ranks: table collectives")
            )
        if nbytes := sum(max(0, c.nbytes) for c in group):
            evidence.append(Evidence("bytes", nbytes / steps, "bytes a step", "all ranks: table collectives"))
        note = ""
        if waited is None:
            note = "one rank's trace: how much of it is waiting for a rank that comes late cannot be told; give those of all"
        elif late:
            note = (
                "most of the exposed time is waiting for the last rank, which is not claimed: balance the ranks first"
            )
        return Finding(
            self.id,
            f"{name} takes {percent(cost / max(1, tables.steady_ns))} of the step with nothing computed meanwhile.",
            where(worst.line, name, worst.phase), Scope.STEADY, stakes, Weight.OVERLAP, Basis.MEASURED, tuple(evidence),
            Saving(0 if waited is None else hidden // steps // 2, hidden // steps),
            notes=(note,) if note else (),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        name = finding.title.partition(" ")[0]
        if name in ("AllGather", "ReduceScatter"):
            yield Remedy(
                f"{self.id}#prefetch", "gather parameters ahead of the layer that needs them", Safety.SAME_BITS,
                why="With FSDP: forward_prefetch=True and backward_prefetch=BackwardPrefetch.BACKWARD_PRE "
                "(FSDP2: set_modules_to_forward_prefetch), one unit a layer. Where memory allows, SHARD_GRAD_OP or sharding "
                "within a node only (HYBRID_SHARD) gathers less.",
            )  # fmt: skip
        elif name in ("SendRecv", "AllToAll"):
            yield Remedy(
                f"{self.id}#pipeline", "exchange the next batch's part while this one is computed", Safety.SAME_MATH,
                why="Exchange on a stream of its own and wait for it where the result is used; pipelines of torchrec "
                "(TrainPipelineSparseDist) do so for embeddings, and more micro-batches do so for pipeline parallelism.",
            )  # fmt: skip
        else:
            yield Remedy(
                f"{self.id}#buckets", "let the gradients go out while backward runs", Safety.SAME_MATH,
                why="DistributedDataParallel(bucket_cap_mb=..., gradient_as_bucket_view=True): the last bucket cannot be hidden, "
                "so smaller ones leave less; larger ones pay where there are hundreds of small collectives. Without DDP (a loop "
                "that averages gradients after backward) nothing overlaps: use DDP.",
            )  # fmt: skip
            yield Remedy(
                f"{self.id}#no-sync", "average once a step, where it accumulates gradients", Safety.SAME_MATH,
                why="With gradient accumulation, wrap all micro-steps but the last in `with model.no_sync():`.",
            )  # fmt: skip


def operation(name: str) -> str:
    """Return what a kernel of NCCL or RCCL does, as ``AllReduce``; its name up to the brackets where it does not say."""
    match = _OPERATION.search(name)
    if match is not None:
        return next(known for known in OPERATIONS if known.lower() == match.group(0).lower())
    return re.split(r"[<(]", name, maxsplit=1)[0].replace("void ", "").strip() or "a collective"


def _cost(group: Sequence[DeviceCollectives]) -> int:
    return sum(c.exposed_ns - min(c.exposed_ns, c.waited_ns or 0) for c in group)
