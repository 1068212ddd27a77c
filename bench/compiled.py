"""Trainings with a fault of compilation, by what breaks or changes, and healthy ones, compiled and eager.

Those of `causes/compiler` are planted as they are; the ones here are the same faults in other words. Most are compiled
without Inductor (``aot_eager``), which Dynamo's faults do not need, so `debug-backend` may be said of them as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ALSO = frozenset({"compiler/debug-backend", "compiler/long-cold-start"})

_HEAD = """\
import logging, os, random, tempfile
import numpy
{before}
import torch
from torch import nn

log = logging.getLogger("training")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        {init}

"""
_BREAKS = """\
    def forward(self, x):
        x = torch.tanh(self.layers[0](x))
        {line}  # <- fault
        x = torch.tanh(self.layers[1](x))
        {line}  # <- fault
        x = torch.tanh(self.layers[2](x))
        {line}  # <- fault
        return torch.tanh(self.layers[3](x))

"""
_CHANGES = """\
    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        {line}
        return x

"""
_LOOP = """\

torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
{optimizer}
{compile}
for step in range({steps}):
    {each}
    loss = net(torch.randn({rows}, 16)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""
_PLAIN = {
    "before": "",
    "init": "self.seen = 0",
    "line": "pass",
    "optimizer": "opt = torch.optim.SGD(net.parameters(), lr=1e-3)",
    "compile": 'net.compile(backend="aot_eager")',
    "each": "pass",
    "rows": "8",
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A training that compiles: its source, the planted cause ("" for none), and what else may be said of it."""

    cause: str
    source: str
    also: frozenset[str] = ALSO


def _broken(line: str) -> Compiled:
    """Return a training with *line* between its layers."""
    source = (_HEAD + _BREAKS + _LOOP).format(**{**_PLAIN, "line": line, "steps": 400})
    return Compiled("compiler/graph-breaks", source, ALSO | {"compiler/recompile-storm"})


def _changing(cause: str = "compiler/recompile-storm", steps: int = 40, **lines: str) -> Compiled:
    """Return a training with *lines* at their places; a mark is part of a line."""
    return Compiled(cause, (_HEAD + _CHANGES + _LOOP).format(**{**_PLAIN, **lines, "steps": steps}))


PLANTS: Mapping[str, Compiled] = {
    "print": _broken('print(end="")'),
    "logging": _broken('log.info("a layer is done")'),
    "numpy": _broken("self.high = float(x.detach().numpy().max())"),
    "tolist": _broken("self.means = x.detach().mean(1).tolist()"),
    "branch on a tensor": _broken("x = x * 0.5 if x.abs().mean() > 10 else x"),
    "call of the system": _broken("self.process = os.getpid()"),
    "system's random number": _broken("self.drawn = random.SystemRandom().random()"),
    "shape by data": _broken("self.positive = x.detach()[x > 0].sum()"),
    "break asked for": _broken("torch._dynamo.graph_break()"),
    "file written": _broken('open(os.devnull, "w").close()'),
    "step counter": _changing(init="self.seen = 0", line="self.seen += 1; x = x * (1 + self.seen % 3)  # <- fault"),
    "int attribute": _changing(
        init="self.kept = 1", each="net.kept = 1 + step % 16  # <- fault", line="x = x[:, : self.kept]  # <- fault"
    ),
    "str attribute": _changing(
        init='self.mode = ""',
        each='net.mode = f"part {step % 20}"  # <- fault',
        line='x = x if self.mode == "part 0" else -x  # <- fault',
    ),
    "list length": _changing(
        init="self.history = []",
        each="net.history.append(step)  # <- fault",
        line="x = x / (1 + len(self.history))  # <- fault",
    ),
    "dict keys": _changing(
        init="self.flags = {}",
        each='net.flags = {f"k{step % 20}": 1}  # <- fault',
        line="x = x * len(self.flags)  # <- fault",
    ),
    "shape": _changing(rows="4 + step % 20", compile='net.compile(backend="aot_eager", dynamic=False)  # <- fault'),
    "learning rate": _changing(
        optimizer="opt = torch.optim.SGD(net.parameters(), lr=1e-3)  # <- fault",
        compile='opt.step = torch.compile(opt.step, backend="aot_eager")',
        each='opt.param_groups[0]["lr"] = 1e-3 / (1 + step)  # <- fault',
    ),
    "compiled each epoch": _changing(
        "compiler/compile-in-loop",
        steps=120,
        compile="pass",
        each='if step % 10 == 0: torch._dynamo.reset(); net.compile(backend="aot_eager")  # <- fault',
    ),
    "eager backend": _changing(
        "compiler/debug-backend", 600, compile='net = torch.compile(net, backend="eager")  # <- fault'
    ),
    "switched off by a variable": _changing(
        "compiler/compiler-disabled",
        600,
        before='os.environ["TORCH_COMPILE_DISABLE"] = "1"  # <- fault',
        compile="net.compile()",
    ),
    "switched off by a stance": _changing(
        "compiler/compiler-disabled",
        600,
        compile='net.compile()\ntorch.compiler.set_stance("force_eager")  # <- fault',
    ),
    "copy thrown away": _changing("compiler/compiled-but-unused", 600, compile="fast = torch.compile(net)  # <- fault"),
}

# ---------------------------------------------------------------- healthy ones

_OWN = """\
def traced(graph, inputs):  # stands for a backend of one's own
    return graph.forward


"""
_CONTROL = """\
import torch
from torch import nn


{code}class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x.mean(1)


torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
{compile}
for step in range(600):
    loss = net(torch.randn({rows}, 64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    {after}
print(loss.item())
"""


def _control(compile: str = "pass", rows: str = "32", after: str = "pass", code: str = _OWN) -> str:
    return _CONTROL.format(compile=compile, rows=rows, after=after, code=code)


CONTROLS: Mapping[str, str] = {
    "compiled, inductor": _control("net.compile()"),
    "compiled, inductor, sizes marked dynamic": _control("net.compile(dynamic=True)", rows="16 + step % 20"),
    "compiled, one graph": _control("net.compile(backend=traced, fullgraph=True)"),
    "compiled layer by layer": _control("for layer in net.layers: layer.compile(backend=traced)"),
    "compiled, sizes change and the compiler copes": _control("net.compile(backend=traced)", rows="16 + step % 20"),
    "compiled, two sizes": _control("net.compile(backend=traced, dynamic=False)", rows="32 if step % 20 else 8"),
    "compiled, evaluated now and then": _control(
        "net.compile(backend=traced)",
        after="if step % 200 == 199:\n        with torch.no_grad():\n            net.eval(); net(torch.randn(8, 64)); net.train()",
    ),
    "compiled, printed outside": _control(
        "net.compile(backend=traced)", after='if step % 100 == 99: print(f"{step} {loss.item():.4f}")'
    ),
    "eager": _control(),
    "eager, sizes change": _control(rows="16 + step % 20"),
    "eager, printed now and then": _control(after='if step % 100 == 99: print(f"{step} {loss.item():.4f}")'),
    "eager, a rate that falls": _control(after='opt.param_groups[0]["lr"] = 1e-3 / (1 + step)'),
}
CONTROLS_ALSO = frozenset({"kernels/too-few-threads", "compiler/long-cold-start"})
