"""What the optimizers hold: how many tensors and elements, of which types, and which line made each optimizer."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import torch

from unstall.probes._around import around
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch"
MOST_TENSORS = 20_000  # looked at; beyond, a look would take more than some ms


def install(probe: Probe) -> None:
    Parameters(probe)


class Parameters:
    """Remembers where each optimizer was made, and describes its parameters once, after the first step.

    Not at once: a model may be cast after its optimizer was made. An optimizer whose step is compiled shows no step of
    its own, so this is also how its line is known.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.made: list[tuple[weakref.ref[Any], str, str]] = []
        kind = torch.optim.Optimizer
        kind.__init__ = around(probe, kind.__init__, self.remember, lambda _: None)
        self.recorder.at_step.append((probe, self.look))

    def remember(self, optimizer: Any, *args: object, **kwargs: object) -> None:
        user, library = call_site(3)
        known = {"class": type(optimizer).__name__, "site": user, "library": library}
        self.recorder.fact({f"parameters:{len(self.made)}": known})
        self.made.append((weakref.ref(optimizer), user, library))

    def look(self, step: int) -> None:
        if step == 1:
            for number, (optimizer, user, library) in enumerate(self.made):
                if (alive := optimizer()) is not None:
                    self.recorder.fact({f"parameters:{number}": {**described(alive), "site": user, "library": library}})


def described(optimizer: Any) -> dict[str, object]:
    """Return class, tensors, elements, elements by type and devices of what *optimizer* holds."""
    tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]][:MOST_TENSORS]
    types: Counter[str] = Counter()
    for tensor in tensors:
        types[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
    return {
        "class": type(optimizer).__name__,
        "tensors": len(tensors),
        "elements": sum(types.values()),
        "types": dict(types),
        "devices": sorted({tensor.device.type for tensor in tensors}),
    }
