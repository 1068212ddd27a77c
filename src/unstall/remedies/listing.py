"""Write a list of all items of an argument in the place of the argument.

`argument` is asked by `override` too, so what cannot be written is not tried.  Standard library only.
"""

from __future__ import annotations

import ast
import re

from unstall.model.remedy import ListItems
from unstall.remedies.arguments import passed
from unstall.remedies.names import Names
from unstall.remedies.sites import NotPatchable, Site
from unstall.remedies.text import Text

_LISTED = re.compile(r"\[(.+)\[(\w+)\] for (?:\1 in \[.+\] for )?\2 in range\(len\(\1\)\)\]", re.DOTALL)
_INDICES = ("i", "n", "index")


def argument(tree: ast.Module, site: Site, edit: ListItems) -> ast.expr:
    """Return the expression of the argument.

    Raises:
        NotPatchable: When it is not written in the call, or the file asks the call's object for more of it than a list has.
    """
    given = passed(site.node, edit) if isinstance(site.node, ast.Call) else None
    if given is None:
        raise NotPatchable(edit, f"{edit.keyword} is not written in the call")
    if any(isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for part in ast.walk(given)):
        raise NotPatchable(edit, f"{ast.unparse(given)} does more than give a value")
    names = Names(tree)
    for held in names.attributes.get(edit.keyword, ()):
        above = names.parent(held)
        if isinstance(above, ast.Attribute):
            raise NotPatchable(edit, f"line {above.lineno} asks for {ast.unparse(above)}, which a list has not")
    return given


def with_items(text: Text, tree: ast.Module, site: Site, edit: ListItems) -> str:
    """Return the text with the list written in; the same text where one is there.

    Raises:
        NotPatchable: As `argument`.
    """
    given = argument(tree, site, edit)
    if _LISTED.fullmatch(ast.unparse(given)):
        return text.spliced()
    span, written, names = text.span(given), text.of(given), Names(tree)
    if isinstance(given, ast.Name) and not _in_class_body(names, given):
        index = next(name for name in _INDICES if name != given.id)
        new = f"[{written}[{index}] for {index} in range(len({written}))]"
    else:  # it is evaluated once, and where it stands: a comprehension does not see the names of a class body
        new = f"[data[i] for data in [{written}] for i in range(len(data))]"
    return text.spliced((span, new.encode()))


def items_of(argument: object) -> list[object]:
    """Return all items, as the written list has them.

    Raises:
        TypeError: When it has no length, or cannot be indexed.
    """
    return [argument[i] for i in range(len(argument))]  # type: ignore[arg-type, index]


def _in_class_body(names: Names, node: ast.AST) -> bool:
    above = names.parent(node)
    while above is not None and not isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        if isinstance(above, ast.ClassDef):
            return True
        above = names.parent(above)
    return False
