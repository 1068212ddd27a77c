"""Loops without a DataLoader: find the function whose return value reaches the model, and time it as the fetch.

A few early steps run under ``sys.setprofile``, one at a time; then the function is wrapped where it is defined.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

import torch

from unstall.model.wire import Activity, Kind, Phase
from unstall.probes._around import around
from unstall.probes._recorder import Probe
from unstall.probes._sites import is_users

AFTER = "torch"
FIRST_STEP, TRIES = 2, 3


def install(probe: Probe) -> None:
    Producers(probe)


class Producers:
    """Watches the returns of user functions during a step, and matches them with what the model is called with."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.returned: dict[int, tuple[FrameType, CodeType, object]] = {}
        self.found = False
        self.watching = False
        self.recorder.saw_batch = self.saw_batch
        self.recorder.at_step.append((probe, self.at_step))
        self.recorder.in_child.append(self.stop)

    def at_step(self, step: int) -> None:
        if self.watching:
            self.stop()
        elif not self.found and FIRST_STEP <= step < FIRST_STEP + 2 * TRIES and not self.loads():
            self.start()

    def loads(self) -> bool:
        loaders = self.recorder.loaders
        return loaders is not None and bool(loaders.trains)

    def start(self) -> None:
        if sys.getprofile() is None:  # a profiler of the user's own stays in place
            self.watching = self.recorder.wants_batch = True
            sys.setprofile(self.on_event)

    def stop(self) -> None:
        if sys.getprofile() == self.on_event:
            sys.setprofile(None)
        self.watching = False
        self.returned.clear()

    def on_event(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "return" and value is not None and is_users(frame.f_code.co_filename):
            for tensor in tensors_of(value):
                self.returned[id(tensor)] = (frame, frame.f_code, tensor)

    def saw_batch(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        loaders = self.recorder.loaders
        if loaders is not None and loaders.last >= 0 and loaders.last not in loaders.trains:
            loaders.reached_forward()
        if self.watching and not self.found:
            with self.probe.guard():
                self.match(args, kwargs)
        self.recorder.wants_batch = False

    def match(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        sys.setprofile(None)
        self.watching = False
        for tensor in tensors_of([*args, *kwargs.values()]):
            made = self.returned.get(id(tensor))
            if made is not None and self.wrap(made[0], made[1]):
                self.found = True
                break
        self.returned.clear()

    def wrap(self, frame: FrameType, code: CodeType) -> bool:
        """Wrap the function of *code* where its module or its object's class holds it; return whether it could be."""
        owner: Any = frame.f_globals
        function = owner.get(code.co_name)
        if getattr(function, "__code__", None) is code:
            owner[code.co_name] = self.timed(function, code)
            return True
        for kind in type(frame.f_locals.get("self")).__mro__:
            function = vars(kind).get(code.co_name)
            if getattr(function, "__code__", None) is code:
                setattr(kind, code.co_name, self.timed(function, code))
                return True
        return False

    def timed(self, function: Any, code: CodeType) -> Any:
        recorder = self.recorder
        name = f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}"
        recorder.fact({"producer:0": {"site": name}})

        def before(*args: object, **kwargs: object) -> tuple[int, int]:
            accounting = recorder.accounting
            evaluates = accounting.here() // len(Activity) == Phase.EVALUATE
            depth = accounting.enter_phase(Phase.EVALUATE if evaluates else Phase.FETCH, Activity.LOAD)
            return depth, accounting.at

        def after(token: tuple[int, int]) -> None:
            depth, start = token
            recorder.span(Kind.LOAD, start, recorder.accounting.leave(depth), name)

        return around(self.probe, function, before, after)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors without gradients in *value*, one container deep."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else (value,)
    return [part for part in parts if isinstance(part, torch.Tensor) and not part.requires_grad]
