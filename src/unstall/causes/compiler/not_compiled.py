"""Nothing is compiled, and much of the step goes to chains of operations that the compiler would make one kernel of.

## What it is
A model is written with operations of its own between the library's layers: gates, activations, norms, losses, each some
arithmetic on whole tensors. They run one by one.

## Why it costs
Each operation reads its tensors from memory and writes a new one; the backward pass does the same once more for each.
`torch.compile` writes one kernel for the chain, which goes through memory once.

## How it is told
It is a candidate, never a finding: what compiling gives shows only in a trial, which `unstall fix` makes where the recording
tells which line makes the model. It is looked at only where nothing was
compiled or asked to be, on a CPU, and a C++ compiler is there, which Inductor needs.

Stack samples tell the lines of the forward pass. Half of the computing time on lines of the user's own that do arithmetic
is taken for saved (0.3 to 0.85), and a tenth where they compute exponentials, sigmoids and the like, which take most of
their time in a fused kernel too (none to a half); as much of the library's activations, norms and softmaxes, each of which
is one kernel already. Matrix products, convolutions and whatever has no fused form count for nothing. The backward pass is
taken to be alike. It is said if that makes a tenth of the step, which trials can tell from noise, and if the loop went on
for long enough to pay back five seconds of compiling, or was ended by us.

## Sources
PyTorch documentation, "torch.compile". Measured on 2 cores, torch 2.13, CPU time of a step in turns, uncompiled against
compiled: chains of leaky ReLUs, 512 x 256: 13.5 and 1.5 ms; 8192 x 1024: 750 and 181 ms; chains of sigmoid gates of the same
sizes: 4.3 and 4.7 ms, 510 and 248 ms; LayerNorm, linear layer and GELU, 512 x 256: 12.8 and 13.8 ms. The first compilation
took 2 to 7 s of CPU time, and 20 to 30 s in all where no cache served and the machine was busy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from unstall.causes._cause import Cause
from unstall.causes._models import compiling
from unstall.causes.compiler._uncompiled import PASSES
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Line
from unstall.model.ledger import Activity, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import HotLine, Tables

CHAINED = (0.3, 0.5, 0.85)  # of the time of plain arithmetic that fusing saves: least, likely, most
COSTLY = (0.0, 0.1, 0.5)  # of exponentials and the like, and of kernels that the library has fused already
LEAST_GAIN = 0.1  # of the step; below it a trial of usual length does not tell it from noise
COMPILE_NS = 5_000_000_000  # of the first compilation; 2 to 7 s of CPU time were measured, for small models
LEAST_SAMPLES = 20  # on such lines

# what does no arithmetic element by element, whatever else the line does
_NEEDED = re.compile(
    r"@|matmul|linear|conv|einsum|\b(?:bad)?d?b?mm\(|addmm|attention|fft|sort|topk|unique|nonzero|cumsum|cumprod|scatter|"
    r"index_|gather|embedding|solve|inv\(|cholesky|svd|qr\(|eig|lstm|gru|rnn|numpy|\bnp\.|\.cpu\(|\.item\(|multinomial|self\.\w+\("
)
_ARITHMETIC = re.compile(
    r"[\w)\]] [-+*/] |torch\.(where|clamp|maximum|minimum|abs|mul|add|sub|div|lerp|addcmul)|\.(square|clamp|abs|mul|add|sub|div)\("
)
_EXPENSIVE = re.compile(r"tan|exp|erf|log|sigmoid|sin|cos|pow|sqrt|elu\(|softmax|silu|mish|softplus|\*\*|gamma|bessel")
_LIBRARYS = re.compile(r"activation\.|gelu|silu|relu|sigmoid|tanh|softplus|softmax|norm|dropout|mish", re.IGNORECASE)

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFBBBBO|FFFFFBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""
_CHAIN = Line("train.py", 12, "Net.forward", "x = torch.where(x > 0, gain * x, 0.1 * x)")
_HOT = HotLine(_CHAIN, Phase.FORWARD, 9_000_000, ((Activity.COMPUTE, 9_000_000),), 200, 0, paths=(((), 1.0),))
_REST = HotLine(
    Line("train.py", 20, "Net.forward", "return self.head(x)"), Phase.FORWARD, 1_000_000,
    ((Activity.COMPUTE, 1_000_000),), 20, 0, paths=((("torch.nn.modules.linear.Linear.forward",), 1.0),),
)  # fmt: skip


def _given(code: str = _CHAIN.code, steps: int = 3000, *, cpp: bool = True, stopped: str = "", **facts: Fact) -> Given:
    hot = replace(_HOT, line=replace(_CHAIN, code=code))
    known: dict[str, Fact] = {"compiler.cpp": cpp, "stopped": stopped}
    known |= {name.replace("__", ":"): fact for name, fact in facts.items()}
    return Given(known, {"lines": (hot, _REST), "compiles": (), "device": None, "steady_steps": steps})


_PLANTED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain, self.head = nn.Parameter(torch.ones(6, 256)), nn.Linear(256, 1)

    def forward(self, x):
        for gain in self.gain:
            x = torch.where(x > 0, gain * x, 0.1 * x) + 0.01 * x.square(){mark}
        return self.head(x)


torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
{compile}opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range({steps}):
    loss = net(torch.randn(512, 256)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


class NotCompiled(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, 0, _given()),
        Fires(_PICTURE, 0, _given(steps=300, stopped="20 steady steps")),
        Silent(_PICTURE, "compilation was asked for", _given(compile__0={"site": "train.py:41:main"})),
        Silent(_PICTURE, "there is no C++ compiler", _given(cpp=False)),
        Silent(_PICTURE, "the loop is too short to pay for compiling", _given(steps=300)),
        Silent(_PICTURE, "a matrix product", _given("x = x @ (gain * w)")),
        Silent(_PICTURE, "sigmoids take as long fused", _given("x = x + gain * torch.sigmoid(gain * x)")),
        Silent(_PICTURE, "no arithmetic", _given("x = x.view(8, -1)")),
    )

    planted = (
        Planted(
            before=_PLANTED.format(mark="  # <- fault", compile="", steps=1300),
            after=_PLANTED.format(mark="", compile="net.compile()\n", steps=1300),
            also=frozenset({"compiler/cold-cache", "kernels/too-few-threads"}),
            candidate=True,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Candidate]:
        facts = run.ranks[0].facts
        asked = tables.compiles or facts.family("compile")
        if asked or facts.flag("compiler.cpp") is not True or tables.device is not None:
            return
        spent = _spent(tables)
        forward_ns = sum(hot.spent_ns for hot in tables.lines if hot.phase is Phase.FORWARD)
        if spent is None or spent.samples < LEAST_SAMPLES or not forward_ns:
            return
        computed_ns = sum(tables.steady_parts.get((phase, Activity.COMPUTE), 0) for phase in PASSES)
        compute_ns = sum(hot.part_ns(Activity.COMPUTE) for hot in tables.lines if hot.phase is Phase.FORWARD)
        least, likely, most = (
            computed_ns * (chained * spent.chained_ns + costly * spent.costly_ns) / max(1, compute_ns)
            for chained, costly in zip(CHAINED, COSTLY, strict=True)
        )
        steps = COMPILE_NS * tables.rank_steps / max(1.0, likely)
        is_ended = bool(run.facts.text("stopped"))
        if likely < LEAST_GAIN * tables.steady_ns or (tables.steady_steps < steps and not is_ended):
            return
        step_ns = tables.steady_ns / tables.rank_steps
        low, high = (ns / tables.rank_steps / 1e6 for ns in (least, most))
        remedies = tuple(self._tried(run, tables))
        how = (
            "`unstall fix` tries it"
            if remedies
            else "Put `model.compile()` behind the line that makes the model, and measure"
        )
        yield Candidate(
            self.id,
            f"Nothing is compiled: fusing such lines may save {low:.2g} to {high:.2g} ms of a step of {step_ns / 1e6:.3g} ms.",
            spent.hottest,
            f"{how}; five seconds of compiling are paid back after about {steps:.2g} steps.",
            remedies,
        )

    def _tried(self, run: Run, tables: Tables) -> Iterator[Remedy]:
        """Yield the compilation of the model, where it is known which line makes it: `unstall fix` tries it."""
        edits = compiling(run, tables)
        if edits:
            why = "fused kernels add in another order, so losses differ by rounding"
            yield Remedy(f"{self.id}#compile", "compile the model", Safety.SAME_MATH, edits, (), why)


@dataclass(frozen=True, slots=True)
class _Spent:
    """What the forward pass computes on lines that would be fused: in chains of arithmetic, and in costly operations."""

    hottest: Line
    chained_ns: float
    costly_ns: float
    samples: int


def _spent(tables: Tables) -> _Spent | None:
    chained = costly = 0.0
    hottest: list[tuple[float, HotLine]] = []
    for hot in tables.lines:
        if hot.phase is not Phase.FORWARD:
            continue
        own = sum(share for names, share in hot.paths if not names) * hot.part_ns(Activity.COMPUTE)
        librarys = sum(share for names, share in hot.paths if names and _LIBRARYS.search(names[-1]))
        costly += librarys * hot.part_ns(Activity.COMPUTE)
        code = hot.line.code
        if _NEEDED.search(code) or not (_ARITHMETIC.search(code) or _EXPENSIVE.search(code)):
            continue
        if _EXPENSIVE.search(code):
            costly += own
        else:
            chained += own
        hottest.append((own, hot))
    if not hottest:
        return None
    first = max(hottest, key=lambda pair: pair[0])[1]
    return _Spent(first.line, chained, costly, sum(hot.samples for _, hot in hottest))
