"""Write a statement at the head of a file, once its imports are done."""

from __future__ import annotations

import ast
from collections.abc import Callable

from unstall.model.remedy import AddCall, Decorate, MadeEdit, Members, Named, Scalar, SetAttribute, SourceEdit
from unstall.remedies.names import Names
from unstall.remedies.sites import NotPatchable, end_of
from unstall.remedies.text import Text

Addition = AddCall | SetAttribute


def with_statement(text: Text, tree: ast.Module, edit: Addition) -> str:
    """Return the text with the statement of *edit* behind its imports; the same text where it stands there already.

    What the file imports is called as the file calls it; a module that it does not import is imported first.

    Raises:
        NotPatchable: When the file makes this call, or sets this attribute, in another way.
    """
    if holds(tree, edit):
        return text.spliced()
    spelled, by = _spelling(tree, edit)
    new = _statement(tree, edit, spelled, text.literal)
    body = tree.body
    last = _last_import(body, by)
    row = end_of(body[last])[0] + 1 if last >= 0 else 1
    if last + 1 < len(body) and body[last + 1].lineno < row:
        raise NotPatchable(edit, f"line {row - 1} goes on behind the import")
    ending = text.ending(row - 1) if row > 1 else text.ending(1) if text.lines else b"\n"
    head = b"" if row <= 1 or text.lines[row - 2].endswith((b"\n", b"\r")) else ending
    imported = f"import {_path(edit).partition('.')[0]}".encode() + ending if by is None else b""
    blank = ending if last >= 0 and by is not None else b""
    at = text.at(row)
    return text.spliced(((at, at), head + imported + blank + new.encode() + ending))


def holds(tree: ast.Module, edit: Addition) -> bool:
    """Return whether the file has the statement already, at its own level.

    Raises:
        NotPatchable: When it makes this call, or sets this attribute, in another way: which one holds is not known.
    """
    meanings = _Imported(tree)
    for node in ast.walk(tree):
        there = node.func if isinstance(node, ast.Call) and isinstance(edit, AddCall) else None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(edit, SetAttribute):
            there = node
        if there is None or meanings.path(there) != _path(edit):
            continue
        for statement in tree.body:
            if ast.unparse(statement) == _statement(tree, edit, ast.unparse(there), repr):
                return True
        raise NotPatchable(edit, f"line {there.lineno} does so already in another way")
    return False


def path_in(tree: ast.Module) -> Callable[[ast.expr], str]:
    """Return what tells the import path that an expression of the file stands for; "" where no import tells."""
    return _Imported(tree).path


def _path(edit: Addition) -> str:
    return edit.call if isinstance(edit, AddCall) else edit.attribute


def _statement(tree: ast.Module, edit: Addition, name: str, literal: Callable[[Scalar], str]) -> str:
    """Return the statement in the words of the file.

    Raises:
        NotPatchable: When it is to hold what the file does not import.
    """
    if isinstance(edit, AddCall):
        return f"{name}({', '.join(literal(value) for value in edit.arguments)})"
    if isinstance(edit.value, Members):
        return f"{name} = {{{', '.join(_member(tree, path, edit) for path in edit.value.paths)}}}"
    return f"{name} = {literal(edit.value)}"


def _member(tree: ast.Module, path: str, edit: SourceEdit) -> str:
    """Return how the file names *path*; what is built in needs no import."""
    module, _, name = path.partition(".")
    if module != "builtins":
        return spelled(tree, path, edit)
    if Names(tree).bindings(name):
        raise NotPatchable(edit, f"{name} is another name in the file")
    return name


class _Imported:
    """What the names that the file imports at its own level stand for; those that it binds once, and no others."""

    def __init__(self, tree: ast.Module) -> None:
        self.by: dict[str, ast.stmt] = {}
        self.known: dict[str, str] = {}
        names = Names(tree)
        for statement in tree.body:
            for name, path in _imports(statement):
                if all(isinstance(one, (ast.Import, ast.ImportFrom)) for one in names.bindings(name)):
                    self.known[name], self.by[name] = path, statement

    def path(self, node: ast.expr) -> str:
        """Return the import path that *node* stands for, "" where no import tells."""
        rest: list[str] = []
        while isinstance(node, ast.Attribute):
            rest.append(node.attr)
            node = node.value
        known = self.known.get(node.id) if isinstance(node, ast.Name) else None
        return ".".join([known, *reversed(rest)]) if known is not None else ""


def _imports(statement: ast.stmt) -> list[tuple[str, str]]:
    if isinstance(statement, ast.Import):
        return [
            (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
            for alias in statement.names
        ]
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        return [(alias.asname or alias.name, f"{statement.module}.{alias.name}") for alias in statement.names]
    return []


def _spelling(tree: ast.Module, edit: Addition) -> tuple[str, ast.stmt | None]:
    """Return how the file names what *edit* names, and the import it has it from; None where it must be imported."""
    path = _path(edit)
    root, known = path.partition(".")[0], _known(tree, path)
    if known is not None:
        return known
    if Names(tree).bindings(root):
        raise NotPatchable(edit, f"{root} is not imported at the file's own level, and the name is bound there")
    return path, None


def spelled(tree: ast.Module, path: str, edit: SourceEdit) -> str:
    """Return how the file names the import path *path*.

    Raises:
        NotPatchable: When no import at the file's own level brings it.
    """
    known = _known(tree, path)
    if known is None:
        raise NotPatchable(edit, f"the file does not import {path.partition('.')[0]} at its own level")
    return known[0]


def keywords(text: Text, tree: ast.Module, edit: MadeEdit | Decorate) -> list[str]:
    """Return the keywords of *edit* as the file writes them; raises as `spelled`."""
    return [
        f"{name}={spelled(tree, value.path, edit) if isinstance(value, Named) else text.literal(value)}"
        for name, value in edit.keywords
    ]


def _known(tree: ast.Module, path: str) -> tuple[str, ast.stmt] | None:
    """Return how the file names *path*, and the import that it has it from; None where no import tells."""
    imported, root = _Imported(tree), path.partition(".")[0]
    fits = [(known, name) for name, known in imported.known.items() if path.startswith(known + ".") or path == known]
    if not fits:
        return None
    known, name = min(fits, key=lambda fit: (fit[0] != root, -len(fit[0]), fit[1]))
    return name + path[len(known) :], imported.by[name]


def _last_import(body: list[ast.stmt], by: ast.stmt | None) -> int:
    """Return the index of the statement behind which the imports are done: of those it opens with, and *by*; -1 for none."""
    n = 0
    while n < len(body) and (_only_imports(body[n]) or (n == 0 and _is_words(body[n]))):
        n += 1
    if by is not None and body.index(by) >= n:
        n = body.index(by) + 1
        while n < len(body) and _only_imports(body[n]):
            n += 1
    return n - 1


def _only_imports(statement: ast.stmt) -> bool:
    """Return whether the statement imports and does nothing else; also in a `try`, and for type checking."""
    if isinstance(statement, ast.Try):
        parts = [*statement.body, *(one for handler in statement.handlers for one in handler.body), *statement.orelse]
        return any(_only_imports(one) for one in statement.body) and all(
            _only_imports(one) or isinstance(one, (ast.Pass, ast.Assign)) for one in parts
        )
    if isinstance(statement, ast.If):
        return "TYPE_CHECKING" in ast.unparse(statement.test) and all(_only_imports(one) for one in statement.body)
    return isinstance(statement, (ast.Import, ast.ImportFrom))


def _is_words(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
