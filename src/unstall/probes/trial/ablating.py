"""What a trial takes away to see how much a layer costs at most.  Such a trial trains nothing right: only its time counts.

``"ablate"`` of the trial in config.json lists what is taken away, and ``"ablated"`` of what was captured counts how often:

    input           a loader that trains gives its first batch again and again, for as many batches as the epoch has
    input-endless   the same, and a loader that does not tell how many batches it has never comes to its end
    input-maker     the same for the function that makes the batches of a loop without a loader
    checkpoint      torch.save, safetensors and torch.distributed.checkpoint write nothing
    logging         from the first backward pass on print, loggers, SummaryWriter, wandb and progress bars say nothing

The first batch after the first backward pass is the first one that is given again.  The loader's workers are ended then: left
alone, they would make batches at full speed that nobody takes.  Later passes make no iterator of torch's at all.
"""

from __future__ import annotations

import builtins
import functools
import os
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from threading import get_ident
from types import CodeType, ModuleType
from typing import Any

import torch
from torch.utils.data import dataloader

from unstall.probes._around import is_compiling
from unstall.probes._recorder import Probe
from unstall.probes.batches import Producers
from unstall.probes.trial._again import Again
from unstall.probes.trial._asked import ablated

AFTER = "torch"
INPUT, ENDLESS, MAKER, CHECKPOINT, LOGGING = "input", "input-endless", "input-maker", "checkpoint", "logging"
# module -> functions that write what they are given first, each with the name of the parameter that says where to
WRITERS = {
    "safetensors.torch": {"save_file": "filename", "save_model": "filename"},
    "torch.distributed.checkpoint.state_dict_saver": {"save": "checkpoint_id", "async_save": "checkpoint_id"},
}
# module -> class in it -> beginnings of the names of its methods that say something and return nothing of use
SAYING: dict[str, dict[str, tuple[str, ...]]] = {
    "logging": {"Logger": ("handle",)},
    "torch.utils.tensorboard.writer": {"SummaryWriter": ("add_", "flush")},
    "tensorboardX.writer": {"SummaryWriter": ("add_", "flush")},
    "wandb.sdk.wandb_run": {"Run": ("log",)},
    "tqdm.std": {"tqdm": ("display",)},
}


def install(probe: Probe) -> None:
    wanted = ablated(probe.recorder.config)
    if INPUT in wanted or ENDLESS in wanted:
        Replaying(probe, ENDLESS in wanted)
    if MAKER in wanted:
        Making(probe)
    if CHECKPOINT in wanted:
        Writing(probe)
    if LOGGING in wanted:
        Silencing(probe)


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


# ------------------------------------------------------------------ the input


class Loader:
    """What is known of one loader.

    Attributes:
        again: its first batch; None until one was taken.
        batches: of an epoch; None where that is not known, or not before a pass has come to its end.
        trains: whether a backward pass followed one of its batches.
    """

    def __init__(self) -> None:
        self.again: Again | None = None
        self.batches: int | None = None
        self.trains = False


class Pass:
    """One pass through a loader: how many batches were taken, and whether they are given again by now."""

    def __init__(self, loader: Loader) -> None:
        self.loader, self.taken, self.replays = loader, 0, False


class Replayed:
    """Stands in for the iterator of a later pass."""

    def __init__(self, owner: Replaying, loader: Loader) -> None:
        self._owner, self._pass = owner, Pass(loader)

    def __iter__(self) -> Replayed:
        return self

    def __next__(self) -> Any:
        return self._owner.give(self._pass)

    def __len__(self) -> int:
        return self._pass.loader.batches or 0


class Replaying:
    """Gives the first batch of each loader that trains again and again."""

    def __init__(self, probe: Probe, endless: bool) -> None:
        self.probe, self.recorder, self.endless = probe, probe.recorder, endless
        self.counts = Counts(probe, INPUT)
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

    def iterating(self, original: Any) -> Any:
        """Wrap ``DataLoader.__iter__``: a later pass of a loader that trains starts no workers and draws no indices."""

        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:
            known = self.loaders.get(loader)
            if self.probe.on and known is not None and known.trains and self.ends(known):
                return Replayed(self, known)
            iterator = original(loader)
            with self.probe.guard():
                if known is None:
                    known = self.loaders[loader] = Loader()
                    known.batches = self.batches_of(loader)
                self.passes[iterator] = Pass(known)
            return iterator

        return __iter__

    def ends(self, loader: Loader) -> bool:
        """Return whether it is known where a pass through *loader* ends, and there is a batch to be given."""
        return loader.again is not None and (self.endless or loader.batches is not None)

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
        """Wrap ``__next__`` of torch's iterators: the first pass changes over to its first batch as soon as it trains."""

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:
            known = None if is_compiling() or not self.probe.on else self.passes.get(iterator)
            if known is None:
                return original(iterator)
            if known.replays or self.begins(known, iterator):
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

    def begins(self, known: Pass, iterator: Any) -> bool:
        """End the workers of a pass whose batches are given again from now on; return whether they are."""
        if known.loader.trains and self.ends(known.loader):
            known.replays = True
            stop = getattr(iterator, "_shutdown_workers", None)
            if stop is not None:
                stop()
        return known.replays

    def give(self, known: Pass) -> Any:
        """Return the first batch once more.

        Raises:
            StopIteration: When the pass has given as many batches as the epoch has.
        """
        loader = known.loader
        if loader.again is None or (loader.batches is not None and known.taken >= loader.batches):
            raise StopIteration
        known.taken += 1
        self.last = loader
        self.counts.add()
        return loader.again.give()


class Making(Producers):
    """Finds the function that makes the batches of a loop without a loader, and lets it return its first one again.

    One batch is kept for each set of arguments. Without gradients, where a loop evaluates, the function is left alone.
    """

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self.counts = Counts(probe, INPUT)

    def timed(self, original: Any, code: CodeType) -> Any:
        made: dict[str, Again] = {}

        @functools.wraps(original)
        def again(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not self.probe.on or not torch.is_grad_enabled():
                return original(*args, **kwargs)
            asked = str([plain(one) for one in (*args, *kwargs, *kwargs.values())])
            kept = made.get(asked)
            if kept is not None:
                self.counts.add()
                return kept.give()
            batch = original(*args, **kwargs)
            with self.probe.guard():
                made[asked] = Again(batch)
            return batch

        return again


def plain(value: object) -> str:
    """Return what tells an argument from others: of an object, as the data, its type only."""
    return repr(value) if isinstance(value, (str, int, float, bool)) else type(value).__name__


# ------------------------------------------------------------------ checkpoints


class Writing:
    """Lets the functions that write checkpoints write nothing.

    A file that would have been made is made empty, so that it can be renamed; only in the folder that the trial runs in, which
    is a copy.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe, self.counts = probe, Counts(probe, CHECKPOINT)
        self.here = os.path.realpath(os.getcwd())
        torch.save = torch.serialization.save = self.writing_nothing(torch.save, "f")
        for module in WRITERS:
            probe.recorder.when(module, self.wrap)

    def wrap(self, module: ModuleType) -> None:
        with self.probe.guard():
            for name, target in WRITERS[module.__name__].items():
                if (function := getattr(module, name, None)) is not None:
                    setattr(module, name, self.writing_nothing(function, target))

    def writing_nothing(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        later = "async" in original.__name__

        @functools.wraps(original)
        def written(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not self.probe.on:
                return original(*args, **kwargs)
            with self.probe.guard():
                self.counts.add()
                self.leave_name(args[1] if len(args) > 1 else kwargs.get(name))
            if not later:
                return None
            done: Future[None] = Future()
            done.set_result(None)
            return done

        return written

    def leave_name(self, target: Any) -> None:
        if not isinstance(target, (str, os.PathLike)):
            return
        path = os.path.realpath(os.fspath(target))
        folder = os.path.dirname(path)
        if os.path.commonpath([path, self.here]) == self.here and os.path.isdir(folder) and not os.path.exists(path):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


# ------------------------------------------------------------------ what it says


class Silencing:
    """Lets what the training thread says from the first backward pass on be said by nobody."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder, self.counts = probe, probe.recorder, Counts(probe, LOGGING)
        self.trains = False
        self.recorder.at_backward.append((probe, self.backward))
        builtins.print = self.silent(builtins.print)
        for module in SAYING:
            self.recorder.when(module, self.wrap)

    def backward(self, *_: object, **__: object) -> None:
        self.trains = True

    def wrap(self, module: ModuleType) -> None:
        with self.probe.guard():
            for name, beginnings in SAYING[module.__name__].items():
                kind = getattr(module, name)
                for method in [one for one in vars(kind) if one.startswith(beginnings)]:
                    setattr(kind, method, self.silent(getattr(kind, method)))

    def silent(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def said(*args: Any, **kwargs: Any) -> Any:
            if not self.trains or is_compiling() or not self.probe.on or get_ident() != self.recorder.thread:
                return original(*args, **kwargs)
            self.counts.add()
            return None

        return said
