"""What a trial takes away to see how much a layer costs at most.  Such a trial trains nothing right: only its time counts.

``"ablate"`` of the trial in config.json lists what is taken away, and ``"ablated"`` of what was captured counts how often:

    input           a loader that trains gives its first batch again and again, for as many batches as the epoch has
    input-endless   the same, and a loader that does not tell how many batches it has never comes to its end
    input-maker     the same for the function that makes the batches of a loop without a loader
    evaluation      a loader that evaluates gives two batches; later passes give the first one twice
    checkpoint      torch.save, safetensors and torch.distributed.checkpoint write nothing
    logging         from the first backward pass on print, loggers, SummaryWriter, wandb and progress bars say nothing
"""

from __future__ import annotations

import builtins
import functools
import os
from collections.abc import Callable
from concurrent.futures import Future
from threading import get_ident
from types import CodeType, ModuleType
from typing import Any

import torch

from unstall.probes._around import is_compiling
from unstall.probes._recorder import Probe
from unstall.probes.batches import Producers
from unstall.probes.trial._again import Again
from unstall.probes.trial._asked import ablated
from unstall.probes.trial._passes import Counts, Replaying, Shortening

AFTER = "torch"
INPUT, ENDLESS, MAKER, EVALUATION = "input", "input-endless", "input-maker", "evaluation"
CHECKPOINT, LOGGING = "checkpoint", "logging"
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
        Replaying(probe, INPUT, ENDLESS in wanted)
    if EVALUATION in wanted:
        Shortening(probe, EVALUATION)
    if MAKER in wanted:
        Making(probe)
    if CHECKPOINT in wanted:
        Writing(probe)
    if LOGGING in wanted:
        Silencing(probe)


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
