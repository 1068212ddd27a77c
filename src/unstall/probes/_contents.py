"""What a batch holds: how many tensors and Python objects, and how much of it is padding. Looked at seldom.

Padding is told from the numbers: one value that stands at the end (or the beginning) of rows and hardly anywhere else.
Only memory of the host is read, with numpy: no operation of the framework's runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

MOST_LEAVES = 2_000  # looked at in a batch
MOST_ELEMENTS = 100_000  # of a tensor; of a larger one its first rows, read in well under a millisecond
SHORTEST, SHORTEST_FLOATS = 8, 64  # positions; a row of numbers may end in zeros, a signal of so many does not
STRAY = 0.005  # of the elements may have the pad's value inside; sparse rows and one-hot codes have it all over
FULL = 0.95  # of the positions are real; above it a last column of one value is as likely
_NUMBERS = frozenset(
    {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64}
)  # those that numpy has too
Padded = tuple[int, float, float]  # width, mean of the rows' lengths, the longest row


class Contents:
    """Sums over the batches of one loader that were looked at."""

    def __init__(self) -> None:
        self.looks = self.tensors = self.objects = self.padded = 0
        self.width = self.length = self.longest = self.part = 0.0
        self.widths: set[int] = set()

    def look(self, batch: object) -> dict[str, object]:
        """Take *batch* into the sums, and return their means."""
        tensors, objects = leaves(batch)
        self.looks += 1
        self.tensors += len(tensors)
        self.objects += objects
        found = padding(tensors)
        if found is not None:
            (width, length, longest), part = found
            self.padded += 1
            self.width += width
            self.length += length
            self.longest += longest
            self.part += part
            self.widths.add(width)
        of = max(1, self.padded)
        return {
            "looks": self.looks,
            "tensors": self.tensors / self.looks,
            "objects": self.objects / self.looks,
            "padded_looks": self.padded,
            "width": self.width / of,
            "length": self.length / of,
            "longest": self.longest / of,
            "part": self.part / of,
            "same_width": len(self.widths) == 1,
        }


def leaves(batch: object) -> tuple[list[tuple[str, torch.Tensor]], int]:
    """Return the tensors of a batch by name, and how many other objects there are; the first 2000 of all."""
    tensors: list[tuple[str, torch.Tensor]] = []
    objects = 0
    for n, (name, leaf) in enumerate(_walk("", batch)):
        if n == MOST_LEAVES:
            break
        if isinstance(leaf, torch.Tensor):
            tensors.append((name, leaf))
        else:
            objects += 1
    return tensors, objects


def _walk(name: str, value: Any) -> Iterator[tuple[str, object]]:
    pending = [(name, value)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, (list, tuple)):
            pending += [(name, part) for part in value[:MOST_LEAVES]]
        elif isinstance(value, dict) or type(value).__name__ == "BatchEncoding":
            pending += [(str(key), part) for key, part in list(value.items())[:MOST_LEAVES]]
        else:
            yield name, value


def padding(tensors: list[tuple[str, torch.Tensor]]) -> tuple[Padded, float] | None:
    """Return how the largest padded tensor is padded, and the share of the batch's bytes that are padded alike."""
    found = [(int(tensor.nbytes), tensor, padded) for _, tensor in tensors if (padded := _padded(tensor)) is not None]
    if not found:
        return None
    _, widest, padded = max(found, key=lambda each: each[0])
    alike = sum(int(tensor.nbytes) for _, tensor in tensors if tensor.shape[:2] == widest.shape[:2])
    return padded, alike / max(1, sum(int(tensor.nbytes) for _, tensor in tensors))


def _padded(tensor: torch.Tensor) -> Padded | None:
    """Return how a tensor of rows (B, L) or of rows of vectors (B, L, D) is padded, or None where it is not."""
    numpy = sys.modules.get("numpy")
    plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided
    if numpy is None or not plain or tensor.dtype not in _NUMBERS or tensor.requires_grad:
        return None
    if tensor.ndim not in (2, 3) or tensor.shape[0] < 2 or tensor.shape[1] < SHORTEST or not tensor.numel():
        return None
    rows = tensor.numpy()[: max(2, MOST_ELEMENTS * tensor.shape[0] // tensor.numel())]
    floats = tensor.is_floating_point()
    if rows.ndim == 3:
        if not floats or rows.shape[2] < 2:
            return None
        return _lengths(numpy, (rows != 0).any(axis=2))
    if floats:
        return _lengths(numpy, rows != 0) if rows.shape[1] >= SHORTEST_FLOATS else None
    ends = [_lengths(numpy, rows != _most_common(numpy, end)) for end in (rows[:, -1], rows[:, 0])]
    return min((end for end in ends if end is not None), key=lambda end: end[1], default=None)


def _most_common(numpy: Any, values: Any) -> Any:
    found, counts = numpy.unique(values, return_counts=True)
    return found[counts.argmax()]


def _lengths(numpy: Any, real: Any) -> Padded | None:
    """Return the padding of rows whose real positions are told (bool (B, L)): at the end, or at the beginning."""
    width = real.shape[1]
    if not real.any() or real.all():
        return None
    some = real.any(axis=1)
    for at in (real[:, ::-1], real):  # from the end, from the beginning
        length = numpy.where(some, width - at.argmax(axis=1), 0)
        inside = int(length.sum()) - int(real.sum())
        if inside <= STRAY * real.size and length.max() > 1 and length.mean() <= FULL * width:
            return width, float(length.mean()), float(length.max())
    return None
