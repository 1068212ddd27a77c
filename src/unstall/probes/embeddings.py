"""Large embedding tables: which line made each, and what part of its rows a step's gradient reaches.

The gradient that the optimizer used is read after the first steps, a sample of its rows. Neither the forward nor the
module is touched, so nothing is different for a compiler; and a table whose weight is tied to an output layer, or that
gathers several batches before a step, shows by itself how many rows it needs.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from unstall.probes._around import around
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch"
LOOK_STEPS = 5  # steps whose gradients are read; the largest share of rows counts
LEAST_ELEMENTS = 1 << 18  # 1 MB of float32; to fill and walk less takes no time worth a word
MOST_TABLES = 64  # looked at, the first made
ROWS_READ = 4096  # of a table, evenly spaced; 1 % touched is told to a sixth of it


def install(probe: Probe) -> None:
    Embeddings(probe)


class Embeddings:
    """Remembers where each table was made, and reads its gradient after each of the first steps."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.made: list[tuple[weakref.ref[Any], str]] = []
        self.touched: dict[int, float] = {}
        for kind in (torch.nn.Embedding, torch.nn.EmbeddingBag):
            kind.__init__ = around(probe, kind.__init__, self.remember, lambda _: None)
        self.recorder.at_step.append((probe, self.look))

    def remember(self, module: Any, *args: object, **kwargs: object) -> None:
        if len(self.made) < MOST_TABLES:
            self.made.append((weakref.ref(module), call_site(3)[0]))

    def look(self, step: int) -> None:
        if step > LOOK_STEPS:
            return
        for number, (table, site) in enumerate(self.made):
            module = table()
            if module is None or module.num_embeddings * module.embedding_dim < LEAST_ELEMENTS:
                continue
            share = touched(getattr(module.weight, "grad", None))
            if share is not None and share > self.touched.get(number, -1.0):
                self.touched[number] = share
                self.recorder.fact({f"embedding:{number}": {**described(module), "site": site, "touched": share}})


def described(module: Any) -> dict[str, object]:
    """Return class, rows, elements of a row, and whether its gradients are sparse."""
    return {
        "class": type(module).__name__,
        "rows": module.num_embeddings,
        "dim": module.embedding_dim,
        "sparse": bool(module.sparse),
    }


def touched(grad: Any) -> float | None:
    """Return the share of rows of a dense gradient that are not all zero; None where that cannot be read.

    One on a device is left alone: to read it would make the host wait for the device.
    """
    if type(grad) is not torch.Tensor or grad.device.type != "cpu":
        return None
    if grad.layout is not torch.strided or grad.dim() != 2 or not grad.numel():
        return None
    with torch.no_grad():
        rows = grad[:: max(1, len(grad) // ROWS_READ)]
        return int((rows != 0).any(1).sum()) / len(rows)
