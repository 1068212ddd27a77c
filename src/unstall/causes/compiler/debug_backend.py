"""Compilation was asked for with a backend that is there to find errors: it traces the model and fuses nothing.

## What it is
`torch.compile(..., backend="eager")` and `"aot_eager"` run every operator as it is; the first tests Dynamo alone, the
second AOTAutograd as well. They are left in a script from a search for an error, or from a time when the real backend
failed. `TORCH_COMPILE_DEBUG=1` is alike: the compiler writes down all that it does.

## Why it costs
Tracing is paid for, guards are checked at each call, and no kernel is fused, so what compilation was asked for is not
got. Nothing says so: the model counts as compiled.

## How it is told
Calls of `torch.compile` are noted with their backend, and so is every compile window. Named is the line that asks, if
something was compiled and no call in the run asked for a backend that fuses; where some did, it is a candidate. Only
where the loop goes on for twenty steady steps.

How much faster fused kernels would be shows only in a trial: 10 % of what the forward and backward passes compute is
claimed, the saving lies between none and half. `TORCH_COMPILE_DEBUG` is a candidate: it costs at compile time, and how
much was not measured.

## Sources
PyTorch documentation, "torch.compile Troubleshooting": backends by what they leave out.
"""

from __future__ import annotations

from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import is_library
from unstall.causes.compiler._asked import UNFUSED, backend_of, set_where_asked
from unstall.causes.compiler._uncompiled import MOST_OF_PASS, PASSES, held_ns
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Environment, Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import Compile, Tables

LOST = 0.1  # of what both passes compute
LEAST_STEPS = 20  # steady ones; before, a script may only be tried out
VARIABLE = "TORCH_COMPILE_DEBUG"

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFBBBBO|FFFFFBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""
_WINDOW = Compile(0, 1, 0, "0/0", None, None)


def _given(*backends: str, steps: int = 100, windows: tuple[Compile, ...] = (_WINDOW,)) -> Given:
    asked: dict[str, Fact] = {
        f"compile:{n}": {"site": f"train.py:{20 + n}:main", "settings": {"backend": name} if name else {}}
        for n, name in enumerate(backends)
    }
    return Given(asked, {"compiles": windows, "steady_steps": steps})


_PLANTED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3, 128))

    def forward(self, x):
        for gain in self.gain:
            x = x + gain * torch.sigmoid(gain * x)
        return x


torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
{compile}
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(2000):
    loss = net(torch.randn(128, 128)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


class DebugBackend(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER})

    cases = (
        Fires(_PICTURE, 1.8, _given("aot_eager")),
        Fires(_PICTURE, 1.8, _given("eager", "eager")),
        Silent(_PICTURE, "the usual backend", _given("")),
        Silent(_PICTURE, "a backend of one's own", _given("<function traced at 0x7f>")),
        Silent(_PICTURE, "nothing was compiled: that is another fault", _given("aot_eager", windows=())),
        Silent(_PICTURE, "the loop has hardly begun", _given("aot_eager", steps=5)),
        Silent(_PICTURE, "nothing was asked for", _given()),
    )

    planted = (
        Planted(
            before=_PLANTED.format(compile='net.compile(backend="aot_eager")  # <- fault'),
            after=_PLANTED.format(compile='net.compile(backend="inductor")'),
            also=frozenset({"compiler/long-cold-start"}),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        asked = list(run.ranks[0].facts.family("compile").values())
        if not tables.compiles or tables.steady_steps < LEAST_STEPS:
            return
        if run.facts.text(f"env.{VARIABLE}") not in (None, "", "0"):
            title = f"{VARIABLE} is set: the compiler writes down all that it does."
            yield Candidate(self.id, title, Environment(VARIABLE), "It costs where something is compiled.")
        unfused = [one for one in asked if backend_of(one) in UNFUSED and not one.flag("off")]
        sites = {site: one for one in unfused if (site := one.text("site"))}
        for n, (site, one) in enumerate(sites.items()):
            where = tables.place(site)
            if where is not None:
                alone = n == 0 and len(unfused) == len(asked)
                yield self._of(where, backend_of(one), len(unfused), alone, tables)

    def _of(self, where: Line, backend: str, count: int, alone: bool, tables: Tables) -> Finding | Candidate:
        title = f'backend="{backend}" fuses nothing: {tables.steady_steps} steady steps ran as if uncompiled.'
        computed = {phase: tables.steady_parts.get((phase, Activity.COMPUTE), 0) for phase in PASSES}
        stakes = tuple(Stake(phase, Activity.COMPUTE, int(LOST * ns)) for phase, ns in computed.items() if ns)
        spent_ns, steps = sum(stake.ns for stake in stakes), tables.rank_steps
        if not alone or spent_ns < LEAST_SHARE * tables.steady_ns:
            return Candidate(self.id, title, where, "What fused kernels would give shows only in a trial.")
        passes_ns = sum(held_ns(phase, tables.steady_parts) for phase in PASSES)
        return Finding(
            self.id, title, where, Scope.STEADY, stakes, Weight.ESTIMATED, Basis.SAMPLED,
            (
                Evidence("calls that ask for such a backend", count, "count", "rank 0: facts compile"),
                Evidence("compile windows", len(tables.compiles), "count", "rank 0: events COMPILE"),
                Evidence("both passes", passes_ns // steps, "ns a step", "ledger"),
            ),
            Saving(0, int(MOST_OF_PASS * passes_ns) // steps),
            notes=("an estimate: what fused kernels would give shows only in a trial",),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = "fused kernels round differently; the first start compiles for longer"
        where = finding.where
        if isinstance(where, Line) and not is_library(where.file):
            edit = set_where_asked(where, "backend", "inductor")
            yield Remedy(f"{self.id}#inductor", 'backend="inductor"', Safety.SAME_MATH, (edit,), (), why)
        else:
            yield Remedy(f"{self.id}#inductor", 'ask for backend="inductor"', Safety.SAME_MATH, (), (), why)
