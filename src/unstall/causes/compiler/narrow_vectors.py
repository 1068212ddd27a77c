"""Kernels on the CPU work with narrower vectors than the processor has.

## What it is
`torch._inductor.config.cpp.simdlen` is the width, in bits, of the vectors in the code that Inductor writes. A number that
is no width of the processor, as 1 or 8, stands for none: one element at a time. `ATEN_CPU_CAPABILITY=default` does the
same to torch's own kernels and to Inductor's. Both are left from a search for an error, or from a job that had to give
the same bits on several kinds of machine.

## Why it costs
A vector of 512 bits holds sixteen numbers. Code that takes them one by one does up to that many times the work, and
Inductor tells the C++ compiler not to find vectors by itself.

## How it is told
Inductor tells the setting with each graph, and stack samples lie on its kernels; torch tells the vectors that it chose,
and the processor those it has. Of scalar kernels 0.4 of their time is claimed (0.3 to 0.8): from what they take more where
memory is the bound, to where arithmetic is. Of torch's own kernels it is 0.5 (0.3 to 0.85) of what the optimizer computes
and of that part of both passes that samples show on other work than matrix products, convolutions and what else chooses
its vectors by itself. What takes less than 2 % of the step is not said. A width of 256 bits on a processor with 512 is a
candidate: it cost from nothing to a quarter. AVX2 instead of AVX512 in torch's own kernels cost nothing that could be
measured, and is not said.

## Sources
PyTorch source, `torch/_inductor/cpu_vec_isa.py` (`pick_vec_isa`), and documentation, "Inductor CPU backend debugging and
profiling". Measured on 2 cores with AVX512, torch 2.13, CPU time of a step in turns: simdlen=1 against the usual one, 512
x 256: 19.5 and 4.8 ms for gates, 6.5 and 1.5 ms for leaky ReLUs, 29 and 14 ms for LayerNorm, linear layer and GELU; 8192
x 1024, where memory is the bound: 608 and 248 ms, 310 and 181 ms. ATEN_CPU_CAPABILITY=default against AVX512, uncompiled:
9.2 and 4.3 ms for gates, 16.6 and 13.7 ms, 15.1 and 12.8 ms for the same; 31 and 23 ms for a convolutional net, 15.5 and
11.5 ms for a perceptron of width 512, 90 and 70 ms at width 1024, 30 and 25 ms for a transformer. Of single operations and
their backward passes, CPU time of one thread: sums, products, ReLU, sigmoid, softmax, LayerNorm, losses and optimizers lost
0.5 to 0.9 of it; matrix products, convolutions, pooling, dropout, tanh, GELU and exponentials up to 0.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import set_in_script
from unstall.causes.compiler._settings import ENVIRON, INDUCTOR, without
from unstall.causes.compiler._uncompiled import stakes_in
from unstall.causes.compiler._vectored import vectored_ns
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Environment, Evidence, Finding, Line, Saving, Scope, Weight, Where
from unstall.model.fusion import Fusion, Setting
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety, SetEnvironment
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import HotLine, Tables

SCALAR = (0.3, 0.4, 0.8)  # of the time of generated kernels without vectors: least, claimed, most
TORCHS = (0.3, 0.5, 0.85)  # of the time of torch's own arithmetic without them
HALF = 0.2  # of the time of generated kernels, at most, where vectors are half as wide
LEAST_SAMPLES = 10  # on generated kernels
WIDTHS = {"avx2": 256, "avx512f": 512, "asimd": 128, "sve": 256}  # bits, as Inductor knows them
VARIABLE, SETTING = "ATEN_CPU_CAPABILITY", "cpp.simdlen"

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFBBBBO|FFFFFBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""
_LINE = Line("train.py", 4, "", "torch._inductor.config.cpp.simdlen = 1")
_GATE = Line("train.py", 12, "Net.forward", "x = x + gain * torch.sigmoid(gain * x)")
_PRODUCT = Line("train.py", 13, "Net.forward", "x = x @ self.weight")
_MS = 1_000_000
_PARTS = {(Phase.FORWARD, Activity.COMPUTE): 10 * _MS, (Phase.BACKWARD, Activity.COMPUTE): 10 * _MS}
_ISA: list[Fact] = ["avx", "avx2", "fma", "avx512f"]


def _given(
    width: str = "", kernel_ms: int = 5, isa: list[Fact] | None = _ISA, capability: str = "AVX512", variable: str = "",
    lines: tuple[HotLine, ...] = (), parts: dict[tuple[Phase, Activity], int] = _PARTS,
) -> Given:  # fmt: skip
    settings = (Setting(SETTING, width, _LINE),) if width else ()
    spent = ((Phase.FORWARD, kernel_ms * 1_000_000),)
    made = Fusion(2, 4, 0, 0, 0, kernel_spent=spent, samples=50, settings=settings)
    tables = {"fusion": made, "device": None, "lines": lines, "steady_parts": parts}
    facts: dict[str, Fact] = {"machine.isa": isa, "vectors.capability": capability}
    return Given(facts | ({f"env.{VARIABLE}": variable} if variable else {}), tables)


def _hot(line: Line, path: tuple[str, ...] = (), ms: int = 10) -> HotLine:
    parts = ((Activity.COMPUTE, ms * _MS),)
    return HotLine(line, Phase.FORWARD, ms * _MS, parts, 20 * ms, 0, paths=((path, 1.0),))


_SCALAR = _given(capability="DEFAULT", variable="default", lines=(_hot(_GATE),))
_COMPILED = """\
import torch
import torch._inductor.config
from torch import nn

{set}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(6, 256))

    def forward(self, x):
        for gain in self.gain:
            x = x + gain * torch.sigmoid(gain * x)
        return x


torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
net.compile()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(200):
    loss = net(torch.randn(512, 256)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""
_EAGER = """\
import os
{set}
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain, self.head = nn.Parameter(torch.ones(6, 256)), nn.Linear(256, 1)

    def forward(self, x):
        for gain in self.gain:
            x = x + gain * torch.sigmoid(gain * x)
        return self.head(x) / 256


torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(400):
    loss = net(torch.randn(512, 256)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""
_ALSO = frozenset({"compiler/cold-cache", "kernels/too-few-threads"})


class NarrowVectors(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.SETTINGS, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, 2.0, _given("1")),
        Fires(_PICTURE, 2.0, _given("8")),
        Fires(_PICTURE, 10, _SCALAR),
        Fires(_PICTURE, 5, _given(capability="DEFAULT", variable="default", lines=(_hot(_GATE), _hot(_PRODUCT)))),
        Fires(_PICTURE, 2.5, _given(capability="DEFAULT", variable="default")),
        Silent(
            _PICTURE,
            "matrix products choose their vectors by themselves",
            _given(
                capability="DEFAULT",
                variable="default",
                lines=(_hot(_PRODUCT), _hot(_GATE, ("torch.nn.modules.linear.Linear.forward",))),
            ),
        ),
        Silent(_PICTURE, "as it comes", _given()),
        Silent(_PICTURE, "the width that the processor has", _given("512")),
        Silent(_PICTURE, "the kernels take next to nothing", _given("1", kernel_ms=0)),
        Silent(_PICTURE, "the processor's vectors are not known", _given("1", isa=None)),
        Silent(_PICTURE, "the processor has no vectors", _given(capability="DEFAULT", variable="default", isa=["avx"])),
        Silent(
            _PICTURE,
            "another processor: so it comes there",
            _given(capability="DEFAULT", variable="default", isa=["asimd"]),
        ),
        Silent(_PICTURE, "AVX2 costs nothing in torch's own kernels", _given(capability="AVX2", variable="avx2")),
    )

    planted = (
        Planted(
            before=_COMPILED.format(set="torch._inductor.config.cpp.simdlen = 1  # <- fault\n"),
            after=_COMPILED.format(set=""),
            also=_ALSO,
        ),
        Planted(
            before=_EAGER.format(set=f'os.environ["{VARIABLE}"] = "default"  # <- fault\n'),
            after=_EAGER.format(set=""),
            also=_ALSO,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        widths, made = _widths(run), tables.fusion
        if not widths or tables.device is not None:
            return
        # on other processors than x86 torch's own kernels always say so
        if run.ranks[0].facts.text("vectors.capability") == "DEFAULT" and max(widths) > WIDTHS["asimd"]:
            yield from self._torchs(max(widths), run, tables)
            return  # Inductor then takes no vectors either, whatever is set
        setting = next((one for one in made.settings if one.name == SETTING), None) if made is not None else None
        if made is None or setting is None or setting.line is None or made.samples < LEAST_SAMPLES:
            return
        width = int(setting.value) if setting.value.isdigit() else None
        if width not in widths:
            yield from self._scalar(setting.line, setting.value, max(widths), made, tables)
        elif width < max(widths) and HALF * made.kernel_ns >= LEAST_SHARE * tables.steady_ns:
            title = f"Inductor's kernels use vectors of {width} bits; the processor has {max(widths)}."
            yield Candidate(self.id, title, setting.line, "It cost from nothing to a quarter; only a trial shows it.")

    def _scalar(self, where: Line, value: str, most: int, made: Fusion, tables: Tables) -> Iterator[Finding]:
        evidence = Evidence(
            "in generated kernels",
            made.kernel_ns / tables.rank_steps,
            "ns a step",
            "stack samples on the generated code",
        )
        title = (
            f"Inductor's kernels take one number at a time (simdlen={value}); the processor has vectors of {most} bits."
        )
        yield from self._of(where, title, dict(made.kernel_spent), SCALAR, evidence, tables)

    def _torchs(self, most: int, run: Run, tables: Tables) -> Iterator[Finding]:
        where = _who_set(run, tables)
        if where is None:
            return
        spent = vectored_ns(tables)
        evidence = Evidence(
            "arithmetic that torch does in vectors", sum(spent.values()) / tables.rank_steps, "ns a step",
            "ledger and stack samples",
        )  # fmt: skip
        title = f"Torch's kernels use no vectors ({VARIABLE}); the processor has some of {most} bits."
        yield from self._of(where, title, spent, TORCHS, evidence, tables)

    def _of(
        self,
        where: Where,
        title: str,
        spent: Mapping[Phase, int],
        parts: tuple[float, float, float],
        evidence: Evidence,
        tables: Tables,
    ) -> Iterator[Finding]:
        least, claimed, most = parts
        # the interpreter's lock is held in a generated kernel, and not in torch's: all that a pass runs is looked at
        stakes = tuple(
            stake for phase, ns in spent.items() for stake in stakes_in(phase, round(claimed * ns), tables.steady_parts)
        )
        if sum(stake.ns for stake in stakes) < LEAST_SHARE * tables.steady_ns:
            return
        step_ns = sum(spent.values()) / tables.rank_steps
        yield Finding(
            self.id, title, where, Scope.STEADY, stakes, Weight.ESTIMATED, Basis.SAMPLED, (evidence,),
            Saving(int(least * step_ns), int(most * step_ns)),
            notes=("an estimate: what vectors would give shows only in a trial",),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = "wider vectors add in another order, so losses differ by rounding"
        if isinstance(finding.where, Environment):
            best = "avx512" if max(_widths(run)) == WIDTHS["avx512f"] else "avx2"
            edit = SetEnvironment(VARIABLE, best)
            why += "; Inductor's cache does not know the variable: empty it, or kernels stay as they were compiled"
            yield Remedy(
                f"{self.id}#vectors", f"start with {VARIABLE}={best}, or without it", Safety.SAME_MATH, (edit,), (), why
            )
        else:
            why = f"take the setting out: torch then uses the widest vectors that the processor has; {why}"
            edits = without(finding.where, INDUCTOR + SETTING, ENVIRON + VARIABLE)
            yield Remedy(f"{self.id}#vectors", "use the processor's vectors", Safety.SAME_MATH, edits, (), why)


def _widths(run: Run) -> set[int]:
    """Return the widths of vectors, in bits, that the processor has and torch knows."""
    isa = run.facts.known.get("machine.isa")
    return (
        {WIDTHS[name] for name in isa if isinstance(name, str) and name in WIDTHS} if isinstance(isa, list) else set()
    )


def _who_set(run: Run, tables: Tables) -> Where | None:
    """Return the variable, where the command was started with it, else the script's line that sets it."""
    if run.facts.text(f"env.{VARIABLE}") is not None:
        return Environment(VARIABLE)
    return set_in_script(VARIABLE, run, tables)
