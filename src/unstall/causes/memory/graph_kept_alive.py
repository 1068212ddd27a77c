"""The graph of past steps is kept alive, and every backward pass goes through all of it again.

## What it is
A tensor that still carries its history outlives its step: a hidden state or a running mean that is fed into the
next step, a list of losses, a sum `total += loss`. With it lives the whole graph that led to it.

## Why it costs
Where the next loss depends on it, each backward pass is longer than the one before, so that the time of a run
grows with the square of its steps. Where it does not, only memory grows, until the run swaps or dies.

## How it is told
The roots of backward passes are marked, and it is counted how many of them are still alive long after. At a few
passes the graph is walked, and it is told how many of its nodes an earlier walk had met. Time is claimed only
where this is so and the time of forward and backward grows as well, with the 95 % interval of its slope above
zero: the growth over the run. A curriculum of longer sequences grows too, but meets no old nodes. The line is
the one that carries the history in the source of the function that calls backward; where none is found, that
call itself.

## Sources
PyTorch FAQ, "My model reports out of memory" (don't accumulate history across your training loop); truncated
backpropagation through time, Williams and Peng 1990.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.memory._history import carrier
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import Tables, Trend

LEAST_MARKS, ALIVE = 12, 0.8  # graphs that should be dead by now, and the share of them that is not
MET, LONGER = 0.5, 1.3  # of the nodes of the walk before, met again; and how much longer the graph has become
LEAST_BYTES = 20_000  # a step; below it the growth of memory is the allocator's

_WALKS: dict[str, Fact] = {"graphs.walk:12": {"nodes": 100, "met": 50}, "graphs.walk:24": {"nodes": 200, "met": 98}}
_LONGER: dict[str, Fact] = {"graphs.walk:12": {"nodes": 100, "met": 0}, "graphs.walk:24": {"nodes": 200, "met": 0}}
_BY: dict[str, Fact] = {"graphs.backward_by": "/p/train.py:14:<module>"}
_PARTS = {(Phase.FORWARD, Activity.COMPUTE): 20_000_000, (Phase.BACKWARD, Activity.COMPUTE): 60_000_000}
_PICTURE = "\n".join(("step " + "|ssssssssss" * 8, "main " + "|FFBBBBBBBO" * 8))


def _growing(slope: float, low: float) -> Trend:
    return Trend(2_000_000, 9_000_000, slope, low, 2 * slope, ((Phase.BACKWARD, slope), (Phase.FORWARD, 0.0)), 5e4, 8)


def _given(facts: Mapping[str, Fact], slope: float = 1e6, low: float = 5e5) -> Given:
    return Given(facts={**_BY, **facts}, tables={"trend": _growing(slope, low), "steady_parts": _PARTS})


class GraphKeptAlive(Cause):
    needs = frozenset({Sensor.STEPS})

    cases = (
        Fires(_PICTURE, 28.0, _given(_WALKS)),
        Fires(_PICTURE, 28.0, _given({"graphs.marked": 40, "graphs.alive": 40})),
        Silent(_PICTURE, "longer and longer sequences: the graph grows, but no old node is in it", _given(_LONGER)),
        Silent(
            _PICTURE,
            "features computed once before the loop are met at each step, but the graph does not grow",
            _given({"graphs.walk:12": {"nodes": 100, "met": 0}, "graphs.walk:24": {"nodes": 100, "met": 90}}),
        ),
        Silent(
            _PICTURE,
            "truncated backpropagation keeps twenty steps alive of a hundred",
            _given({"graphs.marked": 100, "graphs.alive": 12}),
        ),
        Silent(
            _PICTURE,
            "the machine became busier; every graph died with its step",
            _given({"graphs.marked": 40, "graphs.alive": 0}),
        ),
    )

    planted = (
        Planted(
            before="""\
import torch
from torch import nn

torch.manual_seed(0)
scale = nn.Parameter(torch.ones(8))
opt = torch.optim.SGD([scale], lr=1e-4)
mean = torch.zeros(8)
for step in range(400):
    y = torch.tanh(torch.randn(16, 8) * scale)
    mean = 0.9 * mean + 0.1 * y.mean(0)  # <- fault
    loss = mean.square().sum()
    opt.zero_grad()
    loss.backward(retain_graph=True)
    opt.step()
print(loss.item())
""",
            after="""\
import torch
from torch import nn

torch.manual_seed(0)
scale = nn.Parameter(torch.ones(8))
opt = torch.optim.SGD([scale], lr=1e-4)
mean = torch.zeros(8)
for step in range(400):
    y = torch.tanh(torch.randn(16, 8) * scale)
    mean = 0.9 * mean.detach() + 0.1 * y.mean(0)
    loss = mean.square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        kept, trend = _kept(run), tables.trend
        called_by = tables.place(run.ranks[0].facts.text("graphs.backward_by") or "")
        if not kept or called_by is None:
            return
        where = carrier(called_by, run.project) or called_by
        steps = max(1, tables.steady_steps)
        stakes = _growth(trend, tables, steps) if trend is not None and trend.growth_low > 0 else ()
        grown_ns = sum(stake.ns for stake in stakes)
        memory = trend.rss_bytes_per_step if trend is not None else None
        if trend is None or grown_ns < LEAST_SHARE * tables.steady_ns:
            if memory is not None and memory > LEAST_BYTES:
                title = "The graph of past steps is kept alive, so memory grows."
                yield Candidate(
                    self.id, title, where, f"memory grows by {memory / 1e3:.0f} kB a step; no time lost to it was seen"
                )
            return
        yield Finding(
            self.id,
            f"Forward and backward grow by {trend.growth_ns_per_step / 1e3:.3g} us each step: past graphs are kept.",
            where,
            Scope.STEADY,
            stakes,
            Weight.TIMED,
            Basis.MEASURED,
            (
                *kept,
                Evidence("step at first", trend.first_ns, "ns", "rank 0: first fifth of the steady steps"),
                Evidence("step at last", trend.last_ns, "ns", "rank 0: last fifth of the steady steps"),
                Evidence(
                    "growth of the step, at least",
                    trend.growth_low,
                    "ns a step",
                    "rank 0: Theil-Sen slope, 95 % interval",
                ),
                *(
                    []
                    if memory is None
                    else [Evidence("growth of memory", memory, "bytes a step", "rank 0: memory readings")]
                ),
            ),
            Saving(
                int(min(1.0, trend.growth_low / max(1.0, trend.growth_ns_per_step)) * grown_ns / steps),
                int(grown_ns / steps),
            ),
            notes=("it grows with the square of the steps: a longer run loses a larger share",),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        code = finding.where.code if isinstance(finding.where, Line) else ""
        what = (
            "add loss.item()" if "+=" in code or ".append(" in code else "detach() what is carried into the next step"
        )
        why = "gradients no longer flow into earlier steps; without retain_graph=True torch says where they still would"
        yield Remedy(f"{self.id}#detach", what, Safety.CHANGES_TRAINING, (), (), why)


def _kept(run: Run) -> tuple[Evidence, ...]:
    """Return the evidence that graphs of past steps are alive or walked again; empty where they are not."""
    facts = run.ranks[0].facts
    found = []
    marked, alive = facts.number("graphs.marked") or 0, facts.number("graphs.alive") or 0
    if marked >= LEAST_MARKS and alive >= ALIVE * marked:
        found.append(
            Evidence("graphs of past steps still alive", alive / marked, "share", "rank 0: facts graphs.alive")
        )
    walks = sorted(facts.family("graphs.walk").items())
    for (_, before), (number, after) in pairwise(walks):
        nodes, met, had = (after.number("nodes") or 0), (after.number("met") or 0), (before.number("nodes") or 0)
        if had and met >= MET * had and nodes >= LONGER * had:
            source = f"rank 0: facts graphs.walk:{number}"
            found.append(Evidence("graph nodes that an earlier backward pass had", met, "count", source))
            break
    return tuple(found)


def _growth(trend: Trend, tables: Tables, steps: int) -> tuple[Stake, ...]:
    """Return what forward and backward took more than at the first steady step, over all of them, by entry."""
    stakes = []
    for phase, slope in trend.by_phase:
        if phase not in (Phase.FORWARD, Phase.BACKWARD) or slope <= 0:
            continue
        held = {entry: ns for entry, ns in tables.steady_parts.items() if entry[0] is phase}
        share = min(0.95, slope * steps * (steps - 1) / 2 / max(1, sum(held.values())))
        stakes += [Stake(phase, activity, round(share * ns)) for (_, activity), ns in held.items()]
    return tuple(stakes)
