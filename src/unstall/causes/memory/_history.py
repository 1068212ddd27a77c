"""Which line of a training loop carries the graph of one step into the next: a look at the source."""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Iterator

from unstall.model.finding import Line

_CUTS = frozenset({"detach", "item", "tolist", "numpy", "data", "float", "int", "detach_", "no_grad"})
_LOOPS = (ast.For, ast.While, ast.AsyncFor)


def carrier(called_by: Line, project: str) -> Line | None:
    """Return the line that keeps history in the function whose line *called_by* calls backward, or None.

    A name that is made from itself and from something new (``mean = 0.9 * mean + new``), then a sum or a list
    of losses or outputs, then a backward pass that is told to keep its graph.
    """
    file = os.path.join(project, called_by.file)
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    scope = _innermost(tree, called_by.line)
    loops: list[ast.AST] = [node for node in ast.walk(scope) if isinstance(node, _LOOPS)] or [scope]
    inside = [node for loop in loops for node in ast.walk(loop)]
    differentiable = _differentiable(inside)
    for found in (_carried(inside, differentiable), _collected(inside, differentiable), _asked(inside)):
        number = next(found, None)
        if number is not None:
            return Line(called_by.file, number, called_by.function, lines[number - 1].strip())
    return None


def _innermost(tree: ast.Module, line: int) -> ast.AST:
    """Return the innermost function around *line*, or the module."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=tree)


def _differentiable(nodes: list[ast.AST]) -> set[str]:
    """Return the names that backward is called on, and those that they are made from, as written."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr == "backward":
            names |= _names(node.value)
    for _ in range(4):
        for target, value in _assignments(nodes):
            if target in names and not _is_cut(value):
                names |= _names(value)
    return names


def _assignments(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                    yield ast.unparse(part), node.value


def _carried(nodes: list[ast.AST], differentiable: set[str]) -> Iterator[int]:
    """Yield lines on which a differentiable name is made from itself, and nowhere in the loop cut off."""
    cut = {target for target, value in _assignments(nodes) if _is_cut(value)}
    first = _first_assigned(nodes)
    for node in nodes:
        if not isinstance(node, ast.Assign) or _is_cut(node.value):
            continue
        for target, value in _assignments([node]):
            reads_itself = target in _names(value) and first.get(target) == node.lineno
            if target in differentiable and target not in cut and reads_itself:
                yield node.lineno


def _first_assigned(nodes: list[ast.AST]) -> dict[str, int]:
    """Return by name the first line of the loop that assigns it: ``x = f(x)`` carries history only there."""
    first: dict[str, int] = {}
    for node in nodes:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            targets = [node.target]
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, (ast.Name, ast.Attribute)):
                    name = ast.unparse(part)
                    first[name] = min(node.lineno, first.get(name, node.lineno))  # type: ignore[attr-defined]
    return first


def _collected(nodes: list[ast.AST], differentiable: set[str]) -> Iterator[int]:
    """Yield lines that add a differentiable value to a sum or a list."""
    for node in nodes:
        if isinstance(node, ast.AugAssign) and not _is_cut(node.value) and _names(node.value) & differentiable:
            if ast.unparse(node.target) not in differentiable:
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            values = [value for value in node.args if not _is_cut(value)]
            if any(_names(value) & differentiable for value in values):
                yield node.lineno


def _asked(nodes: list[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("backward"):
            yield from (node.lineno for keyword in node.keywords if keyword.arg in ("retain_graph", "create_graph"))


def _names(value: ast.AST) -> set[str]:
    return {ast.unparse(node) for node in ast.walk(value) if isinstance(node, (ast.Name, ast.Attribute))}


def _is_cut(value: ast.AST) -> bool:
    """Return whether *value* holds a word that leaves history behind."""
    words = {node.attr for node in ast.walk(value) if isinstance(node, ast.Attribute)}
    words |= {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    return bool(words & _CUTS)
