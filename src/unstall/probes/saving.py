"""Checkpoints: calls of ``torch.save``, of safetensors, and of `torch.distributed.checkpoint`."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import torch

from unstall.model.wire import Activity, Kind, Phase
from unstall.probes._around import around
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch"
# module -> functions that write what they are given first, each with the name of the parameter that says where to.
# Wrapped where they are defined, as soon as they are: who imports their names later gets the wrapped ones.
WRITERS = {
    "safetensors.torch": {"save_file": "filename"},
    "torch.distributed.checkpoint.state_dict_saver": {"save": "checkpoint_id", "async_save": "checkpoint_id"},
}


def install(probe: Probe) -> None:
    saving = Saving(probe)
    torch.save = torch.serialization.save = saving.timed(torch.save, "f")
    for module in WRITERS:
        probe.recorder.when(module, saving.wrap)


class Saving:
    """Times saves; one inside another (a sharded checkpoint is many calls of ``torch.save``) is part of that one."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder

    def wrap(self, module: ModuleType) -> None:
        with self.probe.guard():
            for name, target in WRITERS[module.__name__].items():
                if (function := getattr(module, name, None)) is not None:
                    setattr(module, name, self.timed(function, target))

    def timed(self, original: Any, name: str) -> Any:
        def before(*args: Any, **kwargs: Any) -> tuple[int, int, Any, bool]:
            accounting = self.recorder.accounting
            inside = accounting.here() // len(Activity) == Phase.CHECKPOINT
            target = args[1] if len(args) > 1 else kwargs.get(name)
            return accounting.enter_phase(Phase.CHECKPOINT, Activity.IO), accounting.at, target, inside

        def after(token: tuple[int, int, Any, bool]) -> None:
            depth, start, target, inside = token
            end = self.recorder.accounting.leave(depth)
            if not inside:
                user, library = call_site(3)
                self.recorder.span(Kind.CHECKPOINT, start, end, f"{user}|{library}", written(target), rare=True)

        return around(self.probe, original, before, after)


def written(target: Any) -> int:
    """Return the size of what was written to *target*, bytes; 0 where it cannot be told."""
    try:
        if not isinstance(target, (str, os.PathLike)):
            return int(target.tell())
        path = os.fspath(target)
        if not os.path.isdir(path):
            return os.stat(path).st_size
        return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())  # a sharded checkpoint
    except (OSError, AttributeError, ValueError):
        return 0
