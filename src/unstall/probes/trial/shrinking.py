"""Epochs of a trial: loaders cut to few batches an epoch where that is asked, boundaries counted, samples noted.

What is cut is the sequence of indices that a loader draws (its ``_index_sampler``), so the workers, the order and the random
numbers that come with a new epoch stay those of the training, and ``len(loader)`` says how many batches come.  An epoch's
indices are kept for loaders whose batches a backward pass follows, their order left out: a multiset.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from array import array
from collections.abc import Iterator
from threading import get_ident
from typing import Any

from torch.utils.data import dataloader

from unstall.probes._around import is_compiling
from unstall.probes._recorder import Probe
from unstall.probes.trial._asked import asked, note

AFTER = "torch"
MOST_INDICES = 4_000_000  # 8 bytes each, over the whole trial


def install(probe: Probe) -> None:
    trial = asked(probe.recorder.config)
    if trial is not None:
        Shrinking(probe, trial.shrink)


class Epoch:
    """One pass through a loader's indices.

    Attributes:
        indices: of the samples that were asked for; None where they are not kept.
        ended: whether the last one was given; trained: whether a backward pass followed one of its batches.
    """

    def __init__(self, batches: Iterator[Any], most: int | None, indices: array[int] | None) -> None:
        self.batches, self.left, self.indices = batches, most, indices
        self.ended = self.trained = False

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Any:
        if self.left == 0:
            self.ended = True
            raise StopIteration
        try:
            batch = next(self.batches)
        except StopIteration:
            self.ended = True
            raise
        if self.left is not None:
            self.left -= 1
        if self.indices is not None:
            self.indices.extend(map(whole, batch if isinstance(batch, (list, tuple)) else (batch,)))
        return batch

    def digest(self) -> str:
        """Return what the same samples give in any order; "" where they were not kept."""
        if not self.indices:
            return ""
        return hashlib.sha256(array("q", sorted(self.indices)).tobytes()).hexdigest()[:16]


class Indices:
    """Stands in for a loader's sampler of indices: each pass is an `Epoch`."""

    def __init__(self, owner: Shrinking, sampler: Any, kept: bool) -> None:
        self._owner, self._sampler, self._kept = owner, sampler, kept

    def __iter__(self) -> Iterator[Any]:
        return self._owner.begin(iter(self._sampler), self._kept)

    def __len__(self) -> int:
        return self._owner.cut(len(self._sampler))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


class Shrinking:
    """Cuts every loader to *most* batches an epoch, and notes the epochs that train."""

    def __init__(self, probe: Probe, most: int | None) -> None:
        self.probe, self.recorder, self.most = probe, probe.recorder, most
        self.forget()
        self.recorder.in_child.append(self.forget)
        self.recorder.at_backward.append((probe, self.backward))
        self.recorder.at_end.append((probe, self.end))
        loader, iterator = dataloader.DataLoader, dataloader._BaseDataLoaderIter
        loader._index_sampler = self.drawing(loader._index_sampler.fget)
        loader.__len__ = self.measuring(loader.__len__)
        iterator.__next__ = self.taking(iterator.__next__)

    def forget(self) -> None:
        self.last: Epoch | None = None  # whose batch was taken last
        self.trained: list[Epoch] = []
        self.room = MOST_INDICES

    def cut(self, batches: int) -> int:
        return batches if self.most is None else min(self.most, batches)

    def drawing(self, original: Any) -> property:
        @functools.wraps(original)
        def _index_sampler(loader: Any) -> Any:
            kept = loader._dataset_kind != dataloader._DatasetKind.Iterable
            return Indices(self, original(loader), kept) if self.probe.on else original(loader)

        return property(_index_sampler)

    def measuring(self, original: Any) -> Any:
        @functools.wraps(original)
        def __len__(loader: Any) -> int:
            return self.cut(original(loader)) if self.probe.on else original(loader)

        return __len__

    def begin(self, batches: Iterator[Any], kept: bool) -> Epoch:
        return Epoch(batches, self.most, array("q") if kept and self.room > 0 else None)

    def taking(self, original: Any) -> Any:
        @functools.wraps(original)
        def taken(iterator: Any) -> Any:
            batch = original(iterator)
            if not is_compiling() and get_ident() == self.recorder.thread:
                epoch = iterator._sampler_iter
                if isinstance(epoch, Epoch) and epoch is not self.last:
                    self.last = epoch
            return batch

        return taken

    def backward(self, *_: object, **__: object) -> None:
        epoch = self.last
        if epoch is not None and not epoch.trained:
            epoch.trained = True
            self.close()
            self.trained.append(epoch)

    def close(self) -> None:
        """Count what the epochs before this one hold; keep no more once there is too much."""
        if self.trained and self.trained[-1].indices is not None:
            self.room -= len(self.trained[-1].indices)
            if self.room <= 0:
                note(self.probe, f"the samples were noted up to epoch {len(self.trained)} only")

    def end(self) -> dict[str, object]:
        digests = [epoch.digest() for epoch in self.trained if epoch.ended]
        return {
            "epochs": max(0, len(self.trained) - 1),
            "samples": digests if all(digests) else [],
            "through_loader": bool(self.trained),
            "shrunk": self.most,
        }


def whole(index: Any) -> int:
    """Return *index* as a whole number below 2^63; of a key that is none a checksum."""
    try:
        number = int(index)
        if number == index and abs(number) < 1 << 63:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    return zlib.crc32(repr(index).encode())
