"""Backward: every entry into the autograd engine, ``loss.backward()`` and ``autograd.grad`` alike."""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any

import torch
import torch.autograd.graph

from unstall.model.wire import BACKWARD_CLOSES, Activity, Phase, cell
from unstall.probes._around import is_compiling
from unstall.probes._recorder import Probe

AFTER = "torch"
# plain numbers: an enumeration's member costs a call of Python code in 3.11
BACKWARD, IN_BETWEEN = int(Phase.BACKWARD), cell(Phase.BETWEEN, Activity.UNKNOWN)
TELL_UNTIL = 64  # passes of which the probes hear of each; later of one in `Recorder.tell_every`
WITHOUT_OPTIMIZER = 3  # backward passes without any optimizer step, after which backward itself closes the steps


def install(probe: Probe) -> None:
    recorder = probe.recorder
    original = torch.autograd.graph._engine_run_backward
    passes = 0

    def enter(args: Any, kwargs: Any) -> None:
        if not recorder.claimed:
            recorder.claim()
        for one, act in recorder.at_backward:
            if one.on:
                with one:
                    act(passes, *args, **kwargs)

    def close() -> None:
        if recorder.closer is None and passes > WITHOUT_OPTIMIZER:
            recorder.closer = BACKWARD_CLOSES
        if recorder.closer == BACKWARD_CLOSES:
            recorder.close_step(BACKWARD_CLOSES)

    @functools.wraps(original)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        nonlocal passes
        if is_compiling() or not probe.on or (get_ident() != recorder.thread and not recorder.adopt()):
            return original(*args, **kwargs)
        try:
            passes += 1
            if passes <= TELL_UNTIL or not passes % recorder.tell_every or not recorder.claimed:
                enter(args, kwargs)
            depth = recorder.accounting.enter_phase(BACKWARD)
        except Exception as error:
            probe.switch_off(error)
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            try:
                if depth > 1:
                    recorder.accounting.leave(depth)
                else:
                    recorder.accounting.leave_all(IN_BETWEEN)
                    if recorder.closer is None or recorder.closer == BACKWARD_CLOSES:
                        close()
            except Exception as error:
                probe.switch_off(error)

    # The name is imported into both namespaces, and each caller uses its own.
    torch.autograd.graph._engine_run_backward = run_backward
    torch.autograd._engine_run_backward = run_backward
