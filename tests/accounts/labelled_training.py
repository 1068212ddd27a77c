"""A training whose time is planted: ``labelled_training.py PLAN`` runs it and prints what it measured.

PLAN is JSON: ``{"steps": 60, "threads": 1, "workers": 0, "every": 10, "seed": 0, PHASE: [[PIECE, ms], ...]}``.
Pieces: sleep, burn (pure Python), torch (matrix products), collect (a full collection), write (a file, to the disk),
save (``torch.save``).  ``every`` is how many steps lie between two evaluations and two checkpoints.

The last line printed is JSON: one ``[start_ns, end_ns, run_queue_ns, phase, piece]`` a planted piece: by the monotonic
clock, and how long the thread was runnable without a CPU meanwhile.
"""

import gc
import json
import os
import random
import sys
import tempfile
import time

import torch
from torch.utils.data import DataLoader, Dataset

PLAN = json.loads(sys.argv[1])
DRAWN = random.Random(PLAN.get("seed", 0))
TRUTH = []
LEFT = torch.randn(256, 256)
FILE = os.path.join(tempfile.mkdtemp(), "out")
gc.collect()
gc.freeze()  # a planted collection looks at this heap only, not at all that torch keeps
WEIGHTS = {}
PER_SECOND = {}
SCHEDSTAT = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
HEAP = [[n] for n in range(150_000)] if "collect" in json.dumps(PLAN) else []


def sleep(seconds):
    time.sleep(seconds)


def burn(seconds):
    n = 0
    for k in range(int(seconds * PER_SECOND["burn"])):
        n += k * k % 7
    return n


def products(seconds):
    for _ in range(max(1, round(seconds * PER_SECOND["products"]))):
        LEFT @ LEFT


def collect(seconds):
    gc.collect()


def write(seconds):
    end = time.monotonic() + seconds
    with open(FILE, "wb") as file:
        while time.monotonic() < end:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)


def save(seconds):  # of a size that takes about so long
    torch.save(WEIGHTS, FILE)


PIECES = {"sleep": sleep, "burn": burn, "torch": products, "collect": collect, "write": write, "save": save}


def plant(phase):
    for name, ms in PLAN.get(phase, ()):
        if name == "save":
            WEIGHTS["w"] = torch.zeros(int(ms * 3e4))
        seconds = ms / 1000 * DRAWN.uniform(0.7, 1.3)  # no rhythm that a sampler could keep step with
        start, queued = time.monotonic_ns(), run_queue_ns()
        PIECES[name](seconds)
        queued = run_queue_ns() - queued
        TRUTH.append((start, time.monotonic_ns(), queued, phase, name))


def run_queue_ns():
    """Return how long this thread was runnable without a CPU so far, ns."""
    return int(os.pread(SCHEDSTAT, 80, 0).split()[1])


class Samples(Dataset):
    def __len__(self):
        return PLAN["steps"]

    def __getitem__(self, n):
        plant("fetch")
        return torch.zeros(4)


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        plant("backward")
        return gradient


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        plant("forward" if torch.is_grad_enabled() else "evaluate")
        return Slow.apply(self.layer(x))


class Descent(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        plant("optimizer")
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= group["lr"] * parameter.grad


def rate(piece, times):
    """Return how often the inner loop of *piece* runs in a second of CPU time: no clock is read within a piece."""
    PER_SECOND[piece.__name__] = times
    best = min(timed(piece) for _ in range(5))
    PER_SECOND[piece.__name__] = times / best


def timed(piece):
    start = time.thread_time()
    piece(1.0)
    return time.thread_time() - start


def main():
    torch.set_num_threads(PLAN.get("threads", 1))
    rate(burn, 200_000)
    rate(products, 20)
    gc.disable()
    model = Model()
    optimizer = Descent(model.parameters())
    loader = DataLoader(Samples(), batch_size=1, num_workers=PLAN.get("workers", 0))
    batches = iter(loader)
    for step in range(PLAN["steps"]):
        start = time.monotonic_ns()
        batch = next(batches)
        if PLAN.get("workers"):
            TRUTH.append((start, time.monotonic_ns(), 0, "fetch", "wait"))
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        plant("between")
        if step % PLAN.get("every", 10) == 4:
            with torch.no_grad():
                model(batch)
            plant("checkpoint")
    print(json.dumps(TRUTH))


main()
