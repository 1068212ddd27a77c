"""Write one keyword into a call's source text, in the style of the call."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Sequence

from unstall.model.remedy import AmendList, ListItems, Scalar, SetKeyword
from unstall.remedies.mappings import Known, Mapping, mappings
from unstall.remedies.names import Names
from unstall.remedies.origins import definition
from unstall.remedies.sites import NotPatchable, Site, end_of
from unstall.remedies.text import Span, Text

_SILENT = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def with_keyword(text: Text, tree: ast.Module, site: Site, edit: SetKeyword, command: Sequence[str] | None) -> str:
    """Return the text with *edit* written in; the same text where it holds already.

    It is written where the value is defined, if nothing else uses it (`origins`, `mappings`), else at the call.

    Args:
        command: the words that start the training, None where they are not known.
    Raises:
        NotPatchable: When the argument may come from ``*args`` or out of a mapping that is made elsewhere, the command
            decides it, or giving it a new value would drop an assignment inside the old one.
    """
    call, value = site.node, text.literal(edit.value)
    if not isinstance(call, ast.Call):
        if edit.position is not None:
            raise NotPatchable(edit, "the decorator has no brackets, and the parameter is not keyword-only")
        end = text.span(call)[1]
        return text.spliced(((end, end), f"({edit.keyword}={value})".encode()))
    names = Names(tree)
    old = passed(call, edit)
    if old is None:
        through = _unpacked(mappings(names, call), edit)
        if through is not None and through.known in (Known.SHARED, Known.BUILT):
            return text.spliced((text.span(through.node), _amended(text, through.node, edit.keyword, value)))
        old = through.items[edit.keyword] if through is not None else None
    if old is None:
        if len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp) and end_of(call.args[0]) == end_of(call):
            raise NotPatchable(edit, "its only argument is a generator without brackets of its own")
        return text.spliced(*appended(text, call, edit.keyword, value))
    old = definition(names, old, edit, command) or old
    if _is(old, edit.value):
        return text.spliced()
    if any(isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for part in ast.walk(old)):
        raise NotPatchable(edit, f"the value there, {text.of(old)}, does more than give a value")
    return text.spliced((text.span(old), value.encode()))


def _unpacked(given: Sequence[Mapping], edit: SetKeyword) -> Mapping | None:
    """Return the mapping through which the keyword is passed, or may be; None where none holds it."""
    for mapping in given:
        if mapping.known is Known.NOT or (mapping.known is Known.PART and edit.keyword not in mapping.items):
            made = ast.unparse(mapping.node)
            raise NotPatchable(edit, f"it may be passed through **{made}; set {edit.keyword} where {made} is made")
    holding = [mapping for mapping in given if edit.keyword in mapping.items or mapping.known is Known.BUILT]
    if len(holding) > 1:
        raise NotPatchable(edit, "it may be passed through more than one **mapping")
    return holding[0] if holding else None


def _amended(text: Text, mapping: ast.expr, keyword: str, value: str) -> bytes:
    """Return a mapping like *mapping* but for *keyword*: whoever else uses it is left alone."""
    quote = '"' if text.raw.count(b'"') > text.raw.count(b"'") else "'"
    return f"{{**{text.of(mapping)}, {quote}{keyword}{quote}: {value}}}".encode()


def passed(call: ast.Call, edit: SetKeyword | ListItems | AmendList) -> ast.expr | None:
    """Return the expression now passed for the keyword, or None where it is not passed by name or place.

    Raises:
        NotPatchable: When it may come from ``*args``.
    """
    for keyword in call.keywords:
        if keyword.arg == edit.keyword:
            return keyword.value
    if edit.position is not None:
        before = call.args[: edit.position + 1]
        if any(isinstance(arg, ast.Starred) for arg in before):
            raise NotPatchable(edit, "it may be passed through *args")
        if len(before) > edit.position:
            return before[edit.position]
    return None


def _is(node: ast.expr, value: Scalar) -> bool:
    """Return whether *node* is a literal of *value*, its type included (1 is not True)."""
    try:
        there = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return False
    return type(there) is type(value) and there == value


def appended(text: Text, call: ast.Call, keyword: str, value: str) -> list[tuple[Span, bytes]]:
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
