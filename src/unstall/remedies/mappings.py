"""What a call is given through ``**mapping``, where the file tells what the mapping holds."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum

from unstall.remedies.names import Names


class Known(Enum):
    """How much of a mapping the file tells."""

    ALONE = "alone"  # all that it holds, and only this call uses it
    PART = "part"  # it is written in the call, and may hold more than is written out
    SHARED = "shared"  # all that it holds; other calls use it too, and none changes it
    BUILT = "built"  # it is made in this file, but changed or handed on before the call
    NOT = "not"  # it comes from elsewhere: a file, a parameter


@dataclass(frozen=True, slots=True)
class Mapping:
    """One ``**mapping`` of a call.

    Attributes:
        node: the expression behind the stars. items: values by key, as far as they are written out.
    """

    node: ast.expr
    known: Known
    items: dict[str, ast.expr]


def mappings(names: Names, call: ast.Call) -> list[Mapping]:
    """Return what is known of each ``**mapping`` that *call* is given, in order."""
    return [_mapping(names, keyword.value) for keyword in call.keywords if keyword.arg is None]


def _mapping(names: Names, node: ast.expr) -> Mapping:
    items = _items(names, node)
    if items is not None:
        return Mapping(node, Known.ALONE, items)
    if isinstance(node, ast.Dict):
        return Mapping(node, Known.PART, _last_items(node))
    made = names.assigned(node.id) if isinstance(node, ast.Name) else None
    items = _items(names, made) if made is not None else None
    if made is None or items is None or not isinstance(node, ast.Name):
        return Mapping(node, Known.NOT, {})
    (bound,) = names.bindings(node.id)
    loads = names.loads(node.id)
    if not all(_is_unpacked(names, load) for load in loads) or names.meant_by_string(node.id):
        return Mapping(node, Known.BUILT, items)
    there = names.function(bound)
    near = there is names.function(node) if there is not None or not names.is_guarded() else not names.in_class(bound)
    return Mapping(node, Known.ALONE if near and len(loads) == 1 else Known.SHARED, items)


def _items(names: Names, node: ast.expr) -> dict[str, ast.expr] | None:
    """Return the items of a dictionary that is written out, ``{...}`` or ``dict(...)``; None where a part is not."""
    if isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        if all(isinstance(key, str) for key in keys) and len(set(keys)) == len(keys):
            return {str(key): value for key, value in zip(keys, node.values, strict=True)}
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        plain = not node.args and not names.bindings("dict") and all(keyword.arg for keyword in node.keywords)
        return {str(keyword.arg): keyword.value for keyword in node.keywords} if plain else None
    return None


def _last_items(node: ast.Dict) -> dict[str, ast.expr]:
    """Return the items behind the last ``**`` in ``{**other, "key": value}``: nothing goes before them."""
    last = max((n for n, key in enumerate(node.keys) if not isinstance(key, ast.Constant)), default=-1)
    pairs = list(zip(node.keys, node.values, strict=True))[last + 1 :]
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def _is_unpacked(names: Names, load: ast.Name) -> bool:
    """Return whether this use reads the items and no more: ``f(**load)``, ``{**load}``, ``load["key"]``."""
    above = names.parent(load)
    if isinstance(above, ast.keyword):
        return above.arg is None
    if isinstance(above, ast.Dict):
        return load in above.values and above.keys[above.values.index(load)] is None
    return isinstance(above, ast.Subscript) and above.value is load and isinstance(above.ctx, ast.Load)
