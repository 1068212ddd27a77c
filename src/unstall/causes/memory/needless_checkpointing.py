"""Activation checkpointing does the forward pass twice, although memory is far from full.

## What it is
`torch.utils.checkpoint` keeps only the inputs of a block and does its forward again in the backward pass, to
save memory. It was switched on for a larger model, batch or a smaller machine, or came with a recipe.

## Why it costs
Each checkpointed block is computed twice: about a third more for a step.

## How it is told
Stack samples of the backward pass that lie inside a checkpoint's recomputation, against the largest memory that
the process had and what this machine (or its control group) gives. Nothing is said where more than a quarter of
the memory is in use: activations that are kept may multiply it. On a GPU its memory is not known here, and
nothing is said.

## Sources
Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"; PyTorch documentation,
`torch.utils.checkpoint`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import trains_on_cpu
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import CallFirst, Edit, Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Recomputed, Tables

FAR = 0.25  # of the memory in use; activations that are kept may take several times what the process has now
LEAST_SAMPLES = 4
_CALLS = re.compile(r"\bcheckpoint\s*\(")
# keywords of torch.utils.checkpoint.checkpoint that do not go to the function
_OF_CHECKPOINT = ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")

_AGAIN = Recomputed(
    Line("train.py", 33, "forward", "x = checkpoint(block, x, use_reentrant=False)"), 4_000_000, 500_000, 20
)
_PARTS = {(Phase.BACKWARD, Activity.COMPUTE): 8_000_000, (Phase.BACKWARD, Activity.PYTHON): 2_000_000}
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFBBBBBO|FFFFBBBBBO
"""


def _given(again: Recomputed | None, peak: int = 400_000_000, device: str = "cpu") -> Given:
    return Given(
        facts={
            "machine.memory_bytes": 16_000_000_000,
            "memory.peak_bytes": peak,
            "parameters:0": {"devices": [device]},
        },
        tables={"recomputed": again, "steady_parts": _PARTS},
    )


class NeedlessCheckpointing(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, 4.0, _given(_AGAIN)),
        Silent(_PICTURE, "nothing is computed again", _given(None)),
        Silent(_PICTURE, "half of the memory is in use as it is", _given(_AGAIN, peak=8_000_000_000)),
        Silent(_PICTURE, "the memory of a GPU is not known", _given(_AGAIN, device="cuda")),
    )

    planted = (
        Planted(
            before="""\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
blocks = nn.ModuleList(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4))
opt = torch.optim.SGD(blocks.parameters(), lr=1e-3)
for step in range(60):
    x = torch.randn(256, 256)
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)  # <- fault
    loss = x.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
            after="""\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
blocks = nn.ModuleList(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4))
opt = torch.optim.SGD(blocks.parameters(), lr=1e-3)
for step in range(60):
    x = torch.randn(256, 256)
    for block in blocks:
        x = block(x)
    loss = x.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        again, peak, has = tables.recomputed, _peak_bytes(run), _memory_bytes(run)
        if again is None or again.samples < LEAST_SAMPLES or again.spent_ns < LEAST_SHARE * tables.steady_ns:
            return
        if peak is None or has is None or peak > FAR * has or not trains_on_cpu(run):
            return
        held = {entry: ns for entry, ns in tables.steady_parts.items() if entry[0] is Phase.BACKWARD}
        share = again.spent_ns / max(1, sum(held.values()))
        steps = tables.rank_steps
        yield Finding(
            self.id,
            f"Checkpointing repeats the forward pass, {share:.0%} of backward, with {peak / has:.0%} of memory used.",
            again.line,
            Scope.STEADY,
            tuple(Stake(p, a, round(share * ns)) for (p, a), ns in held.items()),
            Weight.NEEDLESS,
            Basis.SAMPLED,
            (
                Evidence(
                    "computed again in backward", again.spent_ns / steps, "ns a step", f"{again.samples} stack samples"
                ),
                Evidence("its standard error", again.error_ns / steps, "ns a step", f"{again.samples} stack samples"),
                Evidence("largest memory of the process", peak, "bytes", "rank 0: memory readings"),
                Evidence("memory of the machine", has, "bytes", "machine"),
            ),
            Saving(int(max(0, again.spent_ns - 2 * again.error_ns) / steps), int(again.spent_ns / steps)),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = "call the block itself, or checkpoint fewer blocks; memory grows by the activations that are then kept"
        where = finding.where
        edits: tuple[Edit, ...] = ()
        if isinstance(where, Line) and where.framework is None and _CALLS.search(where.code):
            edits = (CallFirst(where.file, where.line, "torch.utils.checkpoint.checkpoint", dropped=_OF_CHECKPOINT),)
        yield Remedy(f"{self.id}#direct", "call the blocks without a checkpoint", Safety.SAME_BITS, edits, (), why)


def _peak_bytes(run: Run) -> float | None:
    """Return the largest memory that the processes of the training had together; the drawn cases state it as a fact."""
    readings = [
        int(rank.gauges.rss_bytes.max()) for rank in run.ranks if rank.gauges is not None and rank.gauges.rss_bytes.size
    ]
    return float(sum(readings)) if readings else run.facts.number("memory.peak_bytes")


def _memory_bytes(run: Run) -> float | None:
    known = [run.facts.number(f"machine.{name}") for name in ("memory_bytes", "memory_limit_bytes")]
    return min((number for number in known if number), default=None)
