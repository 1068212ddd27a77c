"""Which line made each model that trains: the outermost module with parameters to train.

Only making a module costs anything, 2 us each; after the first steps nothing is left of it.
"""

from __future__ import annotations

import inspect
import os
import sys
import weakref
from types import CodeType, FrameType
from typing import Any

import torch

from unstall.probes._around import around
from unstall.probes._recorder import Probe
from unstall.probes._sites import is_users

AFTER = "torch"
MOST_MADE = 20_000  # modules; a model of more is not looked at
MOST_MODELS = 8
LOOK_AT = 2  # steps; by then the optimizer has the parameters, and a wrapper (DDP) the model
_OURS = "unstall."


def install(probe: Probe) -> None:
    Models(probe)


class Models:
    """Remembers where modules are made until the first steps have shown which of them are the outermost."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.made: list[tuple[weakref.ref[Any], Maker]] = []
        self.original = torch.nn.Module.__init__
        self.ours = torch.nn.Module.__init__ = around(probe, self.original, self.remember, lambda _: None)
        self.recorder.at_step.append((probe, self.look))

    def remember(self, module: Any, *args: object, **kwargs: object) -> None:
        if len(self.made) < MOST_MADE:
            self.made.append((weakref.ref(module), maker_of(module)))

    def look(self, step: int) -> None:
        if step != LOOK_AT:
            return
        if torch.nn.Module.__init__ is self.ours:
            torch.nn.Module.__init__ = self.original
        known = [(module, maker) for made, maker in self.made if (module := made()) is not None]
        inner = {id(child) for module, _ in known if not is_wrapper(module) for child in module.children()}
        outermost = [each for each in known if id(each[0]) not in inner and not is_wrapper(each[0]) and trains(each[0])]
        if len(self.made) < MOST_MADE:
            for number, (module, maker) in enumerate(outermost[:MOST_MODELS]):
                self.recorder.fact({f"model:{number}": {**maker.told(), **described(module)}})
        self.made.clear()


class Maker:
    """The user's frame that makes a module, and the library's frame that it called for that, if any.

    Put into words only for the outermost modules: that takes more than to note it.
    """

    __slots__ = ("below", "code", "line")

    def __init__(self, frame: FrameType | None, below: FrameType | None) -> None:
        self.code = frame.f_code if frame is not None else None
        self.line = frame.f_lineno if frame is not None else 0
        self.below = (below.f_code, below.f_lineno, below.f_globals.get("__name__", "")) if below is not None else None

    def told(self) -> dict[str, object]:
        """Return ``site``, ``library`` ("" for none), and ``maker``: the import path of the library's function, "" where the user
        calls the class itself, "?" where it is not known.
        """
        site = "" if self.code is None else _place(self.code, self.line)
        if self.below is None:
            return {"site": site, "library": "", "maker": ""}
        code, line, module = self.below
        name = getattr(code, "co_qualname", "?")  # Python 3.11
        return {
            "site": site,
            "library": _place(code, line),
            "maker": "?" if {"<", "?"} & set(name) else f"{module}.{name}",
        }


def maker_of(module: object) -> Maker:
    """Return who makes *module*, whose ``__init__`` is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (_makes(frame, module) or _is_ours(frame)):
        frame = frame.f_back
    below: FrameType | None = None
    while frame is not None and not is_users(frame.f_code.co_filename):
        if not _is_ours(frame):
            below = frame
        frame = frame.f_back
    return Maker(frame, below)


def _place(code: CodeType, line: int) -> str:
    return f"{os.path.abspath(code.co_filename)}:{line}:{code.co_name}"


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_OURS)


def _makes(frame: FrameType, module: object) -> bool:
    """Return whether the frame is an ``__init__`` of *module*."""
    code = frame.f_code
    return code.co_name == "__init__" and code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is module


def is_wrapper(module: Any) -> bool:
    """Return whether a library's class does no more than hold one other module, as DDP does and what torch.compile returns."""
    names = [name for name, child in module.named_children() if child is not None]
    return names in (["module"], ["_orig_mod"]) and not is_users(_file_of(type(module)))


def trains(module: Any) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def described(module: Any) -> dict[str, object]:
    """Return the class, by its import path or, of one of the script, its name; whether its forward is torch's own code, and
    where it is the user's; and its parameters' elements."""
    kind = type(module)
    forward = getattr(kind, "forward", None)
    return {
        "class": kind.__qualname__ if kind.__module__ == "__main__" else f"{kind.__module__}.{kind.__qualname__}",
        "plain": str(getattr(forward, "__module__", "")).partition(".")[0] == "torch",
        "elements": sum(parameter.numel() for parameter in module.parameters()),
        "forward": _forward_of(kind),
    }


def _forward_of(kind: type) -> str:
    """Return where the class's own forward begins, the first decorator counted; "" where it is inherited or a library's."""
    method = vars(kind).get("forward")
    code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
    return _place(code, code.co_firstlineno) if code is not None and is_users(code.co_filename) else ""


def _file_of(kind: type) -> str:
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or "<unknown>"
