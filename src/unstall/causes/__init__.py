"""Every cause the tool knows, found by walking this folder and the entry points "unstall.causes"."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points

from unstall.causes._cause import Cause

__all__ = ["Cause", "load"]


def load() -> tuple[Cause, ...]:
    """Return one instance of each cause, ordered by id."""
    names = [
        info.name
        for info in pkgutil.walk_packages(__path__, __name__ + ".")
        if not info.ispkg and not info.name.rsplit(".", 1)[-1].startswith("_")
    ]
    names += [point.value for point in entry_points(group="unstall.causes")]
    found = [
        kind()
        for name in names
        for kind in vars(importlib.import_module(name)).values()
        if isinstance(kind, type) and issubclass(kind, Cause) and kind.__module__ == name
    ]
    return tuple(sorted(found, key=lambda cause: cause.id))
