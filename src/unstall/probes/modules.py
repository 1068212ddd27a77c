"""Forward: calls of the outermost module, found by looking and then wrapped on its class.

Global module hooks, or hooks on instances, would leave a model uncompiled; a wrapper on the class that
folds away under Dynamo does not.  To learn the outermost classes ``nn.Module.__call__`` is swapped for the
first steps only, and put back; and for as long as something is compiled, which would guard on what stands there.
"""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any

import torch

from unstall.model.wire import Activity, Phase, cell
from unstall.probes._around import is_compiling
from unstall.probes._recorder import Probe
from unstall.probes._windows import on_windows

AFTER = "torch"
# plain numbers: an enumeration's member costs a call of Python code in 3.11
FORWARD, EVALUATE = int(Phase.FORWARD), int(Phase.EVALUATE)
AFTER_FORWARD, AFTER_EVALUATE = cell(FORWARD, Activity.UNKNOWN), cell(EVALUATE, Activity.UNKNOWN)
is_grad_enabled = torch.is_grad_enabled
LOOK_STEPS = 4  # steps over which outermost classes are learned; an evaluation may come later and is looked for again
LOOK_AGAIN = (200, 1024)  # of the steps that probes hear of


def install(probe: Probe) -> None:
    Forward(probe)


class Forward:
    """Learns the outermost module classes and times their calls."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.wrapped: set[type] = set()
        self.inside = False
        self.after = AFTER_FORWARD  # the base of the time after the call under way
        self.original = torch.nn.Module.__call__
        self.looking = self.paused = False
        self.look()
        self.recorder.at_step.append((probe, self.at_step))
        self.recorder.in_child.append(self.reset)
        self.recorder.when("torch._dynamo.utils", self.name_original)
        self.recorder.when("torch._dynamo.callback", lambda module: on_windows(probe, module, self.pause, self.go_on))

    def reset(self) -> None:
        self.inside = False

    def at_step(self, step: int) -> None:
        if self.looking and step >= LOOK_STEPS and step not in LOOK_AGAIN:
            self.stop_looking()
        elif step in LOOK_AGAIN and not self.looking:
            self.look()

    def look(self) -> None:
        """Swap ``nn.Module.__call__`` so that outermost modules of unknown classes are seen."""
        original, forward = self.original, self

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or forward.inside or not (forward.probe.on and forward.looking):
                return original(module, *args, **kwargs)
            return forward.learn(module, args, kwargs)

        if torch.nn.Module.__call__ is original:
            torch.nn.Module.__call__ = __call__
            self.swapped, self.looking = __call__, True

    def stop_looking(self) -> None:
        if torch.nn.Module.__call__ is self.swapped:
            torch.nn.Module.__call__ = self.original
        self.looking = False

    def name_original(self, module: Any) -> None:
        """Let Dynamo know the usual call of modules: it takes what stands there when it is imported."""
        if getattr(module, "unpatched_nn_module_call", None) is self.swapped:
            module.unpatched_nn_module_call = self.original

    def pause(self, *args: Any) -> None:
        if torch.nn.Module.__call__ is self.swapped and get_ident() == self.recorder.thread:
            torch.nn.Module.__call__, self.paused = self.original, True

    def go_on(self, *args: Any) -> None:
        if self.paused and get_ident() == self.recorder.thread:
            self.paused = False
            if self.looking and torch.nn.Module.__call__ is self.original:
                torch.nn.Module.__call__ = self.swapped

    def learn(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Wrap the class of *module* if it holds parameters, and make this call."""
        kind, new = type(module), False
        with self.probe.guard():
            new = kind not in self.wrapped and next(iter(module.parameters()), None) is not None
            if new:
                self.wrapped.add(kind)
                kind.__call__ = self.timing(kind.__call__)
        if new:
            return kind.__call__(module, *args, **kwargs)
        return self.original(module, *args, **kwargs)

    def timing(self, called: Any) -> Any:
        """Wrap *called*, the call of a class of modules. In one function, as it is called each step.

        Where that is ``nn.Module.__call__`` it is looked up at each call: `torch.fx` replaces it while it traces.
        """
        forward, probe, recorder, module_class = self, self.probe, self.recorder, torch.nn.Module
        swapped, is_usual = self.swapped, called in (self.original, self.swapped)
        original = self.original if is_usual else called

        @functools.wraps(original)
        def observed(module: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(module, *args, **kwargs)
            now = module_class.__call__ if is_usual else original
            if now is swapped:
                now = original
            if forward.inside or not probe.on or get_ident() != recorder.thread:
                return now(module, *args, **kwargs)
            depth = recorder.accounting.depth
            try:
                forward.enter(args, kwargs)
            except Exception as error:
                recorder.accounting.leave(depth)
                probe.switch_off(error)
                return now(module, *args, **kwargs)
            forward.inside = True
            try:
                return now(module, *args, **kwargs)
            finally:
                forward.inside = False
                # the loss belongs to the forward
                if depth == 1 and recorder.begun:
                    recorder.accounting.leave_all(forward.after)
                else:
                    recorder.accounting.leave(depth)

        return observed

    def enter(self, args: Any, kwargs: Any) -> None:
        recorder = self.recorder
        if not is_grad_enabled():
            recorder.accounting.enter_phase(EVALUATE)
            self.after = AFTER_EVALUATE
            return
        if recorder.role == "forked":
            recorder.adopt()
        if not recorder.begun:
            recorder.begin_loop()
        recorder.accounting.enter_phase(FORWARD)
        if recorder.wants_batch and recorder.saw_batch is not None:
            recorder.saw_batch(args, kwargs)
        self.after = AFTER_FORWARD
