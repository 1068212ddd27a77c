"""Optimizer steps, which close the steps of the training."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.optim import optimizer as optim

from unstall.model.wire import BACKWARD_CLOSES, Phase
from unstall.probes._around import around, is_compiling
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch"
# plain numbers: an enumeration's member costs a call of Python code in 3.11
OPTIMIZER = int(Phase.OPTIMIZER)


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
        self.open: list[tuple[object, int]] = []  # optimizers that step now, each with its depth
        self.last: tuple[Callable[[], object], int] = (lambda: self, -1)  # the optimizer that stepped last, its number
        self.count = -1
        self.described: dict[str, int] = {}  # what an optimizer is -> its number
        optim.register_optimizer_step_pre_hook(self.before)
        optim.register_optimizer_step_post_hook(self.after)
        kind = torch.optim.Optimizer
        kind.__init__ = around(probe, kind.__init__, self.made, lambda _: None)

    def made(self, optimizer: object, *args: object, **kwargs: object) -> None:
        self.sites[optimizer] = call_site(3)

    def before(self, optimizer: Any, args: object, kwargs: object) -> None:
        if is_compiling():
            return
        if not self.probe.on or (get_ident() != self.recorder.thread and not self.recorder.adopt()):
            return
        try:
            if not self.recorder.claimed:
                self.recorder.claim()
            if self.open:
                self.forget_failed(optimizer)
            self.open.append((optimizer, self.recorder.accounting.enter_phase(OPTIMIZER)))
        except Exception as error:
            self.probe.switch_off(error)

    def after(self, optimizer: Any, args: object, kwargs: object) -> None:
        if is_compiling():
            return
        if not self.probe.on or not self.open or get_ident() != self.recorder.thread:
            return
        try:
            _, depth = self.open.pop()
            if self.open:  # a step inside a step: LBFGS's closure, a wrapping optimizer
                self.recorder.accounting.leave(depth)
                return
            number = self.last[1] if self.last[0]() is optimizer else self.known(optimizer)
            closer = self.recorder.closer
            if closer != number and (closer in (None, BACKWARD_CLOSES) or closer not in self.numbers.values()):
                self.recorder.closer = number
            self.recorder.close_step(number, depth)
        except Exception as error:
            self.probe.switch_off(error)
            self.recorder.unwind()  # its phase would stay open, and backward, which now closes steps, lie within it

    def known(self, optimizer: Any) -> int:
        number = self.numbers.get(optimizer)
        if number is None:
            number = self.number(optimizer)
        self.last = weakref.ref(optimizer), number
        return number

    def forget_failed(self, optimizer: object) -> None:
        """Close a step of *optimizer* that an error left open (an out-of-memory that the loop goes on from)."""
        for at, (other, depth) in enumerate(self.open):
            if other is optimizer:
                self.recorder.accounting.leave(depth)
                del self.open[at:]
                return

    def number(self, optimizer: Any) -> int:
        """Number *optimizer*; one made like an earlier one that is gone (the next fold) takes its place."""
        what = self.describe(optimizer)
        key = json.dumps(what, default=str)
        known = self.described.get(key)
        if known is None or known in self.numbers.values():
            known = self.count = self.count + 1
            self.described[key] = known
            self.recorder.fact({f"optimizer:{known}": what})
        self.numbers[optimizer] = known
        return known

    def describe(self, optimizer: Any) -> dict[str, object]:
        site, library = self.sites.get(optimizer, ("", ""))
        group = optimizer.param_groups[0]
        settings = {k: v for k, v in group.items() if isinstance(v, (bool, int, float, str)) or v is None}
        return {"class": type(optimizer).__name__, "site": site, "library": library, **settings}
