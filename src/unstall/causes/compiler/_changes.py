"""What made the compiler compile anew, read from the guard that failed.

The words of the guards are those of torch 2.4 to 2.13; what is not known is OTHER, and still counted.
"""

from __future__ import annotations

import inspect
import linecache
import os
import re
from enum import Enum

from unstall.model.finding import Line
from unstall.model.tables import Compile


class Change(Enum):
    """What differed from the call before: in words that follow "because"."""

    LEARNING_RATE = "a setting of the optimizer is a Python number that changes"
    SHAPE = "the shape of a tensor changes"
    LENGTH = "the length of a list or dict changes"
    KEYS = "the keys of a dict change"
    ATTRIBUTE = "an attribute differs between objects or calls"
    VALUE = "a Python value that is passed in changes"
    OBJECT = "another object or function is passed in each time"
    MODE = "gradient mode, training mode or data type changes"
    OTHER = "a guard fails"


# the first that fits; `self.n` before `n`, sizes before values
_SIGNS = (
    (Change.LEARNING_RATE, re.compile(r"param_groups\S*\[['\"]\w+['\"]\]\s*==")),
    (
        Change.SHAPE,
        re.compile(r"(size|stride|rank|storage offset) mismatch|\.(size|stride)\(\)|\.shape\b|\bs\d+\b|Eq\(|Ne\("),
    ),
    (
        Change.MODE,
        re.compile(
            r"(requires_grad|dtype|device|dispatch key set|layout) mismatch|GLOBAL_STATE|grad_mode|\.training\b"
        ),
    ),
    (Change.LENGTH, re.compile(r"\blen\(")),
    (Change.KEYS, re.compile(r"KeyError on|___dict_contains|list\(.*\.keys\(\)|not in\b")),
    (Change.OBJECT, re.compile(r"___check_(obj|type)_id|\bid\(|___check_type|is not\b|\bis\b")),
    (Change.ATTRIBUTE, re.compile(r"\bself\S*\.\w+\S*\s*==|\._modules\b|\.__dict__\b")),
    (Change.VALUE, re.compile(r"==|math\.isnan|str\(")),
)


def change_of(reason: str) -> Change:
    """Return what changed, from the compiler's own *reason*."""
    said = guard_of(reason)
    return next((change for change, sign in _SIGNS if sign.search(said)), Change.OTHER)


def guard_of(reason: str) -> str:
    """Return the guard of *reason* alone: without the number of the entry before it and the source line after it."""
    first = reason.split("\n", 1)[0].split("  #", 1)[0]
    return re.sub(r"^\d+/\d+:\s*", "", first).strip()


def reading(window: Compile, project: str) -> Line | None:
    """Return the one line of the function that reads what its guard does: some guards, as of a dict's keys, name no line."""
    read, frame = _attribute_in(window.reason), window.frame
    if not read or frame is None:
        return None
    lines = linecache.getlines(os.path.join(project, frame.file))[frame.line - 1 :]
    sign = re.compile(rf"{re.escape(read)}\b")
    found = [
        n for n, text in enumerate(inspect.getblock(lines) if lines else ()) if sign.search(text.partition("#")[0])
    ]
    return Line(frame.file, frame.line + found[0], frame.function, lines[found[0]].strip()) if len(found) == 1 else None


def _attribute_in(reason: str) -> str:
    """Return the attribute that the guard of *reason* reads, as ``self.flags``; "" where it reads none."""
    read = re.search(r"\bself(?:\.[A-Za-z_]\w*)+", guard_of(reason))
    return read[0] if read is not None else ""
