"""Write the call of a first argument in the place of the call that it was handed to."""

from __future__ import annotations

import ast

from unstall.model.remedy import CallFirst
from unstall.remedies.sites import NoSuchCall, NotPatchable, Site, find, sites_on
from unstall.remedies.text import Span, Text

_NAMED = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)  # they can be called as they stand


def holds_first(tree: ast.Module, edit: CallFirst) -> bool:
    """Return whether the line makes the call of *edit* no more, and calls something else."""
    try:
        find(tree, edit)
    except NoSuchCall:
        called = (site.node for site in sites_on(tree, edit.line) if isinstance(site.node, ast.Call))
        return any(
            not edit.method or (isinstance(c.func, ast.Attribute) and c.func.attr == edit.method) for c in called
        )
    return False


def with_first(text: Text, site: Site, edit: CallFirst) -> str:
    """Return the text with the first argument called; white space between the arguments stays.

    Raises:
        NotPatchable: When it is not written out which argument is the first, which keywords are passed, or a comment
            stands between what is taken away.
    """
    call = site.node
    if not isinstance(call, ast.Call) or not call.args or isinstance(call.args[0], ast.Starred):
        raise NotPatchable(edit, "its first argument is not written out")
    if edit.dropped and any(keyword.arg is None for keyword in call.keywords):
        raise NotPatchable(edit, "a keyword for it alone may be passed through a **mapping")
    first, end = text.span(call.args[0]), text.span(call)[1]
    opening = ("" if not edit.method else f".{edit.method}") + "("
    others = sorted(
        [(*text.span(arg), True) for arg in call.args[1:]]
        + [(text.at(k.lineno, k.col_offset), text.span(k.value)[1], k.arg not in edit.dropped) for k in call.keywords]
    )
    changes = _changes(text, first[1], others, end, opening)
    before: Span = (text.span(call)[0], first[0])
    bare = isinstance(call.args[0], _NAMED)
    for start, stop in (before, *(span for span, _ in changes)):
        if b"#" in text.raw[start:stop]:
            raise NotPatchable(edit, "a comment stands between its arguments")
    wrapped = [] if bare else [(before, b"("), ((first[1], first[1]), b")")]
    return text.spliced(*(wrapped or [(before, b"")]), *changes)


def _changes(
    text: Text, first_end: int, others: list[tuple[int, int, bool]], end: int, opening: str
) -> list[tuple[Span, bytes]]:
    """Return the changes behind the first argument: the bracket opens before what is kept, and what is dropped goes."""
    kept = [start for start, _, keep in others if keep]
    if not kept:
        return [((first_end, end - 1), opening.encode())]
    between = text.raw[first_end : kept[0]]
    space = between.rpartition(b",")[2] if b"\n" in between else b""
    changes: list[tuple[Span, bytes]] = [((first_end, kept[0]), opening.encode() + space)]
    last = kept[0]
    for start, stop, keep in others:
        if start < kept[0]:
            continue
        if not keep:
            changes.append(((last, stop), b""))
        last = stop
    return changes
