"""A deep model is compiled as one graph, and most of this run's loop is the wait for the compiler.

## What it is
The whole model is given to `torch.compile`, though most of it is one block, repeated. The compiler unrolls the
blocks and works on all of them.

## Why it costs
Compile time grows with the number of blocks, and more than in proportion for some passes. It is paid at every
start of the program, before the first step, by short runs and by each restart of a long one.

## How it is told
Compile windows of first compilations are timed, and belong to the line that asked. Named is a model of which at
least four blocks of one class make up half of the parameters, whose compilation takes a fifth of the loop
recorded so far or more. The time is start-up: it is set against the job's length where that is known. Compiling
the block alone takes about one block's part of it; how much of the rest is saved is an estimate.

## Sources
PyTorch tutorial, "Reducing torch.compile cold start compilation time with regional compilation"; there 9.6x
faster to compile for 64 layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from unstall.causes._cause import Cause
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Fact, Facts, Run, Sensor
from unstall.model.tables import Compile, Tables

LEAST_BLOCKS, LEAST_PART = 4, 0.5  # blocks of one class, and their share of the parameters
LEAST_OF_LOOP = 0.2  # of the loop recorded so far; below it the compilation has been paid back
LEAST_NS = 1_000_000_000  # of compilation in all; the first use of the compiler costs that much by itself
SAVED = (0.4, 1.0)  # of what the other blocks take: passes over the whole model, and imports, are not saved

_SITE = Line("train.py", 35, "main", "model.compile()")
_PICTURE = f"""
    step   |{"s" * 1300}|ssssssssss
    main   |{"F" * 1300}|FFFFFFFFBO
    host   |{"r" * 1200}{"." * 100}|..........
"""


def _given(blocks: int, ms: int = 1200, part: float = 0.9, steady_ms: int = 10, number: int = 0) -> Given:
    facts: dict[str, Fact] = {
        "compile:0": {"site": "train.py:35:main", "block": "Layer", "blocks": blocks, "block_share": part}
    }
    window = Compile(0, ms * 1_000_000, number, f"0/{number}", None, _SITE, phase=Phase.FORWARD)
    return Given(facts=facts, tables={"compiles": (window,), "steady_ns": steady_ms * 1_000_000})


class LongColdStart(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER})

    cases = (
        Fires(_PICTURE, 1200, _given(16)),
        Silent(_PICTURE, "two blocks: there is little to share", _given(2)),
        Silent(_PICTURE, "the blocks are a small part of the model", _given(16, part=0.1)),
        Silent(_PICTURE, "compiled in a moment", _given(16, ms=600)),
        Silent(_PICTURE, "the loop has run for long: it is paid back", _given(16, steady_ms=60_000)),
        Silent(_PICTURE, "recompilations are another fault", _given(16, number=1)),
    )

    planted = (
        Planted(
            before="""\
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(Layer(16) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


torch.manual_seed(0)
model = Stack(32)
model.compile(backend="aot_eager")  # <- fault
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(20):
    loss = model(torch.randn(8, 16)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
            after="""\
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(Layer(16) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


torch.manual_seed(0)
model = Stack(32)
for layer in model.layers:
    layer.compile(backend="aot_eager")
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(20):
    loss = model(torch.randn(8, 16)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
            also=frozenset({"compiler/debug-backend"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        first: dict[Line, list[Compile]] = defaultdict(list)
        for window in tables.compiles:
            if window.number == 0 and not window.steady and window.site is not None:
                first[window.site].append(window)
        for site, windows in first.items():
            model = _model_at(site, run)
            if model is not None and (finding := self._of(site, windows, model, tables)) is not None:
                yield finding

    def _of(self, site: Line, windows: Sequence[Compile], model: Facts, tables: Tables) -> Finding | None:
        spent_ns = sum(window.ns for window in windows)
        if spent_ns <= LEAST_NS or spent_ns < LEAST_OF_LOOP * (spent_ns + tables.steady_ns):
            return None
        blocks, part = int(model.number("blocks") or 1), model.number("block_share") or 0.0
        others_ns = spent_ns * part * (blocks - 1) / blocks
        phases: dict[Phase, int] = defaultdict(int)
        for window in windows:
            phases[window.phase] += window.ns
        return Finding(
            self.id,
            f"Compiling {blocks} blocks of one class as one graph took {spent_ns / 1e9:.3g} s of this run.",
            site,
            Scope.STARTUP,
            tuple(Stake(phase, Activity.COMPILE, ns) for phase, ns in sorted(phases.items())),
            Weight.OVERLAP,
            Basis.MEASURED,
            (
                Evidence("first compilations", spent_ns, "ns", "rank 0: events COMPILE"),
                Evidence(f"blocks of class {model.text('block')}", blocks, "count", "rank 0: facts compile"),
                Evidence("their share of the parameters", part, "share", "rank 0: facts compile"),
                Evidence("steady steps so far", tables.steady_ns, "ns", "ledger"),
            ),
            Saving(int(SAVED[0] * others_ns), int(SAVED[1] * others_ns)),
            notes=("paid once a start: a long job pays it back",),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = "compile each block, not the model (for block in blocks: block.compile()); all share one compiled program"
        yield Remedy(f"{self.id}#regional", "compile the repeated block", Safety.SAME_MATH, (), (), why)


def _model_at(site: Line, run: Run) -> Facts | None:
    """Return what is known of the model that was compiled at *site*, if most of it is one block, repeated."""
    for facts in run.ranks[0].facts.family("compile").values():
        place = (facts.text("site") or "").rsplit(":", 1)[0]
        repeats = (facts.number("blocks") or 0) >= LEAST_BLOCKS and (facts.number("block_share") or 0) >= LEAST_PART
        if repeats and place.endswith(f"{site.file}:{site.line}"):
            return facts
    return None
