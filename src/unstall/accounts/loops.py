"""The loops of the source that stand around a line."""

from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Iterable
from pathlib import Path

from unstall.accounts.code import shown
from unstall.model.run import Place
from unstall.model.tables import Loop

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_TURNS = re.compile(r"(^|_)(step|backward)$")


def loops_around(chain: Iterable[Place], project: str = "") -> tuple[Loop, ...]:
    """Return the loops around each place of *chain*, outermost first; each within the function that the place is in."""
    found: list[Loop] = []
    for file, line in dict.fromkeys((place.file, place.line) for place in chain):
        around = [Loop(shown(file, project), *loop) for loop in _of_line(file, line, _changed(file))]
        found += [loop for loop in around if loop not in found]  # recursion walks the same loop again
    return tuple(found)


def _of_line(file: str, line: int, changed: int) -> list[tuple[int, int, bool]]:
    """Return (first line, last line, turns) of the loops around a line within its function, outermost first.

    The head of a statement belongs to the loops around it; a comprehension may stand on one line with its head.
    """
    function = _function_of(file, changed, line)
    return [
        (first, last, turns)
        for first, last, turns, statement in _of_file(file, changed)
        if first + (statement and first != last) <= line <= last and function <= first
    ]


def _changed(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except (OSError, ValueError):  # a frame read while it changed may name a file that cannot be
        return 0


@functools.lru_cache(maxsize=256)
def _tree(file: str, changed: int) -> ast.Module | None:
    try:
        return ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=256)
def _of_file(file: str, changed: int) -> tuple[tuple[int, int, bool, bool], ...]:
    """Return (first line, last line, turns, is a statement) of every loop of a file, outer ones first."""
    tree = _tree(file, changed)
    found: list[tuple[int, int, bool, bool]] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            found.append((node.lineno, node.end_lineno or node.lineno, _turns(node), True))
        elif isinstance(node, _COMPREHENSIONS):
            found += [(node.lineno, node.end_lineno or node.lineno, _turns(node), False)] * len(node.generators)
    return tuple(sorted(found, key=lambda loop: (loop[0], -loop[1])))


def _turns(loop: ast.AST) -> bool:
    return any(
        _TURNS.search(getattr(node.func, "attr", getattr(node.func, "id", "")))
        for node in ast.walk(loop)
        if isinstance(node, ast.Call)
    )


@functools.lru_cache(maxsize=4096)
def _function_of(file: str, changed: int, line: int) -> int:
    """Return the first line of the innermost function around *line*; 0 at the top of the file."""
    tree = _tree(file, changed)
    return max(
        (
            node.lineno
            for node in (ast.walk(tree) if tree is not None else ())
            if isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or node.lineno)
        ),
        default=0,
    )
