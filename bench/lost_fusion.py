"""Plant twelve losses of fusion: does what is claimed rank with what is lost, and do the harmless ones stay silent?

usage: python bench/lost_fusion.py [--only NAME ...]

Each plant is trained with the loss, under the recorder, and without it, alone; what is lost is the difference in CPU
time of the training thread a step, medians, so that a busy machine does not decide. One thread, 24 trainings; most of
their time is the first compilation, half a minute each where the compiler's cache does not have it yet.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from unstall.model.report import Report
from unstall.testing.contract import train

CAUSE = "compiler/lost-fusion"
HARMLESS_MS = 0.5  # a step; a loss below it is noise

_SCRIPT = """\
import os, sys, time
import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)
torch.manual_seed(0)
width = torch.randn(256)
square = torch.randn(256, 256) / 16
angles = torch.arange(128.0) / 7


def hidden(forward, backward):
    def forward_of(x: torch.Tensor) -> torch.Tensor:
        return forward(x)

    def backward_of(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return backward(grad, x)

    made = torch.library.custom_op("script::bend", forward_of, mutates_args=())
    back = torch.library.custom_op("script::bend_back", backward_of, mutates_args=())
    made.register_fake(torch.empty_like)
    back.register_fake(lambda grad, x: torch.empty_like(x))
    made.register_autograd(
        lambda ctx, grad: back(grad, *ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    return made


{code}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.rand({blocks}, 256)), nn.Parameter(torch.zeros({blocks}, 256))

    def forward(self, x):
        for k in range({blocks}):
            h = functional.layer_norm(x, (256,), self.gain[k], self.shift[k])
            h = bend(h) if k < {bent} else h
            x = x + h * torch.sigmoid(self.gain[k] * h)
        return x


net = torch.compile(Net())
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
x, took = torch.randn(1024, 256), []
for step in range(200):
    began = time.thread_time()
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    took.append(time.thread_time() - began)
open(os.environ["BENCH_TOLD"], "w").write(str(sorted(took[10:])[len(took[10:]) // 2]))
"""


@dataclass(frozen=True, slots=True)
class Plant:
    """A loss of fusion: code that defines ``bend`` with it and without it, in *bent* of *blocks* blocks."""

    lost: str
    plain: str
    blocks: int = 4
    bent: int = 4

    def script(self, *, lost: bool) -> str:
        code = self.lost if lost else self.plain
        return _SCRIPT.format(code=code, blocks=self.blocks, bent=self.bent)


def _hidden(forward: str, backward: str, bent: int = 4, blocks: int = 4) -> Plant:
    """Return a plant in which an operator of the script's own hides what *forward* and *backward* compute."""
    code = f"def forward(x):\n    return {forward}\n\n\ndef backward(grad, x):\n    return {backward}\n\n\n"
    return Plant(code + "bend = hidden(forward, backward)", code + "bend = forward", blocks, bent)


def _tiny(plant: Plant) -> Plant:
    """Return *plant* with its operator on two rows only."""
    two = "\n\nwhole = bend\n\n\ndef bend(x):\n    return x + whole(x[:2]).mean()"
    return Plant(plant.lost + two, plant.plain + two, plant.blocks, plant.bent)


_LEAKY = "torch.where(x > 0, x, 0.1 * x)", "torch.where(x > 0, grad, 0.1 * grad)"
_TANH = "torch.tanh(0.79788 * (x + 0.044715 * x * x * x))"
_BELL = (
    f"0.5 * x * (1 + {_TANH})",
    f"grad * (0.5 * (1 + {_TANH}) + 0.5 * x * (1 - {_TANH}.square()) * 0.79788 * (1 + 0.134145 * x * x))",
)
_ROTATED = "torch.view_as_real(torch.view_as_complex(x.reshape(-1, 128, 2)) * turn).reshape(x.shape)"
_PLAIN_ROTATED = """\
def bend(x):
    a, b = x.reshape(-1, 128, 2).unbind(-1)
    c, s = angles.cos(), angles.sin()
    return torch.stack((a * c - b * s, a * s + b * c), -1).reshape(x.shape)"""
_PLAIN_LEAKY = f"def bend(x):\n    return {_LEAKY[0]}"
_DROPOUT = "def bend(x):\n    return functional.dropout(x, 0.1)"
_SORT = "def bend(x):\n    return x.sort(-1).values"

PLANTS = {
    "leaky ReLU, four": _hidden(*_LEAKY),
    "leaky ReLU, two": _hidden(*_LEAKY, bent=2),
    "tanh and powers": _hidden(*_BELL),
    "ReLU": _hidden("torch.clamp(x, min=0)", "torch.where(x > 0, grad, torch.zeros(()))"),
    "bound per channel": _hidden("torch.minimum(x, width) + 0.01 * x", "torch.where(x < width, 1.01 * grad, 0.01 * grad)"),
    "fusion limited": Plant("torch._inductor.config.max_fusion_size = 1\n\n\n" + _PLAIN_LEAKY, _PLAIN_LEAKY),
    "change of type": _hidden("x.bfloat16().float()", "grad.bfloat16().float()"),
    "complex rotation": Plant(
        f"turn = torch.polar(torch.ones(128), angles)\n\n\ndef bend(x):\n    return {_ROTATED}", _PLAIN_ROTATED, 3, 3
    ),
    "torch's dropout": Plant("torch._inductor.config.fallback_random = True\n\n\n" + _DROPOUT, _DROPOUT),
    "tiny": _tiny(_hidden(*_LEAKY, bent=1)),
    "matrix product": _hidden("x @ square.t()", "grad @ square", 2, 2),
    "sort": Plant(_SORT, _SORT, 2, 2),
}  # fmt: skip


def step_ms(told: Path) -> float:
    return float(told.read_text()) * 1e3


def claimed_ms(report: Report) -> float:
    """Return what the cause got of a step, ms."""
    spent_ns = sum(finding.spent_ns for finding in report.findings if finding.cause == CAUSE)
    return spent_ns / max(1, report.steady_steps) / 1e6


def measured(plant: Plant, folder: Path) -> tuple[float, float]:
    """Return (lost, claimed), ms a step."""
    told = folder / "told"
    os.environ["BENCH_TOLD"] = str(told)
    claimed = claimed_ms(train(plant.script(lost=True), folder))
    with_ms = step_ms(told)
    script = folder / "plain.py"
    script.write_text(plant.script(lost=False))
    subprocess.run([sys.executable, str(script)], check=True, cwd=folder)
    return with_ms - step_ms(told), claimed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(PLANTS), choices=list(PLANTS), metavar="NAME")
    options = parser.parse_args()
    table = Table("plant", "lost", "claimed", "load")
    pairs = []
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            pairs.append(measured(PLANTS[name], Path(folder)))
        table.add_row(name, *(f"{ms:.2f} ms" for ms in pairs[-1]), f"{os.getloadavg()[0]:.1f}")
    Console(width=100).print(table)
    harmless = [claimed for lost, claimed in pairs if lost < HARMLESS_MS]
    print(f"harmless and silent {sum(claimed == 0 for claimed in harmless)}/{len(harmless)}")
    if len(pairs) > 2:
        print(f"Spearman {spearmanr([lost for lost, _ in pairs], [claimed for _, claimed in pairs]).statistic:.2f}")


if __name__ == "__main__":
    main()
