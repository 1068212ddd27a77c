"""The edit that takes a setting of the compiler out of the script, where the line that sets it is plain."""

from __future__ import annotations

import re

from unstall.causes._configured import is_library
from unstall.model.finding import Line, Where
from unstall.model.remedy import RemoveCall, RemoveSetting

INDUCTOR = "torch._inductor.config."
ENVIRON = "os.environ."


def without(where: Where, *targets: str) -> tuple[RemoveSetting, ...]:
    """Return the edit that takes out the line that sets one of *targets*; () where it does something else.

    Args:
        targets: dotted import paths, or ``os.environ.NAME`` for a variable.
    """
    if not isinstance(where, Line) or is_library(where.file):
        return ()
    for target in targets:
        name = re.escape(target.rpartition(".")[2])
        set_as = rf"(?:\w+\.)?environ\[[\"']{name}[\"']\]" if target.startswith(ENVIRON) else rf"[\w.]+\.{name}"
        if re.match(rf"{set_as}\s*=(?!=)", where.code):
            return (RemoveSetting(where.file, where.line, target),)
    return ()


def without_call(where: Where, call: str) -> tuple[RemoveCall, ...]:
    """Return the edit that takes out the call of *call*, a dotted import path, that the line begins with; () for another line."""
    name = re.escape(call.rpartition(".")[2])
    if isinstance(where, Line) and re.match(rf"(\w+\.)*{name}\(", where.code):
        return (RemoveCall(where.file, where.line, call),)
    return ()
