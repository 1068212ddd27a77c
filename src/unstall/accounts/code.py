"""Whose code a file is, and what stands on a line."""

from __future__ import annotations

import functools
import linecache
import os
import re

from unstall.model.finding import Line
from unstall.model.run import Place

_COMPILED = r"[/\\]torchinductor_[^/\\]*[/\\]|[/\\][a-z2-7]{2}[/\\]c[a-z2-7]{51}\.py$"  # files that Inductor writes
_LIBRARY = re.compile(
    r"(^<)|[/\\](site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python\d[^/\\]*[/\\]|[/\\]unstall[/\\](probes|launch|remedies)[/\\]|"
    + _COMPILED
)
_WRITTEN = re.compile(_COMPILED)


@functools.lru_cache(maxsize=65536)
def is_users(file: str) -> bool:
    """Return whether *file* is the user's own code: not a library's, the interpreter's or ours."""
    return bool(file) and not _LIBRARY.search(file)


def is_compiled(file: str) -> bool:
    """Return whether the compiler wrote *file*: its name says nothing to anyone."""
    return bool(_WRITTEN.search(file))


def innermost_users(stack: tuple[Place, ...]) -> int | None:
    """Return the index of the innermost frame in the user's own code, or None."""
    for n in range(len(stack) - 1, -1, -1):
        if is_users(stack[n].file):
            return n
    return None


def line_at(place: Place, project: str = "", framework: str | None = None, key: str | None = None) -> Line:
    """Return *place* as a `Line` with its code; the file relative to *project* where it lies in it."""
    return Line(shown(place.file, project), place.line, place.function, code_of(place.file, place.line), framework, key)


def code_of(file: str, line: int) -> str:
    return linecache.getline(file, line).strip() if line > 0 else ""


def shown(file: str, project: str) -> str:
    """Return *file* relative to *project* where it lies inside, as it is otherwise."""
    inside = project and file.startswith(os.path.join(project, ""))
    return os.path.relpath(file, project) if inside else file


def called(place: Place) -> str:
    """Return ``module.function`` of a library frame, as ``json.encoder.iterencode``."""
    file = place.file.replace(os.sep, "/")
    match = re.search(
        r"(?:lib/python\d[^/]*/)?(?:(?:site|dist)-packages|lib/python\d[^/]*)/(.+?)(?:/__init__)?\.py$", file
    )
    module = match[1].replace("/", ".") if match else os.path.splitext(os.path.basename(file))[0].strip("<>")
    return f"{module}.{place.function}"
