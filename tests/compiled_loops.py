"""Compiled trainings, and what differs in how they are compiled under the recorder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from unstall.launch import recording
from unstall.launch.supervise import injected

HEAD = """\
import json, os, sys
import torch
from torch import nn
from torch._dynamo.utils import counters

BACKEND = {backend!r}
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
losses = []

"""
TAIL = """
print("RESULT" + json.dumps({
    "graphs and operations": dict(counters["stats"]),
    "breaks": sum(counters["graph_break"].values()),
    "recompiles": dict(counters["recompiles"]),
    "losses": losses,
}))
"""

PLAIN_LOOP = """
for step in range(12):
    loss = forward(torch.randn(8, 16))
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item().hex())
"""
SCRIPTS = {
    "compiled module": "model = torch.compile(net, backend=BACKEND)\nforward = lambda x: model(x).square().mean()\n"
    + PLAIN_LOOP,
    "module compiled in place": "net.compile(backend=BACKEND)\nforward = lambda x: net(x).square().mean()\n"
    + PLAIN_LOOP,
    "compiled loss, sizes that change": """
@torch.compile(backend=BACKEND)
def forward(x):
    return net(x).square().mean()

for step in range(12):
    loss = forward(torch.randn(4 + step % 3, 16))
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item().hex())
""",
    "evaluated as outermost modules are looked for again": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x

net = Net()
net.compile(backend=BACKEND)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(242):
    loss = net(torch.randn(8, 16)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item().hex())
    if step in (199, 240):
        with torch.no_grad():
            losses.append(net(torch.randn(8, 16)).mean().item().hex())
""",
    "whole step compiled": """
@torch.compile(backend=BACKEND)
def train_step(x):
    loss = net(x).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss

for step in range(12):
    losses.append(train_step(torch.randn(8, 16)).item().hex())
""",
    "compiled optimizer step with a schedule": """
schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 1 / (1 + s))

@torch.compile(backend=BACKEND)
def update():
    opt.step()

for step in range(8):
    loss = net(torch.randn(8, 16)).square().mean()
    loss.backward()
    update()
    schedule.step()
    opt.zero_grad()
    losses.append(loss.item().hex())
""",
    "a graph break": """
class Talks(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net

    def forward(self, x):
        hidden = self.net[0](x)
        print("hidden", file=sys.stderr)
        return self.net[2](self.net[1](hidden))

talks = torch.compile(Talks(), backend=BACKEND)
forward = lambda x: talks(x).square().mean()
"""
    + PLAIN_LOOP,
    "breaks within a loop over blocks, a value read, a branch on a tensor": """
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 16)

    def forward(self, x):
        x = self.lin(x)
        most = x.abs().max().item()
        if x.sum() > 0:
            x = x * 0.5
        return x / (1 + most)

class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Scaled() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
            print("block", file=sys.stderr)
        return net(x)

stack = Stack()
opt.add_param_group({"params": list(stack.blocks.parameters())})
model = torch.compile(stack, backend=BACKEND)
forward = lambda x: model(x).square().mean()
"""
    + PLAIN_LOOP,
    "more programs than the limit allows": """
@torch.compile(backend=BACKEND)
def loss_of(x, name):
    return net(x).square().mean() * (2 if name == "first" else 1)

count = iter(range(100))
forward = lambda x: loss_of(x, str(next(count)))
"""
    + PLAIN_LOOP,
    "trained and evaluated in turn": """
model = torch.compile(net, backend=BACKEND)
for step in range(12):
    net.train()
    loss = model(torch.randn(8, 16)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item().hex())
    if step % 4 == 3:
        net.eval()
        with torch.no_grad():
            losses.append(model(torch.randn(8, 16)).sum().item().hex())
""",
    "compiled blocks": """
blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3))
for block in blocks:
    block.compile(backend=BACKEND)
opt.add_param_group({"params": list(blocks.parameters())})

def forward(x):
    for block in blocks:
        x = block(x)
    return net(x).square().mean()
"""
    + PLAIN_LOOP,
    "data from a loader": """
from torch.utils.data import DataLoader, TensorDataset
model = torch.compile(net, backend=BACKEND)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(44, 16)), batch_size=8, shuffle=True):
        loss = model(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item().hex())
""",
}


def result_of(script: Path, python: str, folder: Path | None = None) -> dict[str, object]:
    """Run *script* by *python*, the probes in it where a *folder* to record to is given; return its counts and losses."""
    env = dict(os.environ)
    if folder is not None:
        recording.create("train.py", folder, env)
        recording.write_config(folder, {})
        env = injected(env, folder)
    done = subprocess.run([python, str(script)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "switched itself off" not in done.stderr, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    found: dict[str, object] = json.loads(line.removeprefix("RESULT"))
    return found


def objections(body: str, backend: str, folder: Path, python: str = sys.executable) -> list[str]:
    """Return what differs under the recorder, of graphs, breaks, recompiles and losses."""
    script = folder / "train.py"
    script.write_text(HEAD.format(backend=backend) + body + TAIL)
    without, recorded = (result_of(script, python, to) for to in (None, folder / "recording"))
    assert list((folder / "recording").glob("*.wire")), "nothing was recorded"
    differing = [key for key in without if without[key] != recorded[key]]
    return [f"{key}: {without[key]} without, {recorded[key]} recorded" for key in differing]
