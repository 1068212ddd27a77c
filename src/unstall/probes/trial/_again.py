"""A batch that can be given any number of times, though the training may change what it was given."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

DEPTH = 6  # containers opened


class Again:
    """Holds a copy of a batch.

    Each time its containers are made anew, so that what the training takes out of them is there again. Its tensors are the
    same ones, unless they were changed in place since: copying them each time would cost what is to cost nothing.
    """

    def __init__(self, batch: Any) -> None:
        self.pinned: set[int] = set()  # ids of our copies whose originals lay in pinned memory
        self.kept = made_anew(batch, self.keep)
        self.given: dict[int, tuple[torch.Tensor, int]] = {}  # by our copy: the tensor that is given, and its version

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        mine = tensor.detach().clone()
        if tensor.device.type == "cpu" and tensor.is_pinned():
            self.pinned.add(id(mine))
        return mine

    def give(self) -> Any:
        return made_anew(self.kept, self.unchanged)

    def unchanged(self, mine: torch.Tensor) -> torch.Tensor:
        tensor, version = self.given.get(id(mine), (mine, -1))
        if tensor._version != version:
            tensor = mine.clone()
            if id(mine) in self.pinned:
                tensor = tensor.pin_memory()
            self.given[id(mine)] = tensor, tensor._version
        return tensor


def made_anew(value: Any, of_tensor: Callable[[torch.Tensor], torch.Tensor], depth: int = DEPTH) -> Any:
    """Return *value* with its containers copied and *of_tensor* of each tensor in them."""
    if isinstance(value, torch.Tensor):
        return of_tensor(value)
    if isinstance(value, (str, bytes, int, float, complex, type(None))) or not depth:
        return value
    if isinstance(value, tuple):
        parts = [made_anew(part, of_tensor, depth - 1) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    mine = copy.copy(value)
    if isinstance(value, list):
        mine[:] = [made_anew(part, of_tensor, depth - 1) for part in value]
    elif hasattr(value, "items") and hasattr(value, "__setitem__"):
        for key, part in list(value.items()):
            mine[key] = made_anew(part, of_tensor, depth - 1)
    return mine
