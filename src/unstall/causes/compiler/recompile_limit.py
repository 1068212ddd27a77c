"""The compiler gave a function up after too many programs, and what is new to it runs uncompiled from then on.

## What it is
Something that a compiled function was specialised on kept changing, until `torch._dynamo.config.recompile_limit` (8;
`cache_size_limit` before torch 2.6) was reached. The programs made so far are kept; calls that fit none of them are
left to the interpreter, for the rest of the run. Only a warning tells.

## Why it costs
Each such call checks the guards of all programs in vain and then runs as if nothing had been compiled. The
compilations before it were paid for nothing.

## How it is told
The compiler's warning is heard, with the function and the guard that failed last. Stack samples of the steady steps
tell how long that function then runs outside of compiled code. How much faster it would be compiled shows only in a
trial: 10 % of that time, and the same part of the backward pass, is claimed; the saving lies between none and half.
Where the backend fuses nothing (`eager`, `aot_eager`) nothing is claimed. Named is the line that asked for the
compilation.

## Sources
PyTorch documentation, "Dealing with Recompilations"; pytorch issue 128071.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.compiler._asked import fuses
from unstall.causes.compiler._changes import change_of, guard_of
from unstall.causes.compiler._uncompiled import LEFT_LOST, MOST_OF_PASS, stakes_in, uncompiled_ns
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Evidence, Finding, Line, Saving, Scope, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Fact, Facts, Place, Run, Sensor
from unstall.model.tables import HotLine, Tables

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFBBBBO|FFFFFBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""
_EAGER = HotLine(
    Line("train.py", 7, "Net.forward"), Phase.FORWARD, 10_000_000, ((Activity.COMPUTE, 10_000_000),), 50, 0,
    chain=(Line("train.py", 7, "Net.forward"),), paths=(((), 1.0),),
)  # fmt: skip


def _given(hot: HotLine = _EAGER, backend: str = "inductor", hit: bool = True) -> Given:
    asked: dict[str, Fact] = {
        "site": "train.py:20:main", "target": "train.py:5", "settings": {"backend": backend}
    }  # fmt: skip
    told: dict[str, Fact] = {
        "limit": "recompile_limit", "value": 8, "frame": "train.py:5:forward", "reason": "0/7: name == 'g'", "step": 0
    }  # fmt: skip
    facts: dict[str, Fact] = {"compile:0": asked, **({"compile_limit:0": told} if hit else {})}
    return Given(facts=facts, tables={"lines": (hot,), "compiles": ()})


_PLANTED = """\
import torch
from torch import nn

torch._dynamo.config.recompile_limit = 2
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)


def traced(graph, inputs):  # stands for a backend of one's own
    return graph.forward


def loss_of(x, task):
    out = net(x)
    if task == 0:
        return out.square().mean()
    return out.abs().mean()


fast = torch.compile(loss_of, backend=traced, dynamic=False){mark}
for step in range(600):
    loss = fast(torch.randn(128, 64), {task})
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


class RecompileLimit(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, 1.8, _given()),
        Silent(_PICTURE, "no limit was hit", _given(hit=False)),
        Silent(
            _PICTURE,
            "all calls find one of the programs made before",
            _given(replace(_EAGER, paths=((("torch._dynamo.eval_frame._fn",), 1.0),))),
        ),
        Silent(_PICTURE, "nothing was fused before either", _given(backend="aot_eager")),
    )

    planted = (
        Planted(
            before=_PLANTED.format(mark="  # <- fault", task="step"),
            after=_PLANTED.format(mark="", task="step % 2"),
            also=frozenset({"compiler/recompile-storm", "compiler/long-cold-start"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        facts = run.ranks[0].facts
        seen: set[str] = set()
        for told in facts.family("compile_limit").values():
            frame = told.text("frame") or ""
            where = _site(frame, facts, tables) or tables.place(frame)
            if where is not None and frame not in seen and fuses(facts):
                seen.add(frame)
                found = self._of(where, told, tables)
                if found is not None:
                    yield found

    def _of(self, where: Line, told: Facts, tables: Tables) -> Finding | Candidate | None:
        eager_ns = uncompiled_ns([told.text("frame") or ""], tables)
        claims = {phase: int(LEFT_LOST * ns) for phase, ns in eager_ns.items()}
        stakes = tuple(stake for phase, ns in claims.items() for stake in stakes_in(phase, ns, tables.steady_parts))
        spent_ns, steps = sum(stake.ns for stake in stakes), max(1, tables.steady_steps)
        if not spent_ns:
            return None
        limit, step = told.number("value") or 0, told.number("step") or 0
        name = (told.text("frame") or "").rpartition(":")[2]
        title = (
            f"After {limit:.0f} programs the compiler gave `{name}` up in step {step:.0f}; it runs uncompiled since."
        )
        reason = told.text("reason") or ""
        because = f"The guard that failed last: {guard_of(reason)} ({change_of(reason).value})."
        if spent_ns < LEAST_SHARE * tables.steady_ns:
            return Candidate(self.id, title, where, because)
        total_ns = sum(eager_ns.values())
        return Finding(
            self.id, title, where, Scope.STEADY, stakes, Weight.ESTIMATED, Basis.SAMPLED,
            (
                Evidence("limit", limit, "count", "rank 0: facts compile_limit"),
                Evidence("given up in step", step, "count", "rank 0: facts compile_limit"),
                Evidence("runs uncompiled since", total_ns // steps, "ns a step", "rank 0: stack samples"),
            ),
            Saving(0, max(spent_ns, int(MOST_OF_PASS * total_ns)) // steps),
            notes=(because, "an estimate: what compilation would give shows only in a trial"),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = (
            "pass what changes as a tensor, or keep it fixed; TORCH_LOGS=recompiles prints each guard that failed. If "
            "the programs are few and all needed, raise torch._dynamo.config.recompile_limit; else do not compile it"
        )
        yield Remedy(f"{self.id}#one-program", "let one program serve all calls", Safety.SAME_MATH, (), (), why)


def _site(frame: str, facts: Facts, tables: Tables) -> Line | None:
    """Return the line that asked for the function at *frame* to be compiled; where only one line asks, that one."""
    place = Place.parse(frame)
    asked = list(facts.family("compile").values())
    target = f"{place.file}:{place.line}" if place is not None else ""
    sites = {one.text("site") for one in asked if one.text("target") == target} or {one.text("site") for one in asked}
    site = sites.pop() if len(sites) == 1 else None
    return tables.place(site) if site else None
