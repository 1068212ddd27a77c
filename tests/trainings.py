"""Small trainings that are really run under the light recorder of a trial, for tests of what it captures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from unstall.launch import recording
from unstall.launch.supervise import injected
from unstall.model.trial import Captured
from unstall.readers import captured

NEEDED = ["backward", "optimizers", "capture", "seeding", "shrinking", "lockstep", "switching", "reloading"]

DATA = """\
import os, random, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(int(os.environ.get("THREADS", 1)))

class Points(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, i):
        x = torch.full((32,), i / 24.0) + torch.arange(32) / 32.0
        if os.environ.get("DRAWS"):
            x = x + 0.1 * torch.randn(32) + random.random()
        return x, torch.tensor(i % 3)
"""
TRAINING = (
    DATA
    + """
if "UNSEEDED" not in os.environ:
    torch.manual_seed(3)
    random.seed(3)
kind = getattr(torch, os.environ.get("KIND", "float32"))
model = nn.Sequential(
    nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(float(os.environ.get("DROP", 0.2))), nn.Linear(64, 3)
).to(kind)
optimizer = torch.optim.AdamW(model.parameters(), lr=float(os.environ.get("RATE", 0.01)))
loader = DataLoader(
    Points(), batch_size=int(os.environ.get("BATCH", 4)), shuffle=True, num_workers=int(os.environ.get("WORKERS", 0))
)
losses = []
for epoch in range(3):
    for x, y in loader:
        with torch.autocast("cpu", enabled="HALF" in os.environ):
            loss = nn.functional.cross_entropy(model(x.to(kind)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
with open("losses", "w") as file:
    file.write(" ".join(loss.hex() for loss in losses))
"""
)


def plain(script: str, folder: Path, **settings: object) -> list[float]:
    """Run *script* without us in *folder* and return the losses that it wrote."""
    folder.mkdir(parents=True)
    _run(script, folder, {**os.environ, **{name: str(value) for name, value in settings.items()}})
    return written(folder)


def written(folder: Path) -> list[float]:
    return [float.fromhex(word) for word in (folder / "losses").read_text().split()]


def trial(
    script: str, folder: Path, asked: dict[str, object], steps: int | None = None, **settings: object
) -> Captured:
    """Run *script* in *folder* under the trial *asked*, with *settings* in its environment."""
    folder.mkdir(parents=True)
    there = recording.create("train", folder / "recording", os.environ)
    recording.write_config(there, {"step_limit": steps, "only": NEEDED, "trial": asked})
    _run(script, folder, injected({**os.environ, **{name: str(value) for name, value in settings.items()}}, there))
    return captured.read(there)


def _run(script: str, folder: Path, env: dict[str, str]) -> None:
    (folder / "train.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "unstall" not in done.stderr, done.stderr  # no probe has switched itself off
