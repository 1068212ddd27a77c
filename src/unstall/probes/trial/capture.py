"""What a trial keeps of its training: the loss of every backward pass and a digest of the final parameters.

Nothing is read while the training runs: each loss is copied on its own device and brought to the host at the end.  Written at
the end in good order to ``captured-PID.json``, with what the other probes of a trial have to tell, and
``captured-PID-losses.bin``: float64, one a backward pass, NaN where it started from no scalar.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from typing import Any

import torch
from torch.optim import optimizer as optim

from unstall.probes._limits import rank
from unstall.probes._recorder import Probe
from unstall.probes.trial._asked import Updated, asked, local, name_of_process, note, pieces, write_bytes

AFTER = "torch"
FORMAT = 1
MOST_LOSSES = 200_000  # 8 bytes each
CHUNK = 1024  # losses kept in one tensor
TRACED = {"FakeTensor", "FunctionalTensor"}  # a compiler traces: no backward pass is made


def install(probe: Probe) -> None:
    if asked(probe.recorder.config) is not None:
        Capture(probe)


class Losses:
    """The scalars that backward passes start from, in order, each on its own device until they are asked for."""

    def __init__(self) -> None:
        self.chunks: list[tuple[Any, int]] = []  # full ones, and how much of each is used
        self.chunk: Any = None
        self.used = 0
        self.count = 0

    def keep(self, outputs: Any) -> None:
        """Add the sum of *outputs*; NaN unless all are scalars. A pass that a compiler traces is none."""
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        if any(type(output).__name__ in TRACED for output in outputs) or self.count >= MOST_LOSSES:
            return
        self.count += 1
        scalars = bool(outputs) and all(output.numel() == 1 for output in outputs) and not _capturing(outputs[0])
        device = outputs[0].device if scalars else self.chunk.device if self.chunk is not None else torch.device("cpu")
        if self.chunk is None or self.used == CHUNK or self.chunk.device != device:
            self.begin(device)
        if scalars:
            with torch.no_grad():
                slot = self.chunk[self.used]
                slot.copy_(local(outputs[0]).reshape(()))
                for output in outputs[1:]:
                    slot.add_(local(output).reshape(()).to(device))
        self.used += 1

    def begin(self, device: Any) -> None:
        self.end()
        kind = torch.float32 if device.type == "mps" else torch.float64
        self.chunk = torch.full((CHUNK,), float("nan"), dtype=kind, device=device)

    def end(self) -> None:
        if self.used:
            self.chunks.append((self.chunk, self.used))
        self.used = 0

    def all(self) -> Any:
        """Return float64 (L,) on the host."""
        self.end()
        kept = [chunk[:used].cpu().double() for chunk, used in self.chunks]
        return torch.cat(kept) if kept else torch.zeros(0, dtype=torch.float64)


class Capture:
    """Gathers the losses and the optimizers as the training goes, and writes what was captured at its end."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.updated = Updated(probe)
        self.losses = self.recorder.losses = Losses()
        self.recorder.tell_every = 1
        self.recorder.at_backward.append((probe, self.backward))
        self.recorder.at_end.append((probe, self.end))
        self.recorder.in_child.append(self.forget)
        optim.register_optimizer_step_pre_hook(self.before_step)

    def forget(self) -> None:
        self.losses = self.recorder.losses = Losses()

    def backward(self, _: int, outputs: Any, *args: object, **kwargs: object) -> None:
        self.losses.keep(outputs)

    def before_step(self, optimizer: Any, *_: object) -> None:
        if self.updated.trains_here():
            self.updated.saw(optimizer)

    def end(self) -> dict[str, object]:
        """Write what was captured; what the other probes had to tell has been gathered before."""
        if not self.losses.count and not self.updated.optimizers:
            return {}
        name = os.path.join(self.recorder.recording, name_of_process())
        write_bytes(f"{name}-losses.bin", self.losses.all())
        if self.losses.count >= MOST_LOSSES:
            note(self.probe, f"only the first {MOST_LOSSES} losses were kept")
        parameters = self.updated.parameters()
        try:
            digest = bits_of(parameters)
        except Exception as error:  # of a kind whose values cannot be read; the losses are still worth having
            digest = ""
            note(self.probe, f"the final parameters could not be read: {type(error).__name__}: {error}")
        known = {
            "format": FORMAT,
            "rank": rank(),
            "losses": self.losses.count,
            "parameters": digest,
            "kinds": kinds_of(parameters),
            **self.recorder.captured,
        }
        with open(f"{name}.json", "w", encoding="utf-8") as file:
            json.dump(known, file)
        return {}


def bits_of(parameters: list[Any]) -> str:
    """Return a digest of the bits of *parameters*, in order; "" where there are none."""
    digest = hashlib.sha256()
    for parameter in parameters:
        digest.update(f"{parameter.dtype}{tuple(parameter.shape)}".encode())
        for piece in pieces(parameter):
            digest.update(piece)
    return digest.hexdigest() if parameters else ""


def kinds_of(parameters: list[Any]) -> str:
    """Return the elements of each data type, as ``float32 x 1204``."""
    elements: Counter[str] = Counter()
    for parameter in parameters:
        elements[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return ", ".join(f"{kind} x {count}" for kind, count in sorted(elements.items()))


def _capturing(output: Any) -> bool:
    """Return whether the pass is being recorded into a CUDA graph, where a copy of ours would become a part of it."""
    return bool(output.is_cuda and torch.cuda.is_current_stream_capturing())
