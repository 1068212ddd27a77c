"""Passes through loaders that end early, or that give what was given before, so that a layer costs nothing.

In a loader that trains the first batch after the first backward pass is the first one that is given again.  The loader's
workers are ended then: left alone, they would make batches at full speed that nobody takes.  Later passes make no iterator of
torch's at all.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from torch.utils.data import dataloader

from unstall.model.wire import Activity, Phase
from unstall.probes._around import is_compiling
from unstall.probes._recorder import Probe
from unstall.probes.trial._again import Again

LEFT = 2  # batches of an evaluation, as some wrappers of loaders ask for one more than they give


class Counts:
    """How often something was taken away in this process."""

    def __init__(self, probe: Probe, name: str) -> None:
        self.probe, self.name, self.count = probe, name, 0
        probe.recorder.in_child.append(self.forget)
        self.tell()

    def forget(self) -> None:
        self.count = 0
        self.tell()

    def add(self) -> None:
        self.count += 1
        self.tell()

    def tell(self) -> None:
        known = self.probe.recorder.captured.setdefault("ablated", {})
        if isinstance(known, dict):
            known[self.name] = self.count


class Loader:
    """What is known of one loader.

    Attributes:
        again: its first batch; None until one was taken.
        batches: of an epoch; None where that is not known, or not before a pass has come to its end.
        trains: whether a backward pass followed one of its batches. shortened: whether a pass was ended early.
    """

    def __init__(self) -> None:
        self.again: Again | None = None
        self.batches: int | None = None
        self.trains = self.shortened = False


class Pass:
    """One pass through a loader: how many batches were taken, and whether they come from us by now."""

    def __init__(self, loader: Loader) -> None:
        self.loader, self.taken, self.ours = loader, 0, False


class Replayed:
    """Stands in for the iterator of a later pass."""

    def __init__(self, owner: Passes, loader: Loader) -> None:
        self._owner, self._pass = owner, Pass(loader)

    def __iter__(self) -> Replayed:
        return self

    def __next__(self) -> Any:
        return self._owner.give(self._pass)

    def __len__(self) -> int:
        return self._pass.loader.batches or 0


class Passes:
    """Follows each pass through each loader, and gives its batches itself from where `ends_here` says so."""

    def __init__(self, probe: Probe, name: str) -> None:
        self.probe, self.recorder, self.counts = probe, probe.recorder, Counts(probe, name)
        self.forget()
        self.recorder.in_child.append(self.forget)
        self.recorder.at_backward.append((probe, self.backward))
        loader, iterator = dataloader.DataLoader, dataloader._BaseDataLoaderIter
        self.length = loader.__len__
        loader.__iter__ = self.iterating(loader.__iter__)
        iterator.__next__ = self.taking(iterator.__next__)

    def forget(self) -> None:
        self.loaders: weakref.WeakKeyDictionary[Any, Loader] = weakref.WeakKeyDictionary()
        self.passes: weakref.WeakKeyDictionary[Any, Pass] = weakref.WeakKeyDictionary()
        self.last: Loader | None = None  # whose batch was taken last

    def backward(self, *_: object, **__: object) -> None:
        if self.last is not None:
            self.last.trains = True

    def is_known(self, loader: Loader) -> bool:
        """Return whether a whole pass of *loader* can be given by us."""
        raise NotImplementedError

    def ends_here(self, known: Pass) -> bool:
        """Return whether the rest of a pass that torch's iterator has begun is given by us."""
        raise NotImplementedError

    def give(self, known: Pass) -> Any:
        """Return the next batch of a pass that is ours.

        Raises:
            StopIteration: When it has come to its end.
        """
        raise NotImplementedError

    def iterating(self, original: Any) -> Any:
        """Wrap ``DataLoader.__iter__``: a pass that is ours starts no workers and draws no indices."""

        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:
            known = self.loaders.get(loader)
            if self.probe.on and known is not None and self.is_known(known):
                return Replayed(self, known)
            iterator = original(loader)
            with self.probe.guard():
                if known is None:
                    known = self.loaders[loader] = Loader()
                    known.batches = self.batches_of(loader)
                self.passes[iterator] = Pass(known)
            return iterator

        return __iter__

    def batches_of(self, loader: Any) -> int | None:
        """Return the batches of an epoch; None where the loader does not tell, or only guesses.

        Several workers that read one iterable data set may give as many batches each.
        """
        iterable = loader._dataset_kind == dataloader._DatasetKind.Iterable
        if iterable and loader.num_workers > 1:
            return None
        try:
            return int(self.length(loader)) if iterable else len(loader._index_sampler)
        except (TypeError, NotImplementedError):
            return None

    def taking(self, original: Any) -> Any:
        """Wrap ``__next__`` of torch's iterators: a pass that was begun changes over to our batches."""

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:
            known = None if is_compiling() or not self.probe.on else self.passes.get(iterator)
            if known is None:
                return original(iterator)
            if known.ours or self.takes_over(known, iterator):
                return self.give(known)
            try:
                batch = original(iterator)
            except StopIteration:
                known.loader.batches = known.taken
                raise
            with self.probe.guard():
                known.taken += 1
                self.last = known.loader
                if known.loader.again is None:
                    known.loader.again = Again(batch)
            return batch

        return __next__

    def takes_over(self, known: Pass, iterator: Any) -> bool:
        """End the workers of a pass that is ours from now on; return whether it is."""
        if self.ends_here(known):
            known.ours = True
            stop = getattr(iterator, "_shutdown_workers", None)
            if stop is not None:
                stop()
        return known.ours


class Replaying(Passes):
    """Gives the first batch of each loader that trains again and again."""

    def __init__(self, probe: Probe, name: str, endless: bool) -> None:
        self.endless = endless
        super().__init__(probe, name)

    def is_known(self, loader: Loader) -> bool:
        """Return whether *loader* trains, and it is known where a pass ends."""
        return loader.trains and loader.again is not None and (self.endless or loader.batches is not None)

    def ends_here(self, known: Pass) -> bool:
        return self.is_known(known.loader)

    def give(self, known: Pass) -> Any:
        loader = known.loader
        if loader.again is None or (loader.batches is not None and known.taken >= loader.batches):
            raise StopIteration
        known.taken += 1
        self.last = loader
        self.counts.add()
        return loader.again.give()


class Shortening(Passes):
    """Ends each pass of a loader that evaluates after LEFT batches.

    It evaluates where a module was called with gradients off since the training last went on, and no backward pass ever
    followed a batch of the loader's. What comes before the first backward pass of all is left alone.
    """

    def forget(self) -> None:
        super().forget()
        self.training = False

    def backward(self, *_: object, **__: object) -> None:
        super().backward()
        self.training = True

    def is_known(self, loader: Loader) -> bool:
        return loader.shortened and not loader.trains

    def ends_here(self, known: Pass) -> bool:
        evaluates = self.recorder.accounting.base // len(Activity) == Phase.EVALUATE
        if not evaluates or not self.training or known.loader.trains or known.taken < LEFT:
            return False
        known.loader.shortened = True
        return True

    def give(self, known: Pass) -> Any:
        again = known.loader.again
        if again is None or known.taken >= LEFT:
            self.counts.add()
            self.last = None  # the batch of the next backward pass may come from elsewhere, unseen
            raise StopIteration
        known.taken += 1
        return again.give()
