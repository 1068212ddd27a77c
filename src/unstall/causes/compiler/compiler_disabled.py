"""Compilation was asked for, but the compiler is switched off or hides that it failed: all runs as it was.

## What it is
`TORCHDYNAMO_DISABLE=1` or `TORCH_COMPILE_DISABLE=1` in the environment, `torch._dynamo.config.disable`, the stance
`force_eager`: `torch.compile` then returns what it was given. Or `suppress_errors` is on and the compiler failed, for
want of a C++ compiler, for example: the function is left to the interpreter, with no more than a warning.

## Why it costs
The training runs as if nothing had been asked for, for as long as the variable stands in somebody's shell profile or
the job's template.

## How it is told
Calls of `torch.compile` are noted, with whether the compiler is switched off then; the compiler's stance is read in
the eighth step; its warning of an error that it suppresses is heard. Named is the variable, where the command was
started with it, else the line that sets it or, if none was found, the one that asks for compilation. Only where the
loop goes on for twenty steady steps.

How much faster the compiled model would be shows only in a trial: 10 % of the forward and backward passes is claimed,
of the functions that failed 10 % of the time that they run, where samples tell it. The saving lies between none and
half. Where the backend asked for fuses nothing (`eager`, `aot_eager`) nothing is said.

## Sources
PyTorch documentation, "torch.compile Troubleshooting", `torch.compiler.set_stance` and `torch._dynamo.config`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.compiler._asked import UNFUSED, backend_of
from unstall.causes.compiler._settings import ENVIRON, without
from unstall.causes.compiler._uncompiled import LEFT_LOST, MOST_OF_PASS, PASSES, held_ns, stakes_in, uncompiled_ns
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Environment, Evidence, Finding, Line, Saving, Scope, Weight, Where
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety, SetEnvironment
from unstall.model.run import Fact, Facts, Run, Sensor
from unstall.model.tables import HotLine, Tables

LEAST_STEPS = 20  # steady ones; before, a script may only be tried out
VARIABLES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
DISABLE = "torch._dynamo.config.disable"
SETTINGS = ("_dynamo.config.disable", "dynamo_config.disable")  # as a script sets it

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFBBBBO|FFFFFBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""
_EAGER = HotLine(
    Line("train.py", 7, "Net.forward"), Phase.FORWARD, 10_000_000, ((Activity.COMPUTE, 10_000_000),), 50, 0,
    chain=(Line("train.py", 7, "Net.forward"),), paths=(((), 1.0),),
)  # fmt: skip
_FAILURE: dict[str, Fact] = {
    "frame": "train.py:5:forward", "reason": "InvalidCxxCompiler: No working C++ compiler found.", "step": 0
}  # fmt: skip


def _given(
    off: bool = False, backend: str = "inductor", steps: int = 100, hot: HotLine = _EAGER, **facts: Fact
) -> Given:
    asked: dict[str, Fact] = {"site": "train.py:20:main", "settings": {"backend": backend}, "off": off}
    known = {name.replace("__", ":").replace("_dot_", "."): fact for name, fact in facts.items()}
    return Given({"compile:0": asked, **known}, {"compiles": (), "steady_steps": steps, "lines": (hot,)})


_PLANTED = """\
import torch
from torch import nn
{set}

def traced(graph, inputs):  # stands for a backend of one's own
    return graph.forward


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1))

    def forward(self, x):
        return self.layers(x)


torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.compile(Net(), backend={backend})
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(600):
    loss = net(torch.randn(64, 64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""
_FAILING = _PLANTED.replace(
    "\n\nclass Net",
    '\n\ndef failing(graph, inputs):\n    raise RuntimeError("no compiler was found")\n\n\nclass Net',
)
_ALSO = frozenset({"compiler/long-cold-start"})


class CompilerDisabled(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER})

    cases = (
        Fires(_PICTURE, 1.8, _given(off=True)),
        Fires(_PICTURE, 1.8, _given(compile_failed__0=_FAILURE)),
        Fires(_PICTURE, 1.8, _given(compiler_dot_stance="force_eager")),
        Silent(_PICTURE, "it is on", _given()),
        Silent(_PICTURE, "what was asked for fuses nothing either", _given(off=True, backend="eager")),
        Silent(_PICTURE, "the loop has hardly begun", _given(off=True, steps=5)),
        Silent(
            _PICTURE,
            "the function that failed takes no time",
            _given(compile_failed__0={**_FAILURE, "frame": "train.py:50:once"}),
        ),
        Silent(
            _PICTURE,
            "a stance that still runs compiled code",
            _given(compiler_dot_stance="eager_on_recompile"),
        ),
    )

    planted = (
        Planted(
            before=_PLANTED.format(set="torch._dynamo.config.disable = True  # <- fault\n", backend="traced"),
            after=_PLANTED.format(set="", backend="traced"),
            also=_ALSO,
        ),
        Planted(
            before=_FAILING.format(
                set="\ntorch._dynamo.config.suppress_errors = True  # <- fault\n", backend="failing"
            ),
            after=_FAILING.format(set="\ntorch._dynamo.config.suppress_errors = True\n", backend="traced"),
            also=_ALSO,
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        facts = run.ranks[0].facts
        asked = [one for one in facts.family("compile").values() if backend_of(one) not in UNFUSED]
        if not asked or tables.steady_steps < LEAST_STEPS:
            return
        off = [one for one in asked if one.flag("off")]
        if off and len(off) == len(asked):
            whole = {phase: held_ns(phase, tables.steady_parts) for phase in PASSES}
            yield from self._of(_off(off[0], run, tables), whole, tables)
        elif facts.text("compiler.stance") == "force_eager":
            whole = {phase: held_ns(phase, tables.steady_parts) for phase in PASSES}
            where = tables.set_at("set_stance") or tables.place(asked[0].text("site") or "")
            yield from self._of(_Off(where, 'its stance is "force_eager"'), whole, tables)
        failures = list(facts.family("compile_failed").values())
        if failures:
            frames = list(dict.fromkeys(one.text("frame") or "" for one in failures))
            where = tables.set_at("suppress_errors") or tables.place(asked[0].text("site") or "")
            name, reason = frames[0].rpartition(":")[2], failures[0].text("reason") or "no reason was told"
            hidden = f"it failed on `{name}`, and the error was suppressed"
            yield from self._of(_Off(where, hidden, f"The compiler: {reason}"), uncompiled_ns(frames, tables), tables)

    def _of(self, off: _Off, uncompiled: Mapping[Phase, int], tables: Tables) -> Iterator[Finding | Candidate]:
        claims = {phase: int(LEFT_LOST * ns) for phase, ns in uncompiled.items()}
        stakes = tuple(stake for phase, ns in claims.items() for stake in stakes_in(phase, ns, tables.steady_parts))
        spent_ns, steps, total_ns = sum(stake.ns for stake in stakes), tables.rank_steps, sum(uncompiled.values())
        if off.where is None or not spent_ns:
            return
        title = f"Compilation was asked for, but {off.why}: {tables.steady_steps} steady steps ran uncompiled."
        if spent_ns < LEAST_SHARE * tables.steady_ns:
            yield Candidate(self.id, title, off.where, off.because)
            return
        yield Finding(
            self.id, title, off.where, Scope.STEADY, stakes, Weight.ESTIMATED, Basis.SAMPLED,
            (
                Evidence("runs uncompiled", total_ns // steps, "ns a step", "ledger and stack samples"),
                Evidence("compile windows", len(tables.compiles), "count", "rank 0: events COMPILE"),
            ),
            Saving(0, max(spent_ns, int(MOST_OF_PASS * total_ns)) // steps),
            notes=(off.because, "an estimate: what compilation would give shows only in a trial"),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        if isinstance(finding.where, Environment):
            edit = SetEnvironment(finding.where.variable, "0")
            why = "compiled code rounds differently; the first start compiles for a while"
            yield Remedy(f"{self.id}#on", f"start without {edit.variable}", Safety.SAME_MATH, (edit,), (), why)
        else:
            why = (
                "take out what switches the compiler off; where it failed, set suppress_errors to False to see the "
                "whole error, and mend that (a C++ compiler for CPU kernels, Triton for a GPU)"
            )
            edits = without(finding.where, *(ENVIRON + name for name in VARIABLES), DISABLE)
            if edits:
                why = "compiled code rounds differently; the first start compiles for a while"
            yield Remedy(f"{self.id}#on", "let the compiler work", Safety.SAME_MATH, edits, (), why)


@dataclass(frozen=True, slots=True)
class _Off:
    """What keeps the compiler from its work: in words that follow "but", and why nobody sees it."""

    where: Where | None
    why: str
    because: str = "torch.compile returns what it was given, and says nothing."


def _off(asked: Facts, run: Run, tables: Tables) -> _Off:
    for variable in VARIABLES:
        if run.facts.text(f"env.{variable}") not in (None, "", "0"):
            return _Off(Environment(variable), f"{variable} switches the compiler off")
    found = next((line for name in (*VARIABLES, *SETTINGS) if (line := tables.set_at(name))), None)
    return _Off(found or tables.place(asked.text("site") or ""), "the compiler is switched off")
