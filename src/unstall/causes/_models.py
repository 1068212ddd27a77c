"""How the model that trains is compiled, or its forward decorated, by an edit, where the recording tells the user's line of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from unstall.causes._configured import is_library
from unstall.model.remedy import CallMethod, Decorate, MadeEdit, Scalar, Value, WrapCall
from unstall.model.run import Facts, Run
from unstall.model.tables import Tables


def compiling(run: Run, tables: Tables, keywords: Sequence[tuple[str, Value]] = ()) -> tuple[MadeEdit, ...]:
    """Return the edit that compiles the only model that trains; () where there are several, or its line is not known.

    It is compiled in place, ``model.compile()``, so that checkpoints name its parameters as before, where the line begins with
    ``model = ...``. One whose forward is torch's own code, which in place is passed over, is wrapped.

    Args:
        keywords: of `torch.compile`.
    """
    models = list(run.ranks[0].facts.family("model").values())
    line = tables.place(models[0].text("site") or "") if len(models) == 1 else None
    if line is None or is_library(line.file):
        return ()
    model = models[0]
    call, made = _call(model)
    if not call or not _names(line.code, call):
        return ()
    given = tuple(keywords)
    if model.flag("plain"):
        return (WrapCall(line.file, line.line, call, "torch.compile", given, made),)
    return (CallMethod(line.file, line.line, call, "compile", given, made),) if _is_named(line.code, call) else ()


def decorating(
    run: Run, tables: Tables, call: str, arguments: Sequence[Scalar], keywords: Sequence[tuple[str, Value]]
) -> tuple[Decorate, ...]:
    """Return the edit that puts a decorator on the forward of the only model that trains.

    () where there are several, or the forward is not the user's.
    """
    models = list(run.ranks[0].facts.family("model").values())
    line = tables.place(models[0].text("forward") or "") if len(models) == 1 else None
    if line is None or is_library(line.file):
        return ()
    return (Decorate(line.file, line.line, "forward", call, tuple(arguments), tuple(keywords)),)


def _call(model: Facts) -> tuple[str, str]:
    """Return the import path of what the user's line calls, "" where it is not known, and the base class of what it makes."""
    maker = model.text("maker")
    if not maker:
        return model.text("class") or "", "torch.nn.Module"
    return ("" if maker == "?" else maker), ""


def _names(code: str, call: str) -> bool:
    """Return whether the line, which the recording tells by its number alone, calls something of that name."""
    return re.search(rf"\b{re.escape(call.rpartition('.')[2])}\(", code) is not None


def _is_named(code: str, call: str) -> bool:
    """Return whether the line begins with a name for what the call makes: ``model = Net(``."""
    name = re.escape(call.rpartition(".")[2])
    return re.match(rf"[\w.]+\s*(:[^=]*)?=\s*([\w]+\.)*{name}\(", code) is not None
