"""A line of the user's own code takes a good part of the step, and no other cause explains it.

## What it is
The fall-back: where the time has no known cause but sits on a line, that line is named, with its share and what it
calls. It is a fault where the time is of a kind that need not be: a loop that the interpreter walks (pairs of a batch,
the parameters one by one), arrays copied on the host, time off the CPU between the steps. Elsewhere it is information:
what bounds a healthy run.

## Why it costs
A tensor operation takes the interpreter and torch some microseconds whatever its size. A loop over the elements of a
batch pays that for each of them, forward and again in backward; one operation over the whole batch pays it once.
Copies and waits add their whole length to the step.

## How it is told
Stack samples of the steady steps, taken from outside, put ledger time of PYTHON, COMPUTE, IO and LOAD on lines. Lines
of one loop that runs within a step are named together, by the hottest. A loop is a fault where the interpreter takes at
least 15 % of its CPU time, or where it stands in another one, and most of it is not spent inside modules. A single loop
in a `forward` is taken for the model itself, as over its layers or time. Named from 5 % of the step on.

## Sources
PyTorch Performance Tuning Guide; `torch._foreach_*` for work on many parameters at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from unstall.causes._cause import Cause
from unstall.causes.host._spots import Kind, Spot, spots
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import HotLine, Loop, Tables

LEAST_SHARE = 0.05  # of the step
LEAST_SAMPLES = 4  # on a spot, to call it a fault; at 25 a second fewer are chance,
SURE_SHARE = (
    0.2  # except for loops within loops with so much of the step: their samples are lost most, as they change fast
)
MOST_TOLD = 4  # spots named as information; a page of them says nothing

_ADVICE = {
    Kind.LOOP: (
        "whole",
        "One operation over all of it instead of the loop",
        "Write it over whole tensors (broadcasting, masks, matrix products); for parameters use torch._foreach_*, "
        "with the lists made once.",
        Safety.SAME_MATH,
    ),
    Kind.COPIES: (
        "no_copy",
        "Index or view the data instead of copying it",
        "Take what the step needs from the stored array itself; copy only what is changed afterwards.",
        Safety.SAME_BITS,
    ),
    Kind.WAITS: (
        "beside",
        "Do it beside the steps, or less often",
        "Move the call to a thread or a worker, or call it every so many steps.",
        Safety.SAME_BITS,
    ),
}

_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |bbbbbFFBBO|bbbbbFFBBO
    host   |pppxx.....|pppxx.....
"""


def _hot(code: str, function: str, loops: tuple[Loop, ...], python_ms: int, compute_ms: int, callee: str = "") -> Given:
    parts = ((Activity.PYTHON, python_ms * _MS), (Activity.COMPUTE, compute_ms * _MS))
    line = Line("train.py", 15, function, code)
    hot = HotLine(
        line, Phase.BETWEEN, (python_ms + compute_ms) * _MS, parts, 20, 0, callee, ((callee, 1.0),) if callee else (),
        chain=(Line("train.py", 30, "main"), line), loops=loops,
    )  # fmt: skip
    return Given(tables={"lines": (hot,)})


_STEPS, _ROWS, _PAIRS = Loop("train.py", 25, 40, turns=True), Loop("train.py", 13, 15), Loop("train.py", 14, 15)

_PLANTED = """\
import torch
from torch import nn


{loss}


torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(512, 64), torch.randn(512, 32)
for step in range({steps}):
    rows = torch.randperm(512)[:16]
    loss = ranking_loss(net(x[rows]) @ y[rows].T)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item())
"""
_LOOPS = """\
def ranking_loss(scores, margin=0.1):
    total = scores.new_zeros(())
    n = len(scores)
    for i in range(n):
        for j in range(n):
            total = total + (margin - scores[i, i] + scores[i, j]).clamp(min=0)  # <- fault
    return total / (n * n)"""
_WHOLE = """\
def ranking_loss(scores, margin=0.1):
    return (margin - scores.diagonal()[:, None] + scores).clamp(min=0).mean()"""


class HotLineCause(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, 10, _hot("t.mul_(m)", "update", (_STEPS, _ROWS), 6, 4)),
        Fires(_PICTURE, 10, _hot("total = total + f(a[i], b[j])", "loss", (_STEPS, _ROWS, _PAIRS), 6, 4)),
        Silent(_PICTURE, "under 5 % of the step", _hot("t.mul_(m)", "update", (_STEPS, _ROWS), 0, 0)),
        Silent(
            """
            step   |ssssssssss|ssssssssss
            main   |FFFFFBBBBO|FFFFFBBBBO
            """,
            "no sample lies on a line of the user's",
        ),
    )

    planted = (
        Planted(_PLANTED.format(loss=_LOOPS, steps=100), _PLANTED.format(loss=_WHOLE, steps=4000), edited=False),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        hot = [s for s in spots(tables.lines, tables.steady_ns) if s.spent_ns >= LEAST_SHARE * tables.steady_ns > 0]
        faults = [spot for spot in hot if spot.kind is not Kind.WORK and _is_sure(spot, tables)]
        others = [spot for spot in hot if spot not in faults]
        # that backward takes its time the phases say: of more use are the lines that it walks back
        told = [spot for spot in others if not spot.turns] or others
        for spot in (*faults, *told[:MOST_TOLD]):
            yield self._of(spot, spot in faults, tables)

    def _of(self, spot: Spot, fault: bool, tables: Tables) -> Finding:
        a_step = spot.spent_ns // tables.rank_steps
        evidence = [
            Evidence("stack samples on it", spot.samples, "count", "rank 0: stack samples"),
            Evidence(
                "of it in the interpreter",
                spot.part_ns(Activity.PYTHON) / max(1, spot.spent_ns),
                "share",
                "rank 0: lock samples",
            ),
        ]
        if spot.loop is not None:
            evidence.append(Evidence("loops around it within a step", spot.depth, "count", "source"))
        notes = ("backward walks the graph of each of its operations too",) if _is_differentiated(spot) else ()
        return Finding(
            self.id, _title(spot, fault), spot.hottest.line, Scope.STEADY, spot.stakes, Weight.FALLBACK,
            Basis.SAMPLED, tuple(evidence), Saving(0, a_step) if fault else None, fault, notes=notes,
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        kinds = {spot.hottest.line: spot.kind for spot in spots(tables.lines, tables.steady_ns)}
        kind = kinds.get(finding.where) if isinstance(finding.where, Line) and finding.fault else None
        if kind in _ADVICE:
            name, title, why, safety = _ADVICE[kind]
            yield Remedy(f"{self.id}#{name}", title, safety, why=why)


def _is_sure(spot: Spot, tables: Tables) -> bool:
    nested = spot.kind is Kind.LOOP and spot.depth >= 2 and spot.spent_ns >= SURE_SHARE * tables.steady_ns
    return nested or spot.samples >= LEAST_SAMPLES


def _is_differentiated(spot: Spot) -> bool:
    return spot.kind is Kind.LOOP and any(line.phase is Phase.FORWARD for line in spot.lines)


def _title(spot: Spot, fault: bool) -> str:
    """Return what is told of the spot; how much it is the finding says, once others have had their part."""
    line = spot.hottest.line
    at = f"{line.file}:{line.line}"
    calls = _calls(spot.hottest)
    if not fault:
        return f"Time of the step goes to {at}{calls}."
    if spot.kind is Kind.LOOP and spot.loop is not None:
        loop = f"{line.file}:{spot.loop.first}-{spot.loop.last}" if spot.loop.last > spot.loop.first else at
        return f"A Python loop, {loop}, is walked piece by piece{calls}."
    if spot.kind is Kind.COPIES:
        return f"Arrays are copied on the host, at {at}."
    return f"The step waits off the CPU, at {at}{calls}."


def _calls(hot: HotLine) -> str:
    """Return what a line calls, as `` (in torch.nn.modules.linear)``: of torch the file, of others the function."""
    if not hot.callee:
        return ""
    if not hot.callee.startswith("torch."):
        return f" (in {hot.callee})"
    inside = hot.library.replace("\\", "/").rpartition("-packages/")[2]
    return f" (in {inside.removesuffix('.py').replace('/', '.') or hot.callee})"
