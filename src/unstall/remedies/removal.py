"""Take one call out of a source text: a statement, or the context manager of a `with`."""

from __future__ import annotations

import ast
import re

from unstall.model.remedy import RemoveCall
from unstall.remedies.sites import Site, Use, end_of, refuse_if_used
from unstall.remedies.text import Text


def without_call(text: Text, site: Site, edit: RemoveCall) -> str:
    """Return the text without the call; its line goes with it where nothing else stands there.

    Raises:
        NotPatchable: When the result of the call is used.
    """
    refuse_if_used(site, edit)
    if site.use is Use.STATEMENT:
        assert isinstance(site.holder, ast.Expr)
        return without_statement(text, site.holder, site.block)
    assert isinstance(site.holder, (ast.With, ast.AsyncWith))
    if len(site.holder.items) > 1:
        return _without_item(text, site.holder, site.node)
    return _dedented(text, site.holder)


def without_statement(text: Text, statement: ast.stmt, block: tuple[ast.stmt, ...]) -> str:
    """Return the text without *statement*, one of *block*; its line goes with it where nothing else stands there."""
    start, end = text.span(statement)
    if len(block) == 1:
        return text.spliced(((start, end), b"pass"))
    n = block.index(statement)
    first, last = statement.lineno, end_of(statement)[0]
    if n + 1 < len(block) and block[n + 1].lineno == last:
        return text.spliced(((start, text.span(block[n + 1])[0]), b""))
    if n and end_of(block[n - 1])[0] == first:
        return text.spliced(((text.span(block[n - 1])[1], end), b""))
    return text.spliced(((text.at(first), text.at(last + 1)), b""))


def _without_item(text: Text, statement: ast.With | ast.AsyncWith, node: ast.expr) -> str:
    n = next(n for n, item in enumerate(statement.items) if item.context_expr is node)
    start, end = text.span(node)
    if n + 1 < len(statement.items):
        return text.spliced(((start, text.span(statement.items[n + 1].context_expr)[0]), b""))
    before = statement.items[n - 1]
    return text.spliced(((text.span(before.optional_vars or before.context_expr)[1], end), b""))


def _dedented(text: Text, statement: ast.With | ast.AsyncWith) -> str:
    """Return the text with the body of *statement* in its place."""
    start, body = text.at(statement.lineno, statement.col_offset), statement.body
    head = text.raw[text.span(statement.items[0].context_expr)[1] : text.span(body[0])[0]]
    colon = re.match(rb"(?:[^:#]|#[^\r\n]*)*:", head)
    assert colon is not None  # nothing but brackets and comments stands before it
    if not re.search(rb"[\r\n]", head[colon.end() :]):  # with call(): body
        return text.spliced(((start, text.span(body[0])[0]), b""))
    after_colon = text.span(body[0])[0] - len(head) + colon.end()
    first = text.line_at(after_colon) + 1
    return text.spliced(
        ((text.at(statement.lineno), text.at(first)), b""),
        *_shifts(text, statement, first),
    )


def _shifts(text: Text, statement: ast.With | ast.AsyncWith, first: int) -> list[tuple[tuple[int, int], bytes]]:
    """Return the changes that move lines *first* to the end of the body to the indent of *statement*."""
    old, new = text.indent(statement.body[0].lineno), text.indent(statement.lineno)
    last = end_of(statement)[0]
    while last < len(text.lines) and re.match(re.escape(old) + rb"#|\s*$", text.lines[last]):
        last += 1  # comments that belong to the body
    kept = _inside_strings(statement)
    return [
        ((text.at(line), text.at(line) + len(old)), new)
        for line in range(first, last + 1)
        if line not in kept and text.lines[line - 1].startswith(old)
    ]


def _inside_strings(tree: ast.stmt) -> set[int]:
    """Return the lines that begin inside a string: their white space is part of a value."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))
        for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    }
