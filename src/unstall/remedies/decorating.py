"""Put a decorator on a method of a class that the script defines: in the source, and live as the class is made.

Live it is put on the class as well, so copies of an instance and pickles are what they were.  Standard library only.
"""

from __future__ import annotations

import ast
import inspect
import tokenize
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from unstall.model.remedy import Decorate, Named
from unstall.remedies.head import keywords, spelled
from unstall.remedies.replacing import NotReachable, located, replace
from unstall.remedies.sites import NotPatchable, parse, same_file
from unstall.remedies.text import Text

_Def = ast.FunctionDef | ast.AsyncFunctionDef


def with_decorator(text: Text, tree: ast.Module, edit: Decorate) -> str:
    """Return the text with the decorator above the function, outside of all others; the same text where it stands there.

    Raises:
        NotPatchable: When no method of that name begins on the line, it has such a decorator with other arguments, or the file
            does not import what is to be written.
    """
    function = _defined(tree, edit)
    name = spelled(tree, edit.call, edit)
    given = [*(text.literal(value) for value in edit.arguments), *keywords(text, tree, edit)]
    new = f"{name}({', '.join(given)})"
    for there in function.decorator_list:
        if ast.unparse(there) == ast.unparse(ast.parse(new, mode="eval")):
            return text.spliced()
        if ast.unparse(there.func if isinstance(there, ast.Call) else there) == name:
            raise NotPatchable(edit, f"line {there.lineno} does so already in another way")
    at = text.at(edit.line)
    return text.spliced(((at, at), text.indent(edit.line) + f"@{new}".encode() + text.ending(edit.line)))


def _defined(tree: ast.Module, edit: Decorate) -> _Def:
    """Return the method that begins, its decorators counted, on the line of *edit*."""
    methods = (node for one in ast.walk(tree) if isinstance(one, ast.ClassDef) for node in one.body)
    for node in methods:
        if isinstance(node, _Def) and node.name == edit.method and _first_line(node) == edit.line:
            return node
    raise NotPatchable(edit, f"no method {edit.method} begins there")


def _first_line(function: _Def) -> int:
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


def decorate(edit: Decorate, undo: ExitStack, met: Callable[[], None]) -> None:
    """Put the decorator on the method of each class derived from the edit's, of those that are there and as others are made.

    Raises:
        NotReachable: When the decorator or the class cannot be imported. NotPatchable: As `with_decorator`.
    """
    try:
        with tokenize.open(edit.file) as file:
            source = file.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise NotReachable(f"{edit.file}: it cannot be read ({error}).") from None
    with_decorator(Text(source), parse(source, edit), edit)
    owner, name = located(edit.made)
    base = getattr(owner, name)
    maker = getattr(*located(edit.call, getattr))
    given = {key: getattr(*located(v.path, getattr)) if isinstance(v, Named) else v for key, v in edit.keywords}

    classes = ExitStack()  # of its own, as *undo* is handed on before the script makes its classes
    undo.callback(classes.close)

    def put_on(kind: type) -> None:
        method = vars(kind).get(edit.method)
        code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
        if code is not None and code.co_firstlineno == edit.line and same_file(code.co_filename, edit.file):
            replace(kind, edit.method, maker(*edit.arguments, **given)(method), classes)
            met()

    def __init_subclass__(kind: Any, /, **options: Any) -> None:
        super(base, kind).__init_subclass__(**options)
        put_on(kind)

    if not isinstance(base, type) or "__init_subclass__" in vars(base):
        raise NotReachable(f"{edit.made}: it looks at the classes derived from it itself.")
    replace(base, "__init_subclass__", classmethod(__init_subclass__), undo)
    for kind in _derived(base):
        put_on(kind)


def _derived(base: type[Any]) -> list[type[Any]]:
    """Return the classes derived from *base*, each once."""
    found: dict[type[Any], None] = {}
    new: list[type[Any]] = [base]
    while new:
        below = [kind for each in new for kind in each.__subclasses__()]
        new = [kind for kind in below if kind not in found]
        found.update(dict.fromkeys(new))
    return list(found)
