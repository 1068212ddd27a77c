"""Which call of a source file an edit means.

`override` and `patch` both ask here, so the call that was tried live and the call that is
rewritten cannot differ.  It runs inside the training process: standard library only.

A name is followed through the file's imports and through plain renamings (``collect = gc.collect``),
without regard to scopes: where a name has two meanings in one file, either may be meant, and the
recorded line decides.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from unstall.model.errors import UnstallError
from unstall.model.remedy import (
    AmendList,
    CallEdit,
    CallFirst,
    CallMethod,
    Decorate,
    ListItems,
    RemoveCall,
    RemoveSetting,
    SetAttribute,
    SetKeyword,
    SourceEdit,
    WrapCall,
)

# how well a call's name fits, the best first
EXACT, SAME_PACKAGE, BY_LAST_NAME, DERIVED, THROUGH_SUPER = range(5)


_MAKERS = ("__init__", "__new__")


class NotPatchable(UnstallError):
    """An edit that cannot be carried out without guessing, and why."""

    def __init__(self, edit: SourceEdit, why: str) -> None:
        super().__init__(f"{edit.file}:{edit.line}: {_said(edit)} was not carried out: {why}.")
        self.edit, self.why = edit, why


def _said(edit: SourceEdit) -> str:
    if isinstance(edit, SetKeyword):
        return f"{edit.keyword}={edit.value!r} of {edit.call}"
    if isinstance(edit, SetAttribute):
        return f"{edit.attribute} = {edit.value!r}"
    if isinstance(edit, CallFirst):
        return f"calling the first argument in the place of {edit.call}"
    if isinstance(edit, ListItems):
        return f"a list of what {edit.keyword} of {edit.call} holds"
    if isinstance(edit, AmendList):
        return f"{', '.join(edit.items)} in {edit.keyword} of {edit.call}"
    if isinstance(edit, RemoveSetting):
        return f"leaving {edit.target} as it is"
    if isinstance(edit, Decorate):
        return f"@{edit.call} on {edit.method}"
    if isinstance(edit, WrapCall):
        return f"{edit.wrapper} around {edit.call}"
    if isinstance(edit, CallMethod):
        return f".{edit.method}() of what {edit.call} makes"
    return f"removal of {edit.call}" if isinstance(edit, RemoveCall) else f"a call of {edit.call}"


class NoSuchCall(NotPatchable):
    """The line makes no call of that name."""


class Use(Enum):
    """What becomes of the call's result."""

    STATEMENT = "statement"  # nothing: the call is a statement of its own
    CONTEXT = "context"  # it is the context manager of a `with`, not bound to a name
    DECORATOR = "decorator"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Site:
    """One call in a parsed file.

    Attributes:
        node: the call, or the decorator where it is used without brackets.
        holder: the statement it is (STATEMENT), the `with` statement (CONTEXT), else its parent.
        block: the statements that *holder* is one of; empty for DECORATOR and VALUE.
    """

    node: ast.expr
    use: Use
    holder: ast.AST
    block: tuple[ast.stmt, ...] = ()

    @property
    def first_line(self) -> int:
        return self.node.lineno

    @property
    def end(self) -> tuple[int, int]:
        """Return (line, column in UTF-8 bytes) of the end; no two calls of a file share it."""
        return end_of(self.node)


def end_of(node: ast.expr | ast.stmt) -> tuple[int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None  # ast.parse sets them
    return node.end_lineno, node.end_col_offset


def same_file(a: str, b: str) -> bool:
    """Return whether both name one file; relative names are taken from the working folder."""
    return a == b or os.path.realpath(a) == os.path.realpath(b)


def parse(source: str, edit: SourceEdit) -> ast.Module:
    """Return the syntax tree of *source*, which has no byte order mark.

    Raises:
        NotPatchable: When this Python cannot parse it.
    """
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise NotPatchable(edit, f"the file cannot be parsed ({error})") from None


def find(tree: ast.Module, edit: CallEdit) -> Site:
    """Return the one call that *edit* means.

    Of the calls whose text covers the edit's line those that begin on it are preferred, then
    those whose name fits best.

    Raises:
        NoSuchCall: When no call on the line can be it.
        NotPatchable: When several fit equally well.
    Cost: O(size of the file).
    """
    names = _Names(tree)
    fits: list[tuple[bool, int, Site]] = []
    for site, first, last in _sites(tree):
        called = site.node.func if isinstance(site.node, ast.Call) else site.node
        fit = names.fit(called, edit.call) if first <= edit.line <= last else None
        if fit in (DERIVED, THROUGH_SUPER) and not isinstance(edit, SetKeyword):
            continue
        if fit == BY_LAST_NAME and isinstance(edit, CallFirst) and isinstance(called, ast.Attribute):
            continue  # net.compile() is no torch.compile: that edit has been carried out already
        if fit is not None:
            fits.append((first != edit.line, fit, site))
    if not fits:
        raise NoSuchCall(edit, "the line makes no such call")
    best = min((later, fit) for later, fit, _ in fits)
    chosen = [site for later, fit, site in fits if (later, fit) == best]
    if len(chosen) > 1:
        raise NotPatchable(edit, f"the line makes {len(chosen)} such calls, and which one is meant is not known")
    return chosen[0]


def refuse_if_used(site: Site, edit: RemoveCall) -> None:
    """Raise `NotPatchable` where the call cannot be left out because its result is used."""
    if site.use in (Use.VALUE, Use.DECORATOR):
        raise NotPatchable(edit, "its result is used")


def calls_nothing(tree: ast.Module, line: int) -> bool:
    """Return whether no call and no decorator covers *line*."""
    return not sites_on(tree, line)


def sites_on(tree: ast.Module, line: int) -> list[Site]:
    """Return the calls and decorators that cover *line*."""
    return [site for site, first, last in _sites(tree) if first <= line <= last]


def _sites(tree: ast.Module) -> Iterator[tuple[Site, int, int]]:
    """Yield every call and bare decorator with the first and last line on which it may have been recorded."""
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            children = value if isinstance(value, list) else [value]
            for child in children:
                if name == "decorator_list":
                    assert isinstance(parent, ast.stmt)
                    yield Site(child, Use.DECORATOR, parent), child.lineno, parent.lineno
                elif isinstance(child, ast.Call) and not isinstance(parent, (ast.Expr, ast.withitem)):
                    yield Site(child, Use.VALUE, parent), child.lineno, end_of(child)[0]
                elif isinstance(child, ast.stmt):
                    block = tuple(each for each in children if isinstance(each, ast.stmt))
                    for site in _sites_of_statement(child, block):
                        yield site, site.first_line, site.end[0]


def _sites_of_statement(statement: ast.stmt, block: tuple[ast.stmt, ...]) -> Iterator[Site]:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        yield Site(statement.value, Use.STATEMENT, statement, block)
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        for item in statement.items:
            if isinstance(item.context_expr, ast.Call):
                use = Use.CONTEXT if item.optional_vars is None else Use.VALUE
                yield Site(item.context_expr, use, statement, block)


class _Names:
    """What the names of a file stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self._known: dict[str, set[str]] = {}
        self._parents: dict[ast.AST, list[ast.expr]] = {}  # `super().__init__` -> the bases of its class
        self._heirs: dict[str, list[ast.expr]] = {}  # a class that takes what its bases take -> its bases
        renamed: list[tuple[str, ast.expr]] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self._add(name, alias.name if alias.asname else name)
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                for alias in node.names:
                    self._add(alias.asname or alias.name, f"{node.module}.{alias.name}")
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                renamed.append((node.targets[0].id, node.value))
            elif isinstance(node, ast.ClassDef):  # the walk comes to inner classes later
                self._parents.update((inner, node.bases) for inner in ast.walk(node) if _is_super_init(inner))
                if not any(isinstance(inner, ast.FunctionDef) and inner.name in _MAKERS for inner in node.body):
                    self._heirs[node.name] = node.bases
        for name, value in renamed:
            for meaning in self._meanings(value):
                self._add(name, meaning)

    def _add(self, name: str, meaning: str) -> None:
        self._known.setdefault(name, set()).add(meaning)

    def _meanings(self, called: ast.expr) -> set[str]:
        """Return the import paths that *called* may stand for; empty where no import tells."""
        rest: list[str] = []
        while isinstance(called, ast.Attribute):
            rest.append(called.attr)
            called = called.value
        if not isinstance(called, ast.Name):
            return set()
        return {".".join([root, *reversed(rest)]) for root in self._known.get(called.id, ())}

    def fit(self, called: ast.expr, wanted: str) -> int | None:
        """Return how well *called* fits the import path *wanted*, or None where it is something else."""
        package, last = wanted.partition(".")[0], wanted.rpartition(".")[2]
        meanings = self._meanings(called)
        if wanted in meanings:
            return EXACT
        if any(m.partition(".")[0] == package and m.rpartition(".")[2] == last for m in meanings):
            return SAME_PACKAGE  # torch.optim.adamw.AdamW is torch.optim.AdamW
        if meanings:
            return None
        own = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if own == last:
            return BY_LAST_NAME
        heir = (
            self._heirs.pop(own, None) if isinstance(called, ast.Name) else None
        )  # taken out: a class may name itself
        if heir is not None:
            derived = any(self.fit(base, wanted) in (EXACT, SAME_PACKAGE, BY_LAST_NAME, DERIVED) for base in heir)
            self._heirs[own] = heir
            return DERIVED if derived else None
        handed_on = any(self.fit(base, wanted) is not None for base in self._parents.get(called, ()))
        return THROUGH_SUPER if handed_on else None


def _is_super_init(node: ast.AST) -> bool:
    """Return whether *node* is ``super().__init__``: a subclass hands its arguments on."""
    owner = node.value if isinstance(node, ast.Attribute) and node.attr == "__init__" else None
    return isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"
