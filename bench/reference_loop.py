"""The loop that the recorder is measured on: a DataLoader in the process, a small net, AdamW; about 9 ms a step.

``reference_loop.py [profiler|stacks]`` warms up, says ``ready``, then reads numbers of steps from stdin, one a line,
and answers each with JSON: CPU time of the training thread and wall time of each step, ns.  With ``profiler`` the loop
runs under ``torch.profiler``, with ``stacks`` that records stacks as well.
"""

import contextlib
import json
import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

WARMUP = 60  # the probes look for modules and batches in the first steps, and torch imports what it needs
EXTRA = 30


def watched(mode):
    if mode is None:
        return contextlib.nullcontext()
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=mode == "stacks")


def steps(model, optimizer, loader):
    while True:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            yield


def main():
    mode = (sys.argv[1:] or [None])[0]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(4096, 3, 16, 16), torch.randint(10, (4096,)))
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 24, 3, padding=1), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(384, 10),
    )  # fmt: skip
    loop = steps(model, torch.optim.AdamW(model.parameters()), DataLoader(data, batch_size=32))
    for _ in range(WARMUP):
        next(loop)
    with watched(mode):
        for _ in range(EXTRA):
            next(loop)
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps(block(loop, int(line))), flush=True)


def block(loop, count):
    cpu, wall = [], []
    for _ in range(count):
        start, before = time.monotonic_ns(), time.thread_time_ns()
        next(loop)
        cpu.append(time.thread_time_ns() - before)
        wall.append(time.monotonic_ns() - start)
    return {"cpu": cpu, "wall": wall}


main()
