"""Which line of the user's code a call came from."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType

_PATHS = sysconfig.get_paths()
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_NOT_USERS = tuple(
    {
        os.path.join(path, "")
        for path in (_PATHS["stdlib"], _PATHS["platstdlib"], _PATHS["purelib"], _PATHS["platlib"], _OURS)
    }
)
_known: dict[str, bool] = {}


def is_users(file: str) -> bool:
    """Return whether *file* is the user's code rather than a library's, the interpreter's or ours."""
    known = _known.get(file)
    if known is None:
        known = _known[file] = not (
            file.startswith(("<", *_NOT_USERS))
            or f"{os.sep}site-packages{os.sep}" in file
            or f"{os.sep}dist-packages{os.sep}" in file
        )
    return known


def call_site(depth: int = 1) -> tuple[str, str]:
    """Return the user's frame that led here and the library's frame it called, as FILE:LINE:FUNCTION ("" for none)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and depth > 1:
        frame, depth = frame.f_back, depth - 1
    library = ""
    while frame is not None:
        code = frame.f_code
        if is_users(code.co_filename):
            return place(frame), library
        if not code.co_filename.startswith(_OURS):
            library = place(frame)
        frame = frame.f_back
    return "", library


def place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{os.path.abspath(code.co_filename)}:{frame.f_lineno}:{code.co_name}"
