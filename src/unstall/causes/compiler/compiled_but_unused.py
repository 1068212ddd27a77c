"""Compilation was asked for, but nothing was compiled: the loop runs what was there before.

## What it is
`torch.compile(model)` returns a new, compiled object and leaves the model as it is. Here its result was thrown away,
or was given another name than the one that the loop calls. `compile()` of a module works in place, but is passed over
where the module's `forward` is torch's own code: `nn.Sequential(...).compile()` compiles nothing (torch 2.13).

## Why it costs
The training runs as if nothing had been asked for. No message tells.

## How it is told
Calls of `torch.compile` and `Module.compile` are noted, and so is every compile window. Named is a call for a model,
or for a function that samples see in the forward pass, for which no window ever opened, when no window opened in the
run at all. Only where the loop goes on: a run that was ended early may have had its use still to come; and not where
the environment switches the compiler off.

How much faster the compiled model would be shows only in a trial: 10 % of the forward and backward passes is claimed,
the saving lies between none and half.

## Sources
PyTorch documentation, "torch.compile": the optimized model is what is returned; `nn.Module.compile` works in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import is_library
from unstall.causes._models import compiling
from unstall.causes.compiler._asked import UNFUSED, backend_of
from unstall.causes.compiler._uncompiled import LEFT_LOST, MOST_OF_PASS, PASSES, held_ns, stakes_in
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Evidence, Finding, Line, Saving, Scope, Weight, Where
from unstall.model.ledger import Basis, Ledger
from unstall.model.remedy import CallFirst, Edit, Remedy, Safety, Scalar, WrapCall
from unstall.model.run import Fact, Facts, Run, Sensor
from unstall.model.tables import Compile, HotLine, Tables

LEAST_STEPS = 20  # steady ones; before, the compiled object may be still to be called

_STATEMENT = re.compile(r"^(?:\w+\.)*compile\([^()]*\)\s*(?:#.*)?$")
# settings that are told by their words, and what the words stand for
_PLAIN: dict[str, dict[str, Scalar]] = {
    "mode": {"None": None},
    "dynamic": {"None": None, "True": True, "False": False},
    "fullgraph": {"True": True, "False": False},
}
_THROWN_AWAY = "What torch.compile returned is not what the loop calls."
_IN_PLACE = "The compiler passes over a forward that is torch's own code, as that of nn.Sequential."

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFBBBBO|FFFFFBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""


def _given(
    steps: int = 100, backend: str = "inductor", windows: tuple[Compile, ...] = (), off: bool = False, stance: str = ""
) -> Given:
    asked: dict[str, Fact] = {
        "site": "train.py:20:main", "target": "train.py:5", "name": "forward", "settings": {"backend": backend},
        "model": True, "step": 0, "off": off,
    }  # fmt: skip
    return Given(
        {"compile:0": asked, "compiler.stance": stance}, {"compiles": windows, "steady_steps": steps, "lines": ()}
    )


_PLANTED = """\
import torch
from torch import nn


def traced(graph, inputs):  # stands for a backend of one's own
    return graph.forward


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 256), nn.Linear(256, 1)

    def forward(self, x):
        return self.last(nn.functional.gelu(self.first(x)))


torch.manual_seed(0)
torch.set_num_threads(1)
model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
{compile}
for step in range(600):
    loss = model(torch.randn(64, 64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


class CompiledButUnused(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER})

    cases = (
        Fires(_PICTURE, 1.8, _given()),
        Silent(_PICTURE, "it was compiled", _given(windows=(Compile(0, 1, 0, "0/0", None, None),))),
        Silent(_PICTURE, "the loop has hardly begun", _given(steps=5)),
        Silent(_PICTURE, "asked for something without effect on speed", _given(backend="eager")),
        Silent(_PICTURE, "the compiler is switched off", _given(off=True)),
        Silent(_PICTURE, "it is called, but its stance is not to compile", _given(stance="force_eager")),
    )

    planted = (
        Planted(
            before=_PLANTED.format(compile="torch.compile(model, backend=traced)  # <- fault"),
            after=_PLANTED.format(compile="model.compile(backend=traced)"),
            also=frozenset({"compiler/long-cold-start"}),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        facts = run.ranks[0].facts
        if tables.compiles or tables.steady_steps < LEAST_STEPS or facts.text("compiler.stance") == "force_eager":
            return
        asked = [
            one for one in facts.family("compile").values() if backend_of(one) not in UNFUSED and not one.flag("off")
        ]
        told: set[str] = set()
        for one in asked:
            site = one.text("site") or ""
            where = tables.place(site)
            if where is None or site in told or not (one.flag("model") or _runs(one, tables.lines)):
                continue
            told.add(site)
            title = f"Compilation was asked for here, and nothing was compiled in {tables.steady_steps} steady steps."
            because = _IN_PLACE if _in_place(where) else _THROWN_AWAY
            claims = {phase: int(LEFT_LOST * held_ns(phase, tables.steady_parts)) for phase in PASSES}
            stakes = tuple(stake for phase, ns in claims.items() for stake in stakes_in(phase, ns, tables.steady_parts))
            spent_ns, steps = sum(stake.ns for stake in stakes), tables.steady_steps
            if len(asked) > 1 or run.facts.text("stopped") or spent_ns < LEAST_SHARE * tables.steady_ns:
                yield Candidate(self.id, title, where, because)
                continue
            passes_ns = sum(held_ns(phase, tables.steady_parts) for phase in PASSES)
            yield Finding(
                self.id, title, where, Scope.STEADY, stakes, Weight.ESTIMATED, Basis.SAMPLED,
                (
                    Evidence("compilations asked for", len(asked), "count", "rank 0: facts compile"),
                    Evidence("compile windows", 0, "count", "rank 0: events COMPILE"),
                    Evidence("both passes", passes_ns // steps, "ns a step", "ledger"),
                ),
                Saving(0, max(spent_ns, int(MOST_OF_PASS * passes_ns)) // steps),
                notes=(because, "an estimate: what compilation would give shows only in a trial"),
            )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        in_place = isinstance(finding.where, Line) and _in_place(finding.where)
        why = "write model = torch.compile(model), and train with that"
        why += "" if in_place else "; model.compile() works in place for a class of your own"
        edits: tuple[Edit, ...] = ()
        if isinstance(finding.where, Line) and not in_place and _is_own(finding.where, run, tables):
            edits = (CallFirst(finding.where.file, finding.where.line, "torch.compile", "compile"),)
            why = "the module is compiled in place, since nobody takes what torch.compile returns"
        elif edits := _compiling(finding.where, run, tables):
            why = "the model is compiled where it is made; this line compiles nothing and may go"
            if isinstance(edits[0], WrapCall):
                why += ". Checkpoints then name parameters with _orig_mod. before"
        yield Remedy(f"{self.id}#use", "call what was compiled", Safety.SAME_MATH, edits, (), why)


def _compiling(where: Where, run: Run, tables: Tables) -> tuple[Edit, ...]:
    """Return the edit that compiles the model where it is made, with the settings asked for; () where they are not plain."""
    asked = [one for one in run.ranks[0].facts.family("compile").values() if one.flag("model")]
    if len(asked) != 1 or tables.place(asked[0].text("site") or "") != where:
        return ()
    settings = asked[0].known.get("settings")
    given = dict(settings) if isinstance(settings, dict) else {}
    if not given.keys() <= _PLAIN.keys() or any(not isinstance(value, str) for value in given.values()):
        return ()
    return compiling(run, tables, [(name, _PLAIN[name].get(str(value), str(value))) for name, value in given.items()])


def _is_own(where: Line, run: Run, tables: Tables) -> bool:
    """Return whether the line is a statement that compiles a module of the project's own class: others stay uncompiled."""
    asked = [one for one in run.ranks[0].facts.family("compile").values() if one.flag("model")]
    at = [one for one in asked if tables.place(one.text("site") or "") == where]
    made = [tables.place(f"{one.text('target')}:forward") for one in at]
    own = bool(made) and all(line is not None and not is_library(line.file) for line in made)
    return own and bool(_STATEMENT.match(where.code))


def _in_place(where: Line) -> bool:
    return ".compile(" in where.code and "torch.compile(" not in where.code


def _runs(asked: Facts, lines: tuple[HotLine, ...]) -> bool:
    """Return whether samples saw the function that *asked* was to compile."""
    name = asked.text("name")
    file = (asked.text("target") or "").rpartition(":")[0]
    return bool(name) and any(
        caller.function.rpartition(".")[2] == name and file.endswith(caller.file)
        for hot in lines
        for caller in hot.chain
    )
