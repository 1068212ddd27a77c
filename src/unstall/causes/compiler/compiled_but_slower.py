"""So many small regions are compiled that entering them takes longer than their fused kernels save.

## What it is
Each layer of a model is compiled by itself, or a function of a few operations is; or the whole model is no more than
that. The code runs compiled, without a break or a recompilation, and the step is slower than if nothing were compiled.

## Why it costs
Each call of a compiled region looks up its guards and goes through the wrappers of Dynamo and AOTAutograd, and its
backward pass goes through as many again: 50 to 100 us together, whatever the region computes. What a region saves grows
with the operations in it, about 8 us for each that need not be dispatched, and with the memory that fused kernels do not
go through. A region of two small operations does not earn what it costs.

## How it is told
The compiler tells how many operations each region holds, and one step is counted for how often each is entered. Stack
samples between the call of compiled code and the code itself, guards and wrappers, are the cost, no more than 100 us a
region: on a busy machine they stand for waiting as well. Against it stand 8 us for each operation but the first (4 to 12),
and 0.35 of the time of a region's generated kernels (none to 0.7) for each.
What is left is claimed; the bounds of these numbers are the bounds of the saving, whose upper one counts the cost one and a
half times: autograd's way to Python and back is in no frame of the compiler's. Named is the line that asks for
compilation.

Nothing is said where the cost belongs to another fault: where pieces of a broken graph are entered, where the loop still
recompiles or the compiler gave up; nor of other backends than Inductor, whose saving is not known.

## Sources
PyTorch documentation, "torch.compile Troubleshooting" and "Frequently Asked Questions" (why is there no speed-up).
Measured on 2 cores, torch 2.13, CPU time of a step in interleaved rounds, each layer compiled: 16 of two operations,
16 x 64: 1.51 ms and 0.58 ms uncompiled; 12 of a linear layer and a ReLU, 16 x 64: 1.92 and 0.76 ms; one of them: 0.41
and 0.25 ms; 12 of four operations, 16 x 64: 2.52 and 1.93 ms. With tensors of 8 x 8 a region of 1, 2, 4 and 8 products
loses 54, 43, 25 and 4 us; of 128 x 256 one of 2 loses 74 us and one of 4 gains 17 us. One region of 13 operations, 32 x 64,
takes 0.56 and 0.47 ms: a loss that these numbers are too coarse to claim. `unstall fix` proved not to compile the 16 regions:
2.7 times faster (1.7 to 4.4, 9 pairs, a busy machine).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import is_library
from unstall.causes.compiler._asked import backend_of, set_where_asked
from unstall.causes.compiler._uncompiled import stakes_in
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Weight
from unstall.model.fusion import Fusion
from unstall.model.ledger import Basis, Ledger, Phase
from unstall.model.regions import Entering, Region
from unstall.model.remedy import Edit, Remedy, Safety, SetEnvironment
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import Compile, Tables

OPERATION_NS = (
    4_000,
    8_000,
    12_000,
)  # that an operation of a region need not be dispatched, both passes: least to most
UNSEEN = 1.5  # times the cost, at most: autograd's way to Python and back is in no frame of the compiler's
MOST_ENTRY_NS = 100_000  # of a region, both passes: on a busy machine samples there stand for waiting as well
KERNEL_PART = (0.0, 0.35, 0.7)  # of the region's kernels, that it would go through memory by itself
LEAST_STEPS = 20  # steady ones; before, a script may only be tried out
LEAST_SAMPLES = 20  # on guards and wrappers; fewer say nothing of their time
RESUMED = "torch_dynamo_resume_in_"  # what goes on behind a break of the graph

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFBBBBO|FFFFFBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""
_SITE = Line("train.py", 41, "main", "layer.compile()")
_REGION = Region(Line("train.py", 9, "forward"), _SITE, 1, 13, 16)
_ENTERING = Entering((_REGION,), 32, ((Phase.FORWARD, 2_000_000), (Phase.BACKWARD, 1_000_000)), 120)
_LATE = Compile(0, 1, 3, "0/3", None, _SITE, steady=True)


def _given(
    region: Region = _REGION, kernel_ms: int = 0, windows: tuple[Compile, ...] = (), steps: int = 100, **facts: Fact
) -> Given:
    made = Fusion(1, 2, 0, 0, 0, kernel_spent=((Phase.FORWARD, kernel_ms * 1_000_000),), samples=40)
    known = {name.replace("__", ":"): fact for name, fact in facts.items()}
    entering = replace(_ENTERING, regions=(region,))
    return Given(known, {"entering": entering, "fusion": made, "compiles": windows, "steady_steps": steps})


_PLANTED = """\
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.tanh(x * self.gain)


torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(*[Scale(64) for _ in range(16)])
for layer in net:
    layer.compile({options}){mark}
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(1500):
    loss = net(torch.randn(16, 64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


class CompiledButSlower(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, 3.0, _given()),
        Fires(_PICTURE, 3.0, _given(kernel_ms=6)),
        Fires(_PICTURE, 0.8, _given(replace(_REGION, entries=4))),  # samples say 375 us each
        Silent(_PICTURE, "a region of many operations earns what it costs", _given(replace(_REGION, operators=26))),
        Silent(
            _PICTURE,
            "five operations on large tensors: their kernels save memory traffic",
            _given(replace(_REGION, operators=5), kernel_ms=6),
        ),
        Silent(
            _PICTURE,
            "a piece of a broken graph",
            _given(replace(_REGION, frame=Line("train.py", 12, f"{RESUMED}forward_at_12"))),
        ),
        Silent(_PICTURE, "the loop still recompiles", _given(windows=(_LATE,))),
        Silent(_PICTURE, "the compiler gave up", _given(compile_limit__0={"limit": "recompile_limit"})),
        Silent(
            _PICTURE,
            "the backend fuses nothing",
            _given(compile__0={"site": "train.py:41:main", "settings": {"backend": "aot_eager"}}),
        ),
        Silent(
            _PICTURE,
            "a backend of one's own: what it saves is not known",
            _given(compile__0={"site": "train.py:41:main", "settings": {"backend": "<function traced at 0x7f>"}}),
        ),
        Silent(_PICTURE, "the loop has hardly begun", _given(steps=5)),
    )

    planted = (
        Planted(
            before=_PLANTED.format(options="", mark="  # <- fault"),
            after=_PLANTED.format(options="disable=True", mark=""),
            also=frozenset({"compiler/cold-cache", "kernels/too-few-threads"}),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        entering, facts = tables.entering, run.ranks[0].facts
        if entering is None or entering.samples < LEAST_SAMPLES or tables.steady_steps < LEAST_STEPS:
            return
        if any(backend_of(one) != "inductor" for one in facts.family("compile").values()):
            return
        if facts.family("compile_limit") or any(window.steady for window in tables.compiles):
            return
        if any(RESUMED in region.frame.function for region in entering.regions):
            return
        by_line: dict[Line, list[Region]] = defaultdict(list)
        for region in entering.regions:
            if region.entries:
                by_line[region.site or region.frame].append(region)
        all_entries = sum(region.entries for region in entering.regions)
        for line, regions in by_line.items():
            part = sum(region.entries for region in regions) / all_entries
            if (finding := self._of(line, regions, part, entering, tables)) is not None:
                yield finding

    def _of(
        self, line: Line, regions: Sequence[Region], part: float, entering: Entering, tables: Tables
    ) -> Finding | None:
        """Return what is lost at *line*, which asked for *regions*: a *part* of all that is entered."""
        steps, entries = tables.rank_steps, sum(region.entries for region in regions)
        cost_ns = min(part * entering.ns, steps * entries * MOST_ENTRY_NS)
        kernel_ns = part * tables.fusion.kernel_ns if tables.fusion is not None else 0.0
        others = sum(region.entries * max(0.0, region.operators - 1) for region in regions)
        least, saved, most = (
            others * (steps * one_ns + kernel_part * kernel_ns / entries)
            for one_ns, kernel_part in zip(OPERATION_NS, KERNEL_PART, strict=True)
        )
        lost_ns = cost_ns - saved
        if lost_ns < LEAST_SHARE * tables.steady_ns:
            return None
        stakes = tuple(
            stake
            for phase, ns in entering.spent
            for stake in stakes_in(phase, round(lost_ns * ns / entering.ns), tables.steady_parts)
        )
        held = sum(region.entries * region.operators for region in regions) / entries
        spent_ns = sum(stake.ns for stake in stakes)
        most_lost_ns = UNSEEN * cost_ns - least
        return Finding(
            self.id,
            f"A step enters {entries:.3g} compiled regions of {held:.2g} operations each: entering takes "
            f"{cost_ns / steps / 1e6:.3g} ms, more than fusing saves.",
            line, Scope.STEADY, stakes, Weight.NEEDLESS, Basis.SAMPLED,
            (
                Evidence("guards and wrappers", cost_ns / steps, "ns a step", "rank 0: stack samples, facts entries"),
                Evidence("regions entered a step", entries, "count", "rank 0: facts entries"),
                Evidence("operations in each", held, "count", "rank 0: facts region"),
                Evidence("saved by fusing them, about", saved / steps, "ns a step", "arithmetic"),
            ),
            Saving(int(min(spent_ns, max(0.0, cost_ns - most))) // steps, int(max(spent_ns, most_lost_ns)) // steps),
            notes=("an estimate: what the step takes uncompiled shows only in a trial",),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        where, why = finding.where, "uncompiled code rounds differently"
        edit: Edit = SetEnvironment("TORCH_COMPILE_DISABLE", "1")
        if isinstance(where, Line) and "compile(" in where.code and not is_library(where.file):
            edit = set_where_asked(where, "disable", True)
        yield Remedy(f"{self.id}#uncompiled", "do not compile it", Safety.SAME_MATH, (edit,), (), why)
        why = "compile the module that calls them all: one larger region is entered once a step, and fuses across them"
        yield Remedy(f"{self.id}#larger", "compile one larger region", Safety.SAME_MATH, (), (), why)
