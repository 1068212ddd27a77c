"""Optimizer steps, which close the steps of the training."""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import Any

import torch
from torch.optim import optimizer as optim

from unstall.model.wire import BACKWARD_CLOSES, Phase
from unstall.probes._around import around, is_compiling
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch"


def install(probe: Probe) -> None:
    Optimizers(probe)


class Optimizers:
    """Numbers the optimizers, times their steps, and closes a row at the end of each.

    Several optimizers (a GAN) close several rows a step; `accounts/segment.py` merges them.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.numbers: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        self.sites: weakref.WeakKeyDictionary[object, tuple[str, str]] = weakref.WeakKeyDictionary()
        self.depths: list[int] = []
        optim.register_optimizer_step_pre_hook(self.before)
        optim.register_optimizer_step_post_hook(self.after)
        kind = torch.optim.Optimizer
        kind.__init__ = around(probe, kind.__init__, self.made, lambda _: None)
        kind.zero_grad = around(probe, kind.zero_grad, self.enter, self.leave)

    def made(self, optimizer: object, *args: object, **kwargs: object) -> None:
        self.sites[optimizer] = call_site(3)

    def enter(self, *args: object, **kwargs: object) -> int:
        return self.recorder.accounting.enter_phase(Phase.OPTIMIZER) if self.recorder.begun else 0

    def leave(self, depth: int) -> None:
        if depth:
            self.recorder.accounting.leave(depth)

    def before(self, optimizer: Any, args: object, kwargs: object) -> None:
        if is_compiling():
            return
        if not self.probe.on or (get_ident() != self.recorder.thread and not self.recorder.adopt()):
            return
        with self.probe.guard():
            if self.recorder.role == "forked":
                self.recorder.adopt()
            self.recorder.begin_loop()
            self.depths.append(self.recorder.accounting.enter_phase(Phase.OPTIMIZER))

    def after(self, optimizer: Any, args: object, kwargs: object) -> None:
        if is_compiling():
            return
        if not self.probe.on or not self.depths or get_ident() != self.recorder.thread:
            return
        with self.probe.guard():
            self.recorder.accounting.leave(self.depths.pop())
            if self.depths:  # a step inside a step: LBFGS's closure, a wrapping optimizer
                return
            number = self.numbers.get(optimizer)
            if number is None:
                number = self.numbers[optimizer] = len(self.numbers)
                self.describe(number, optimizer)
            if self.recorder.closer in (None, BACKWARD_CLOSES):
                self.recorder.closer = number
            self.recorder.close_step(number)

    def describe(self, number: int, optimizer: Any) -> None:
        site, library = self.sites.get(optimizer, ("", ""))
        group = optimizer.param_groups[0]
        settings = {k: v for k, v in group.items() if isinstance(v, (bool, int, float, str)) or v is None}
        self.recorder.fact(
            {f"optimizer:{number}": {"class": type(optimizer).__name__, "site": site, "library": library, **settings}}
        )
