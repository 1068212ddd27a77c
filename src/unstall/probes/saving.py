"""Checkpoints: calls of ``torch.save``."""

from __future__ import annotations

import os
from typing import Any

import torch

from unstall.model.wire import Activity, Kind, Phase
from unstall.probes._around import around
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch"


def install(probe: Probe) -> None:
    recorder = probe.recorder

    def before(obj: object, f: Any = None, *args: object, **kwargs: object) -> tuple[int, int, Any]:
        depth = recorder.accounting.enter_phase(Phase.CHECKPOINT, Activity.IO)
        return depth, recorder.accounting.at, f

    def after(token: tuple[int, int, Any]) -> None:
        depth, start, target = token
        end = recorder.accounting.leave(depth)
        user, library = call_site(3)
        recorder.span(Kind.CHECKPOINT, start, end, f"{user}|{library}", written(target), rare=True)

    torch.save = torch.serialization.save = around(probe, torch.save, before, after)


def written(target: Any) -> int:
    """Return the size of what was written to *target*, bytes; 0 where it cannot be told."""
    try:
        if isinstance(target, (str, os.PathLike)):
            return os.stat(target).st_size
        return int(target.tell())
    except (OSError, AttributeError, ValueError):
        return 0
