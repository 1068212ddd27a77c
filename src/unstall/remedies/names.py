"""What a file does with its names: who binds one, who uses it, and what encloses it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BY_STRING = ("globals", "locals", "vars", "eval", "exec")  # they may reach any name, so nothing is sure


class Names:
    """The names of one parsed file, without regard to scopes: a name of two scopes counts as one with more bindings.

    Cost: O(size of the file) to make.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._parent: dict[ast.AST, ast.AST] = {}
        self._bound: dict[str, list[ast.AST]] = {}
        self._loads: dict[str, list[ast.Name]] = {}
        self.attributes: dict[str, list[ast.Attribute]] = {}
        self.functions: dict[str, list[Function]] = {}
        self.calls: list[ast.Call] = []
        self._strings: set[object] = set()
        for node in ast.walk(tree):
            self._parent.update((child, node) for child in ast.iter_child_nodes(node))
            self._take(node)

    def _take(self, node: ast.AST) -> None:
        for name in _bound_by(node):
            self._bound.setdefault(name, []).append(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self._loads.setdefault(node.id, []).append(node)
        elif isinstance(node, ast.Attribute):
            self.attributes.setdefault(node.attr, []).append(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Call):
            self.calls.append(node)
        elif isinstance(node, ast.Constant):
            self._strings.add(node.value if isinstance(node.value, str) else None)

    def bindings(self, name: str) -> Sequence[ast.AST]:
        """Return what binds *name*: names stored, parameters, imports, definitions, declarations as global."""
        return self._bound.get(name, ())

    def loads(self, name: str) -> Sequence[ast.Name]:
        return self._loads.get(name, ())

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parent.get(node)

    def function(self, node: ast.AST) -> Function | ast.Lambda | None:
        """Return the function that *node* stands in; None for the module's own level."""
        above = self.parent(node)
        while above is not None and not isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            above = self.parent(above)
        return above

    def in_class(self, node: ast.AST) -> bool:
        return isinstance(self.parent(self.parent(node) or node), ast.ClassDef)

    def meant_by_string(self, name: str) -> bool:
        """Return whether the file may reach *name* by a string, or through all its names."""
        return name in self._strings or any(self.bindings("*")) or any(self.loads(each) for each in _BY_STRING)

    def assigned(self, name: str) -> ast.expr | None:
        """Return the value of the only binding of *name*, where that is a plain assignment to it alone."""
        bound = self.bindings(name)
        holder = self.parent(bound[0]) if len(bound) == 1 else None
        if isinstance(holder, ast.Assign) and holder.targets == [bound[0]]:
            return holder.value
        return holder.value if isinstance(holder, ast.AnnAssign) and holder.target is bound[0] else None

    def is_guarded(self) -> bool:
        """Return whether the file asks if it is the one that is run (``if __name__ == "__main__"``)."""
        tests = [one.test for one in self.tree.body if isinstance(one, ast.If)]
        return any(isinstance(test, ast.Compare) and _is_name(test.left, "__name__") for test in tests)


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        yield from node.names
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
