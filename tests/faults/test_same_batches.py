"""Loaders of every kind yield the same batches with the recorder and without it: the same bytes, in the same order."""

from __future__ import annotations

import sys

import pytest

# Each loader is gone through three times, and a model trained a little, so that the recorder takes it for a training's.
HEAD = """
import hashlib, random, sys
import numpy
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, get_worker_info

class Rows(Dataset):
    def __init__(self, count=48):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, i):
        return torch.full((40,), float(i)) + torch.rand(40), numpy.array([i, numpy.random.rand()]), random.random(), str(i)

class Fixed(Rows):  # which worker makes a batch is a matter of time there, and so is what it would draw
    def __getitem__(self, i):
        return torch.full((40,), float(i)), str(i)

class Whole(Rows):
    def __getitems__(self, indices):
        return [self[i] for i in indices]

class Named(Rows):
    def __getitem__(self, name):
        return {"x": torch.full((8,), float(len(name))) + torch.rand(8), "name": name}

class Backwards(Sampler):
    def __len__(self):
        return 48
    def __iter__(self):
        return iter([-1 - i for i in range(48)])

class Names(Sampler):
    def __len__(self):
        return 24
    def __iter__(self):
        return iter(["a" * random.randint(1, 9) for _ in range(24)])

class Pairs(Sampler):
    def __len__(self):
        return 12
    def __iter__(self):
        for i in range(12):
            yield [[i, j] for j in range(4)]  # indices that cannot be hashed

class Crossed(Rows):
    def __getitem__(self, pair):
        return torch.tensor(pair) + torch.rand(2)


class Odd:
    def __init__(self, i):
        self.i = i
    def __eq__(self, other):
        raise RuntimeError("not to be compared")
    __hash__ = None

class Oddities(Rows):
    def __getitem__(self, i):
        return Odd(i)

class Lengthless:
    def __getitem__(self, i):
        return torch.full((8,), float(i))

class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for i in range(info.id if info else 0, 40, info.num_workers if info else 1):
            yield torch.full((8,), float(i)) + torch.rand(8)

def stacked(rows):
    return torch.stack([row[0] for row in rows]).flip(0), [row[3] for row in rows]

def of_odd(rows):
    return torch.tensor([float(row.i) for row in rows])

def begin(worker):
    numpy.random.seed(worker)
    random.seed(worker)
"""
LOADERS = {
    "map": "DataLoader(Rows(), batch_size=8, shuffle=True)",
    "dropped-last": "DataLoader(Rows(50), batch_size=8, drop_last=True, generator=torch.Generator().manual_seed(3))",
    "single": "DataLoader(Rows(), batch_size=None)",
    "batch-sampler": "DataLoader(Rows(), batch_sampler=BatchSampler(RandomSampler(range(48)), 7, False))",
    "negative": "DataLoader(Rows(), batch_size=8, sampler=Backwards())",
    "names": "DataLoader(Named(), batch_size=6, sampler=Names())",
    "pairs": "DataLoader(Crossed(), batch_sampler=Pairs())",
    "collate": "DataLoader(Rows(), batch_size=8, collate_fn=stacked)",
    "odd-objects": "DataLoader(Oddities(), batch_size=8, collate_fn=of_odd)",
    "lengthless": "DataLoader(Lengthless(), batch_size=4, sampler=range(20))",
    "getitems": "DataLoader(Whole(), batch_size=8, shuffle=True)",
    "stream": "DataLoader(Stream(), batch_size=6)",
    "workers": "DataLoader(Rows(), batch_size=8, shuffle=True, num_workers=2, worker_init_fn=begin)",
    "persistent": "DataLoader(Whole(), batch_size=8, shuffle=True, num_workers=2, worker_init_fn=begin, persistent_workers=True)",
    "worker-stream": "DataLoader(Stream(), batch_size=6, num_workers=2)",
    "worker-collate": "DataLoader(Rows(), batch_size=8, num_workers=1, worker_init_fn=begin, collate_fn=stacked)",
    "worker-odd-objects": "DataLoader(Oddities(), batch_size=8, num_workers=1, collate_fn=of_odd)",
    "as-they-come": "DataLoader(Fixed(), batch_size=8, num_workers=2, worker_init_fn=begin, in_order=False)",
    "spawn": 'DataLoader(Rows(), batch_size=8, shuffle=True, num_workers=1, worker_init_fn=begin, multiprocessing_context="spawn")',
}
TAIL = """
def parts(batch):
    if isinstance(batch, dict):
        return [part for item in batch.items() for one in item for part in parts(one)]
    if isinstance(batch, (list, tuple)):
        return [part for one in batch for part in parts(one)]
    if isinstance(batch, torch.Tensor):
        return [str((batch.shape, batch.dtype)).encode(), batch.contiguous().numpy().tobytes()]
    return [repr(batch).encode()]

def first(batch):
    while not isinstance(batch, torch.Tensor):
        batch = list(batch.values())[0] if isinstance(batch, dict) else batch[0]
    return batch.float().reshape(-1)[:2]

if __name__ == "__main__":
    for name in sys.argv[1:]:
        torch.manual_seed(0); numpy.random.seed(0); random.seed(0)
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
        loader = LOADERS[name]()
        for epoch in range(3):
            seen = []
            for batch in loader:
                seen.append(hashlib.sha256(b"|".join(parts(batch))).hexdigest())
                net(first(batch)).sum().backward()
                optimizer.step()
            print(name, epoch, len(seen), *(sorted(seen) if "as-they-come" in name else seen))
        print(name, torch.rand(1).item().hex(), random.random().hex(), float(numpy.random.rand()).hex())
"""
APART = ("as-they-come", "spawn")


def script() -> str:
    made = "\n".join(f"    {name!r}: lambda: {code}," for name, code in LOADERS.items())
    return f"{HEAD}\nLOADERS = {{\n{made}\n}}\n{TAIL}"


def assert_same(bench, *names: str) -> None:
    bench.write(script())
    plain = bench.plain(sys.executable, "train.py", *names)
    assert plain.returncode == 0, plain.stderr
    left = bench.watched("train.py", *names)
    assert left.code == 0, left.err
    assert left.out.splitlines() == plain.stdout.splitlines()
    assert len(plain.stdout.splitlines()) == 4 * len(names)
    assert "switched itself off" not in left.err


def test_loaders_without_workers_yield_the_same_batches(bench) -> None:
    assert_same(bench, *[name for name, code in LOADERS.items() if "num_workers" not in code])


@pytest.mark.slow
def test_loaders_with_workers_yield_the_same_batches(bench) -> None:
    assert_same(bench, *[name for name, code in LOADERS.items() if "num_workers" in code and name not in APART])


@pytest.mark.slow
def test_batches_that_come_in_any_order_are_the_same_ones(bench) -> None:
    assert_same(bench, "as-they-come")


@pytest.mark.slow
def test_a_spawned_worker_yields_the_same_batches(bench) -> None:
    assert_same(bench, "spawn")
