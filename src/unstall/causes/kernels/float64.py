"""The model trains in float64, at half the speed of float32 or less.

## What it is
The parameters are double precision: by `model.double()`, a default type, or because data from numpy is float64
and the model was made to fit it.

## Why it costs
A vector instruction handles half as many doubles as floats, and twice as many bytes move: about twice the time
on a CPU, 2 to 64 times on a GPU.

## How it is told
The types of what the optimizers hold, by elements, and the compute time of the steady steps. No interval shows
what float32 would take, so the saving is an estimate: a quarter to a little over half of the compute time on a
CPU. Where float64 is a small part of the model, or the step is not bound by tensor operations, nothing is said.

## Sources
PyTorch FAQ on data types; throughput tables of CPU vector units and of the CUDA programming guide.
Measured on 2 cores: 1.9x for an MLP of 1024 units.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.kernels._threads import IN_TORCH
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Edit, Remedy, RemoveCall, Safety
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import Tables

MOSTLY = 0.5  # of the elements
SAVED = (0.25, 0.45, 0.55)  # of the compute time: least, claimed, most
_DEFAULT = re.compile(r"^(?:\w+\.)*set_default_dtype\([^()]*\)\s*(?:#.*)?$")
_DOUBLE = re.compile(r"\.double\(\)|\btorch\.(float64|double)\b|['\"]float64['\"]")

_PARTS = {(Phase.FORWARD, Activity.COMPUTE): 4_000_000, (Phase.BACKWARD, Activity.COMPUTE): 16_000_000}
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFBBBBBBBB|FFBBBBBBBB
    host   |xxxxxxxxxx|xxxxxxxxxx
"""


def _given(types: dict[str, Fact], parts: dict[tuple[Phase, Activity], int] = _PARTS) -> Given:
    facts: dict[str, Fact] = {
        "parameters:0": {"types": types, "site": "/p/train.py:9:main"},
        "precision.double_by": "/p/train.py:7:main",
    }
    return Given(facts=facts, tables={"steady_parts": parts})


class Float64(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.SETTINGS})

    cases = (
        Fires(_PICTURE, 9.0, _given({"float64": 1000})),
        Silent(_PICTURE, "single precision", _given({"float32": 1000})),
        Silent(_PICTURE, "a few constants are kept in double precision", _given({"float32": 1000, "float64": 10})),
        Silent(
            _PICTURE,
            "the step is interpreted code",
            _given(
                {"float64": 1000},
                {(Phase.FORWARD, Activity.PYTHON): 19_900_000, (Phase.FORWARD, Activity.COMPUTE): 100_000},
            ),
        ),
    )

    planted = (
        Planted(
            before="""\
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(1024, 384, dtype=torch.float64), torch.randn(1024, 1, dtype=torch.float64)
net = nn.Sequential(nn.Linear(384, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1))
net = net.double()  # <- fault
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(60):
    rows = torch.randint(0, 1024, (256,))
    loss = nn.functional.mse_loss(net(x[rows]), y[rows])
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
            after="""\
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(1024, 384, dtype=torch.float64).float(), torch.randn(1024, 1, dtype=torch.float64).float()
net = nn.Sequential(nn.Linear(384, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(60):
    rows = torch.randint(0, 1024, (256,))
    loss = nn.functional.mse_loss(net(x[rows]), y[rows])
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        share, where = _share_of_doubles(run), _who_made(run, tables)
        if share < MOSTLY or where is None:
            return
        compute = {e: ns for e, ns in tables.steady_parts.items() if e[0] in IN_TORCH and e[1] is Activity.COMPUTE}
        compute_ns, steps = sum(compute.values()), tables.rank_steps
        work = compute_ns / max(1, tables.steady_ns)
        low, claimed, high = (part * share * compute_ns for part in SAVED)
        if claimed < LEAST_SHARE * tables.steady_ns:
            return
        yield Finding(
            self.id,
            f"{share:.0%} of the parameters are float64, and {work:.0%} of the step is tensor work.",
            where,
            Scope.STEADY,
            tuple(Stake(p, a, round(SAVED[1] * share * ns)) for (p, a), ns in compute.items()),
            Weight.ESTIMATED,
            Basis.SAMPLED,
            (
                Evidence("parameters in float64", share, "share", "rank 0: facts parameters"),
                Evidence("compute time", compute_ns / steps, "ns a step", "ledger"),
            ),
            Saving(int(low / steps), int(high / steps)),
            notes=("an estimate: float32 takes about half the time; keep float64 where the problem needs its digits",),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = "cast the data with .float() where it is made, keep the model in float32; losses differ in their digits"
        where = finding.where
        edits: tuple[Edit, ...] = ()
        if isinstance(where, Line) and _DEFAULT.match(where.code):
            edits = (RemoveCall(where.file, where.line, "torch.set_default_dtype"),)
        yield Remedy(f"{self.id}#float32", "train in float32", Safety.CHANGES_TRAINING, edits, (), why)


def _share_of_doubles(run: Run) -> float:
    doubles = total = 0
    for facts in run.ranks[0].facts.family("parameters").values():
        types = facts.known.get("types")
        for name, count in types.items() if isinstance(types, dict) else ():
            if isinstance(count, int):
                total += count
                doubles += count if name == "float64" else 0
    return doubles / total if total else 0.0


def _who_made(run: Run, tables: Tables) -> Line | None:
    """Return the line that made the model double: a call that was seen, one in the source, else the optimizer's."""
    facts = run.ranks[0].facts
    for name in ("precision.double_by", "precision.default_by"):
        if (site := facts.text(name)) and (line := tables.place(site)) is not None:
            return line
    sites = [known.text("site") or "" for known in facts.family("parameters").values()]
    made = [line for site in sites if site and (line := tables.place(site)) is not None]
    for file in dict.fromkeys(line.file for line in made):
        for number, text in enumerate(linecache.getlines(os.path.join(run.project, file)), 1):
            if _DOUBLE.search(text.split("#", 1)[0]):
                return Line(file, number, "", text.strip())
    return made[0] if made else None
