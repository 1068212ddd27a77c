"""The recorder never makes the host wait for a device: it asks for no operator and reads no value of a tensor.

The device here is PyTorch's "meta": its tensors are plain tensors that hold no values, so what would have to wait for a
device (``item()``, ``bool``, ``tolist()``, a copy to the CPU) raises there, and switches the probe off that did it.
Every operator that is dispatched to it is noted as well, and calls that wait or print are counted.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unstall.launch import recording
from unstall.launch.supervise import injected

HEAD = """
import io, json, os, sys
if "UNSTALL_RECORDING" in os.environ and "MORE_PROBES" in os.environ:
    import unstall.probes
    unstall.probes.__path__.append(os.environ["MORE_PROBES"])
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "meta"
operators, calls = [], []

class Noting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        held = [leaf for leaf in tree_leaves((args, made)) if isinstance(leaf, torch.Tensor)]
        # detach asks nothing of a device; the mode adds one for a result that someone holds on to
        if any(tensor.device.type == DEVICE for tensor in held) and str(function) != "aten.detach.default":
            operators.append(str(function))
        return made

def counted(owner, name):
    def counting(*args, **kwargs):
        calls.append(f"{owner.__name__}.{name}")
        return "" if name.startswith("__") else None
    if hasattr(owner, name):
        setattr(owner, name, counting)

for owner in (torch.cuda, torch.xpu, torch.mps, getattr(torch, "accelerator", torch.cuda)):
    counted(owner, "synchronize")
for kind in (torch.cuda.Stream, torch.cuda.Event):
    for name in ("synchronize", "query", "wait", "elapsed_time"):
        counted(kind, name)
for name in ("__repr__", "__str__", "__format__"):
    counted(torch.Tensor, name)

torch.manual_seed(0)
torch.set_num_threads(1)
ROWS = 1 << 13

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(ROWS, 64)
        self.head = nn.Sequential(nn.Linear(64, 16), nn.Dropout(0.1), nn.Linear(16, 2))

    def forward(self, rows):
        return self.head(self.table(rows).mean(1))

model = Model().to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3))
optimizer.param_groups[0]["seen"] = torch.zeros((), device=DEVICE)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)

def train_step(rows, label):
    loss = nn.functional.cross_entropy(model(rows), label)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    return loss.detach()

with Noting():
"""
LOADER = """
    data = TensorDataset(torch.randint(ROWS, (320, 8)), torch.randint(2, (320,)))
    for epoch in range(2):
        for rows, label in DataLoader(data, batch_size=16, shuffle=True):
            train_step(rows.to(DEVICE), label.to(DEVICE))
        with torch.no_grad():
            for rows, _ in DataLoader(data, batch_size=64):
                model(rows.to(DEVICE))
        torch.save(model.state_dict(), io.BytesIO())
"""
GET_BATCH = """
    def get_batch():
        return torch.randint(ROWS, (16, 8), device=DEVICE), torch.randint(2, (16,), device=DEVICE)

    losses, kept, other = [], None, nn.Linear(8, 1, device=DEVICE)
    for step in range(40):
        losses.append(train_step(*get_batch()))
        score = other(torch.zeros(16, 8, device=DEVICE)).sum()
        kept = score if kept is None else kept + score
        torch.autograd.grad(kept, list(other.parameters()), retain_graph=True)
"""
TAIL = """
print("RESULT" + json.dumps({"operators": operators, "calls": calls}))
"""

# A probe that hears of each of the first backward passes, and does to the loss what is planted.
PROBE = """
import torch
AFTER = "torch"

def install(probe):
    def look(passes, outputs, *args, **kwargs):
        loss = outputs[0]
        {does}
    probe.recorder.at_backward.append((probe, look))
"""


def run_of(script: Path, folder: Path | None, more: Path | None) -> tuple[dict[str, list[str]], str]:
    """Return what *script* dispatched and called, and its stderr; recorded where a *folder* is given."""
    env = dict(os.environ)
    if folder is not None:
        recording.create("train.py", folder, env)
        recording.write_config(folder, {})
        env = injected(env, folder)
    if more is not None:
        env["MORE_PROBES"] = str(more)
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    found: dict[str, list[str]] = json.loads(line.removeprefix("RESULT"))
    return found, done.stderr


@functools.lru_cache
def plain_run_of(script: Path) -> dict[str, list[str]]:
    return run_of(script, None, None)[0]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one script for each training, which run without us once."""
    folder: Path = tmp_path_factory.mktemp("scripts")
    for name, body in (("loader", LOADER), ("get-batch", GET_BATCH)):
        (folder / f"{name}.py").write_text(HEAD + body + TAIL)
    return folder


def objections(script: Path, folder: Path, planted: str = "") -> list[str]:
    """Return what the recorder does to the device in the training *script*; *planted* is done by a probe more."""
    more = folder / "more"
    if planted:
        more.mkdir()
        (more / "planted.py").write_text(PROBE.format(does=planted))
    without = plain_run_of(script)
    recorded, said = run_of(script, folder / "recording", more if planted else None)
    assert list((folder / "recording").glob("*.wire")), "nothing was recorded"
    assert without["operators"].count("aten.embedding.default") > 20
    found = [line for line in said.splitlines() if line.startswith("unstall: ")]
    if recorded["operators"] != without["operators"]:
        found.append(f"{len(without['operators'])} operators without, {len(recorded['operators'])} recorded")
    if recorded["calls"] != without["calls"]:
        found.append(f"called: {' '.join(sorted(set(recorded['calls'])))}")
    return found


@pytest.mark.parametrize("name", ["loader", "get-batch"])
def test_nothing_is_asked_of_the_device(name: str, scripts: Path, tmp_path: Path) -> None:
    assert not objections(scripts / f"{name}.py", tmp_path)


@pytest.mark.parametrize(
    ("planted", "objection"),
    [
        ("bool(loss > 0)", "unstall: probe planted switched itself off"),
        pytest.param("loss.item()", "unstall: probe planted switched itself off", marks=pytest.mark.slow),
        pytest.param("loss.detach().cpu()", "unstall: probe planted switched itself off", marks=pytest.mark.slow),
        ("loss.detach().isnan()", "operators without"),
        ("torch.cuda.synchronize()", "called: torch.cuda.synchronize"),
        pytest.param("str(loss)", "called: Tensor.__", marks=pytest.mark.slow),
    ],
)
def test_a_probe_that_would_wait_is_caught(planted: str, objection: str, scripts: Path, tmp_path: Path) -> None:
    assert any(objection in one for one in objections(scripts / "get-batch.py", tmp_path, planted))
