"""Write one keyword into a call's source text, in the style of the call."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from unstall.model.remedy import Scalar, SetKeyword
from unstall.remedies.sites import NotPatchable, Site, end_of
from unstall.remedies.text import Span, Text

_SILENT = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def with_keyword(text: Text, site: Site, edit: SetKeyword) -> str:
    """Return the text with *edit* written in; the same text where it holds already.

    Raises:
        NotPatchable: When the argument may come from ``*args`` or ``**kwargs``, or giving it a new
            value would drop an assignment inside the old one.
    """
    call, value = site.node, _literal(edit.value, text)
    if not isinstance(call, ast.Call):
        if edit.position is not None:
            raise NotPatchable(edit, "the decorator has no brackets, and the parameter is not keyword-only")
        end = text.span(call)[1]
        return text.spliced(((end, end), f"({edit.keyword}={value})".encode()))
    old = _passed(call, edit)
    if old is None:
        return text.spliced(*_append(text, call, edit.keyword, value))
    if _is(old, edit.value):
        return text.spliced()
    if any(isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for part in ast.walk(old)):
        raise NotPatchable(edit, f"the value there, {text.of(old)}, does more than give a value")
    return text.spliced((text.span(old), value.encode()))


def _passed(call: ast.Call, edit: SetKeyword) -> ast.expr | None:
    """Return the expression now passed for the keyword, or None where it is surely not passed."""
    for keyword in call.keywords:
        if keyword.arg == edit.keyword:
            return keyword.value
    if edit.position is not None:
        before = call.args[: edit.position + 1]
        if any(isinstance(arg, ast.Starred) for arg in before):
            raise NotPatchable(edit, "it may be passed through *args")
        if len(before) > edit.position:
            return before[edit.position]
    if any(keyword.arg is None for keyword in call.keywords):
        raise NotPatchable(edit, "it may be passed through **kwargs")
    if len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp) and end_of(call.args[0]) == end_of(call):
        raise NotPatchable(edit, "its only argument is a generator without brackets of its own")
    return None


def _is(node: ast.expr, value: Scalar) -> bool:
    """Return whether *node* is a literal of *value*, its type included (1 is not True)."""
    try:
        there = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return False
    return type(there) is type(value) and there == value


def _literal(value: Scalar, text: Text) -> str:
    """Return *value* as source, with the quotes that the file uses more often."""
    written = repr(value)
    if isinstance(value, float) and written in ("inf", "-inf", "nan"):
        return f'float("{written}")'
    plain = isinstance(value, str) and '"' not in written and "\\" not in written
    return f'"{value}"' if plain and text.raw.count(b'"') > text.raw.count(b"'") else written


def _append(text: Text, call: ast.Call, keyword: str, value: str) -> list[tuple[Span, bytes]]:
    """Return the insertions that add ``keyword=value`` after the last argument of *call*."""
    new = f"{keyword}{_equals(text, call)}{value}".encode()
    end, last = _last_word(text, call)
    if last == "(":
        return [((end, end), new)]
    rows = [end_of(call.func)[0], *sorted([*(a.lineno for a in call.args), *(k.lineno for k in call.keywords)])]
    if rows[-1] == rows[-2]:  # the last two stand on one row, or all of them beside the bracket
        return [((end, end), b" " + new + b"," if last == "," else b", " + new)]
    row = text.ending(rows[-1]) + text.indent(rows[-1]) + new
    rest = text.raw[end : text.span(call)[1]]
    broken = re.search(rb"[\r\n]", rest)
    row_end = end + broken.start() if broken else end  # behind a comment on the last argument's row
    if last == ",":
        return [((row_end, row_end), row + b",")]
    if row_end == end:
        return [((end, end), b"," + row)]
    return [((end, end), b","), ((row_end, row_end), row)]


def _equals(text: Text, call: ast.Call) -> str:
    """Return the equals sign as the last keyword of *call* has it, with or without spaces."""
    named = [keyword for keyword in call.keywords if keyword.arg]
    if named and named[-1].arg:
        start = text.at(named[-1].lineno, named[-1].col_offset) + len(named[-1].arg.encode())
        between = text.raw[start : text.span(named[-1].value)[0]]
        if re.fullmatch(rb" *= *", between):
            return between.decode()
    return "="


def _last_word(text: Text, call: ast.Call) -> tuple[int, str]:
    """Return the last token before the closing bracket of *call*, and the byte at which it ends."""
    start, end = text.span(call)
    start = text.raw.index(b"(", text.span(call.func)[1])
    snippet = text.raw[start:end].decode()
    rows = snippet.split("\n")
    tokens = tokenize.generate_tokens(io.StringIO(snippet).readline)
    words = [token for token in tokens if token.type not in _SILENT]
    row, column = words[-2].end
    before = "\n".join([*rows[: row - 1], rows[row - 1][:column]])
    return start + len(before.encode()), words[-2].string
