"""Amend a list of strings that a call is given: leave items out, and put others at its end.

`listed` is asked by `override` too, so what cannot be written is not tried.  Standard library only.
"""

from __future__ import annotations

import ast

from unstall.model.remedy import AmendList
from unstall.remedies.arguments import appended, passed
from unstall.remedies.names import Names
from unstall.remedies.sites import NotPatchable, Site
from unstall.remedies.text import Text


def amended(old: object, edit: AmendList) -> list[str]:
    """Return the list that takes the place of *old*, which may be None."""
    kept = [str(item) for item in old if item not in edit.dropped] if isinstance(old, (list, tuple)) else []
    return [*kept, *(item for item in edit.items if item not in kept)]


def listed(tree: ast.Module, site: Site, edit: AmendList) -> ast.expr | None:
    """Return the list of strings that the call is given, where it is written out; None where it is given none.

    A name stands for the list where nothing else binds or uses it.

    Raises:
        NotPatchable: When the list comes from elsewhere.
    """
    if not isinstance(site.node, ast.Call):
        raise NotPatchable(edit, "it is a decorator, and is given no list")
    if any(keyword.arg is None for keyword in site.node.keywords):
        raise NotPatchable(edit, f"{edit.keyword} may be passed through a **mapping")
    given = passed(site.node, edit)
    if given is None or (isinstance(given, ast.Constant) and given.value is None):
        return given
    names = Names(tree)
    if isinstance(given, ast.Name):
        made = names.assigned(given.id)
        alone = names.loads(given.id) == [given] and not names.meant_by_string(given.id)
        if made is None or not alone or names.function(made) is not names.function(given):
            raise NotPatchable(edit, f"{given.id} is made or used elsewhere as well")
        given = made
    strings = isinstance(given, (ast.List, ast.Tuple)) and all(
        isinstance(item, ast.Constant) and isinstance(item.value, str) for item in given.elts
    )
    if not strings:
        raise NotPatchable(edit, f"{ast.unparse(given)} is no list that is written out")
    return given


def with_list(text: Text, tree: ast.Module, site: Site, edit: AmendList) -> str:
    """Return the text with the list amended; the same text where it is so already.

    Raises:
        NotPatchable: As `listed`, and when a comment stands within the list.
    """
    given = listed(tree, site, edit)
    assert isinstance(site.node, ast.Call)
    if given is None:
        return text.spliced(*appended(text, site.node, edit.keyword, _written(text, amended(None, edit))))
    old = [item.value for item in given.elts if isinstance(item, ast.Constant)] if isinstance(given, ast.List) else None
    new = amended(list(ast.literal_eval(given) or ()), edit)
    if new == old:
        return text.spliced()
    if "#" in text.of(given) and old is not None and not any("#" in str(item) for item in old):
        raise NotPatchable(edit, "a comment stands within the list")
    return text.spliced((text.span(given), _written(text, new).encode()))


def _written(text: Text, items: list[str]) -> str:
    return f"[{', '.join(text.literal(item) for item in items)}]"
