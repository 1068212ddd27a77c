"""Configurations that a framework trains by: which class, made at which line of the user's code, and through what.

Only what happens once or twice a run is wrapped: nothing is added to a step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from unstall.probes._around import around
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site, is_users

AFTER = "torch"
# module, class in it, and its method that runs once for each that is made, whatever class derives from it
WATCHED = (
    ("transformers.training_args", "TrainingArguments", "__post_init__"),
    ("lightning.pytorch.trainer.trainer", "Trainer", "__init__"),
    ("pytorch_lightning.trainer.trainer", "Trainer", "__init__"),
    ("accelerate.accelerator", "Accelerator", "__init__"),
)


def install(probe: Probe) -> None:
    made: list[str] = []
    for module, name, method in WATCHED:
        probe.recorder.when(module, watching(probe, name, method, made))


def watching(probe: Probe, name: str, method: str, made: list[str]) -> Callable[[ModuleType], None]:
    """Return what wraps the class once its module has been imported; *made* numbers the configurations of the process."""

    def remember(configuration: object, *args: object, **kwargs: object) -> None:
        site, library = call_site(3)
        if "<" in library:  # made at run time, as the __init__ of a dataclass: the user's line calls the class itself
            library = ""
        what = {"key": name, "class": path_of(type(configuration)), "site": site, "library": library}
        if repr(what) not in made:  # frameworks copy their configuration
            made.append(repr(what))
            probe.recorder.fact({f"configured:{len(made) - 1}": what})

    def wrap(module: ModuleType) -> None:
        with probe.guard():
            kind: Any = getattr(module, name)
            setattr(kind, method, around(probe, getattr(kind, method), remember, lambda _: None))

    return wrap


def path_of(kind: type) -> str:
    """Return the import path of *kind*, or of the first of its bases that is a library's: a script's class has none."""
    for one in kind.__mro__[:-1]:
        file = getattr(sys.modules.get(one.__module__), "__file__", None)
        if file and not is_users(file):
            return f"{one.__module__}.{one.__qualname__}"
    return f"{kind.__module__}.{kind.__qualname__}"
