"""Lockstep: a few steps that two runs make from the same state, with their gradients and what they did to the parameters.

Two runs that only round otherwise drift apart, so nothing can be told from their losses after a while.  At each *point*, a
number of steps, counted from 0 by the optimizer that stepped first, the base run saves its state and the run with the
remedy loads it, so both make that step from the same state on the same batch.  Kept of that step: every gradient just
before its first optimizer step, and the change of every parameter at its end, as raw float32 in
``captured-PID-gradients-STEP.bin`` and ``-updates-STEP.bin``.  Above `MOST_ELEMENTS` parameters one in so many is kept.

With ``ulp`` each loaded parameter is moved by about a unit in its last place, up or down: what the step then gives differs
by no more than rounding does, and says how far that is (Parker 1997, Monte Carlo arithmetic).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import optimizer as optim

from unstall.probes._around import is_compiling
from unstall.probes._limits import rank
from unstall.probes._recorder import Probe
from unstall.probes.trial import _state
from unstall.probes.trial._asked import Asked, Updated, asked, local, name_of_process, note, write_bytes

AFTER = "torch"
MOST_ELEMENTS = 1 << 26  # 256 MiB a point for gradients, as much for updates


def install(probe: Probe) -> None:
    trial = asked(probe.recorder.config)
    if trial is not None and trial.points:
        Lockstep(probe, trial)


class Lockstep:
    """Counts the steps, and keeps what the points ask for.

    Attributes:
        steps: made so far by the optimizer that closes them.
        before: values of the parameters at the start of the point that is open now; None where none is.
    """

    def __init__(self, probe: Probe, trial: Asked) -> None:
        self.probe, self.recorder, self.trial = probe, probe.recorder, trial
        self.updated = Updated(probe)
        self.steps = 0
        self.depth = 0  # optimizers that step now: a step inside a step is part of it
        self.closer: Callable[[], Any] = lambda: None
        self.parameters: list[Any] = []
        self.before: list[Any] | None = None
        self.open: dict[str, Any] = {}
        self.kept: dict[int, dict[str, Any]] = {}
        self.recorder.at_end.append((probe, lambda: {"points": self.kept}))
        optim.register_optimizer_step_pre_hook(self.before_step)
        optim.register_optimizer_step_post_hook(self.after_step)

    def before_step(self, optimizer: Any, *_: object) -> None:
        if is_compiling() or not self.updated.trains_here():
            return
        with self.probe.guard():
            self.updated.saw(optimizer)
            if self.closer() is None:
                self.closer = weakref.ref(optimizer)
            if self.before is not None and "gradients" not in self.open:
                self.keep("gradients", [parameter.grad for parameter in self.parameters])

    def after_step(self, optimizer: Any, *_: object) -> None:
        if is_compiling() or not self.updated.trains_here() or optimizer is not self.closer():
            return
        with self.probe.guard():
            if self.before is not None:
                self.close()
            self.steps += 1
            if self.steps in self.trial.points:
                self.begin()

    def begin(self) -> None:
        """Save or load the state at the start of a point, and remember the parameters."""
        self.parameters = self.updated.parameters()
        if not self.is_placed():
            return
        if self.trial.ulp:
            perturb(self.parameters, 1_000 * self.trial.ulp + self.steps)
        stride = self.stride()
        self.open = {"stride": stride, "passes": [self.passes()]}
        self.before = [piece.clone() for piece in strided(self.parameters, self.parameters, stride)]
        if stride > 1:
            note(self.probe, f"of gradients and updates one in {stride} elements was kept")

    def is_placed(self) -> bool:
        """Return whether the state is that of the point: saved from here, loaded, or neither asked for."""
        try:
            if self.trial.save_points:
                _state.save(self.place(self.trial.save_points), self.updated)
            if self.trial.load_points:
                path = self.place(self.trial.load_points)
                if not os.path.exists(path):
                    note(self.probe, f"no state was saved for step {self.steps}")
                    return False
                if not _state.load(path, self.updated, lambda words: note(self.probe, words)):
                    note(self.probe, f"the state of step {self.steps} has other parameters, so it was not loaded")
                    return False
        except (_state.NoRoom, OSError) as error:
            note(self.probe, f"the state of step {self.steps} could not be kept: {error}")
            return False
        return True

    def place(self, folder: str) -> str:
        return os.path.join(folder, f"state-{rank()}-{self.steps}.pt")

    def close(self) -> None:
        """Keep what the step did to the parameters."""
        before, self.before = self.before or [], None
        after = strided(self.parameters, self.parameters, self.open["stride"])
        with torch.no_grad():
            changes = [new.cpu().double() - old.cpu().double() for new, old in zip(after, before)]
        self.write("updates", changes)
        self.open["passes"].append(self.passes())
        self.kept[self.steps] = self.open

    def keep(self, what: str, tensors: list[Any]) -> None:
        self.write(what, strided(tensors, self.parameters, self.open["stride"]))

    def write(self, what: str, parts: list[Any]) -> None:
        """Write *parts*, one after another, as float32."""
        name = f"{name_of_process()}-{what}-{self.steps}.bin"
        flat = [part.float().cpu() for part in parts]
        write_bytes(os.path.join(self.recorder.recording, name), torch.cat(flat) if flat else torch.zeros(0))
        self.open[what] = name

    def stride(self) -> int:
        return -(-sum(local(parameter).numel() for parameter in self.parameters) // MOST_ELEMENTS) or 1

    def passes(self) -> int:
        return self.recorder.losses.count if self.recorder.losses is not None else 0


def strided(tensors: list[Any], parameters: list[Any], stride: int) -> list[Any]:
    """Return every *stride*-th element of *tensors* one after another, flat; zeros where a parameter has none."""
    parts, skip = [], 0
    for tensor, parameter in zip(tensors, parameters):
        size = local(parameter).numel()
        if tensor is None:
            flat = torch.zeros(size, device=local(parameter).device)
        else:
            flat = local(tensor)
            flat = (flat.to_dense() if flat.is_sparse else flat).reshape(-1)
        parts.append(flat[skip::stride] if skip < size else flat[:0])
        skip = (skip - size) % stride
    return parts


def perturb(parameters: list[Any], seed: int) -> None:
    """Multiply each element by 1 + or - its data type's epsilon; the training's generators are left alone."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters:
            values = local(parameter)
            if values.is_floating_point():
                signs = torch.randint(0, 2, values.shape, generator=generator, dtype=torch.int8) * 2 - 1
                exact = values.cpu().double()
                values.copy_(exact + exact * signs * torch.finfo(values.dtype).eps)
