"""Backward: every entry into the autograd engine, ``loss.backward()`` and ``autograd.grad`` alike."""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any

import torch
import torch.autograd.graph

from unstall.model.wire import BACKWARD_CLOSES, Phase
from unstall.probes._around import is_compiling
from unstall.probes._recorder import Probe

AFTER = "torch"
# plain numbers: an enumeration's member costs a call of Python code in 3.11
BACKWARD, BETWEEN = int(Phase.BACKWARD), int(Phase.BETWEEN)
WITHOUT_OPTIMIZER = 3  # backward passes without any optimizer step, after which backward itself closes the steps


def install(probe: Probe) -> None:
    recorder = probe.recorder
    original = torch.autograd.graph._engine_run_backward
    seen = [0]

    def enter() -> int:
        if recorder.role == "forked":
            recorder.adopt()
        recorder.claimed = True
        recorder.begin_loop()
        return recorder.accounting.enter_phase(BACKWARD)

    def leave(depth: int) -> None:
        recorder.accounting.leave(depth)
        if depth > 1:
            return
        recorder.accounting.set_base(BETWEEN)
        if recorder.closer is None:
            seen[0] += 1
            if seen[0] > WITHOUT_OPTIMIZER:
                recorder.closer = BACKWARD_CLOSES
        if recorder.closer == BACKWARD_CLOSES:
            recorder.close_step(BACKWARD_CLOSES)

    @functools.wraps(original)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not probe.on or (get_ident() != recorder.thread and not recorder.adopt()):
            return original(*args, **kwargs)
        depth = -1
        with probe.guard():
            depth = enter()
        try:
            return original(*args, **kwargs)
        finally:
            if depth >= 0:
                with probe.guard():
                    leave(depth)

    # The name is imported into both namespaces, and each caller uses its own.
    torch.autograd.graph._engine_run_backward = run_backward
    torch.autograd._engine_run_backward = run_backward
