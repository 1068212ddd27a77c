"""Healthy trainings in which no data cause has anything to say, each nearly a fault."""

from __future__ import annotations

from collections.abc import Mapping

_IMPORTS = """\
import tempfile
import time

import numpy
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset


"""
_LOOP = """\

class Deep(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.first = nn.Linear(width, 96)
        self.layers = nn.Sequential(*(nn.Linear(96, 96) for _ in range(layers)))

    def forward(self, x):
        return self.layers(torch.relu(self.first(x)))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    {loader}
    net = Deep({width}, {layers})
    opt = torch.optim.SGD(net.parameters(), lr=1e-4)
    for epoch in range(1000):
        for x, y in {batches}:
            loss = nn.functional.cross_entropy(net(x.float()), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
"""
_AUGMENTED = """\
class Augmented(Dataset):
    def __len__(self):
        return 64 * 400

    def __getitem__(self, i):
        wave = torch.full((64,), i / 25_600)
        for _ in range(6):
            wave = (wave + 0.1 * torch.randn(64)).roll(1).clamp(-3, 3)
        return wave, i % 4
"""
_SLEEPS = """\
class Remote(Dataset):
    def __len__(self):
        return 16_000

    def __getitem__(self, i):
        time.sleep({seconds})
        return torch.full((64,), i / 16_000), i % 4
"""
_ROWS = """\
class Rows(Dataset):
    def __init__(self):
        self.x = torch.randn(40_000, 64, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], i % 4
"""
_AT_ONCE = """\
class AtOnce(Dataset):
    def __init__(self):
        self.x = torch.randn(40_000, 64, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitems__(self, indices):
        rows = torch.tensor(indices)
        return self.x[rows], rows % 4
"""
_STREAM = """\
class Stream(IterableDataset):
    def __iter__(self):
        for i in range(1000):
            yield torch.full((128, 64), i / 1000), torch.arange(128) % 4
"""
_BUCKETED = """\
def pad(samples):
    longest = max(words.numel() for words, _ in samples)
    ids = torch.zeros(len(samples), longest)
    for row, (words, _) in enumerate(samples):
        ids[row, : words.numel()] = words
    return nn.functional.adaptive_avg_pool1d(ids, 64), torch.tensor([kind for _, kind in samples])


class Buckets:
    def __init__(self, lengths, size):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[i : i + size] for i in range(0, len(order), size)]

    def __iter__(self):
        for number in torch.randperm(len(self.batches)).tolist():
            yield self.batches[number]

    def __len__(self):
        return len(self.batches)
"""
_MAPPED = """\
class Mapped(Dataset):
    def __init__(self, path):
        self.x = numpy.memmap(path, dtype=numpy.float32, mode="r", shape=(20_000, 64))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i].copy()), i % 4
"""


def _training(dataset: str, loader: str, layers: int = 80, width: int = 64, batches: str = "loader") -> tuple[str, int]:
    """Return a training's source, and how many of its steps take some three seconds."""
    loop = _LOOP.format(loader=loader, layers=layers, width=width, batches=batches)
    return f"{_IMPORTS}{dataset}\n{loop}", max(80, 20_000 // layers)


LOADERS: Mapping[str, tuple[str, int]] = {
    "augmentation hidden behind the model": _training(
        _AUGMENTED, "loader = DataLoader(Augmented(), batch_size=64, num_workers=1, persistent_workers=True)", 240
    ),
    "workers that keep up with latency": _training(
        _SLEEPS.format(seconds=0.002),
        "loader = DataLoader(Remote(), batch_size=8, num_workers=4, persistent_workers=True)",
    ),
    "a batch made in the loop, and cheap": _training(
        _ROWS, "loader = DataLoader(Rows(), batch_size=32, shuffle=True)", 120
    ),
    "pinned memory, kept workers": _training(
        _ROWS,
        "loader = DataLoader(Rows(), batch_size=64, shuffle=True, num_workers=2, persistent_workers=True, pin_memory=True)",
    ),
    "iterable, batches ready made": _training(_STREAM, "loader = DataLoader(Stream(), batch_size=None)"),
    "iterable, one worker": _training(
        _STREAM, "loader = DataLoader(Stream(), batch_size=None, num_workers=1, persistent_workers=True)"
    ),
    "rows taken at once by __getitems__": _training(
        _AT_ONCE, "loader = DataLoader(AtOnce(), batch_size=256, shuffle=True, collate_fn=lambda batch: batch)"
    ),
    "rows taken at once by a batch sampler": _training(
        "",
        "x = torch.randn(40_000, 64); rows = TensorDataset(x, torch.arange(40_000) % 4)\n"
        "    loader = DataLoader(rows, sampler=BatchSampler(RandomSampler(rows), 256, False), batch_size=None)",
    ),
    "bucketed lengths": _training(
        _BUCKETED,
        "texts = [(torch.arange(40 + i * 7 % 160).float(), i % 4) for i in range(4000)]\n"
        "    loader = DataLoader(texts, batch_sampler=Buckets([len(x) for x, _ in texts], 16), collate_fn=pad)",
        120,
    ),
    "memory map, page-cached": _training(
        _MAPPED,
        "file = tempfile.NamedTemporaryFile()\n"
        "    numpy.random.default_rng(0).standard_normal((20_000, 64), dtype=numpy.float32).tofile(file.name)\n"
        "    loader = DataLoader(Mapped(file.name), batch_size=32, shuffle=True)",
        120,
    ),
    "several loaders, one evaluates": _training(
        _ROWS,
        "loader = DataLoader(Rows(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)\n"
        "    held = DataLoader(Rows(), batch_size=2000)\n"
        "    with torch.no_grad():\n"
        "        seen = [x.mean() for x, _ in held]",
        120,
    ),
    "no loader, rows by index": _training(
        _ROWS,
        "rows = Rows().x\n\n"
        "    def batches():\n"
        "        while True:\n"
        "            picked = torch.randint(len(rows), (128,))\n"
        "            yield rows[picked], picked % 4",
        batches="batches()",
    ),
}
