"""A source text that can be cut where the syntax tree says: by line and byte column."""

from __future__ import annotations

import ast
import bisect

from unstall.model.remedy import Scalar
from unstall.remedies.sites import end_of

Span = tuple[int, int]  # first byte, and the byte after the last


class Text:
    """The bytes of a source, cut as Python's parser counts: lines from 1, columns in UTF-8 bytes.

    Attributes:
        raw: the whole text, UTF-8.
        lines: its lines, each with its ending.
    """

    __slots__ = ("_starts", "lines", "raw")

    def __init__(self, source: str) -> None:
        self.raw = source.encode("utf-8", "surrogatepass")
        self.lines = self.raw.splitlines(keepends=True)
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int = 0) -> int:
        """Return the byte offset of a place; the line after the last is the end of the text."""
        return self._starts[line - 1] + column

    def line_at(self, offset: int) -> int:
        """Return the number of the line that holds the byte *offset*."""
        return bisect.bisect_right(self._starts, offset)

    def span(self, node: ast.expr | ast.stmt) -> Span:
        return self.at(node.lineno, node.col_offset), self.at(*end_of(node))

    def of(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.raw[start:end].decode()

    def indent(self, line: int) -> bytes:
        """Return the white space that *line* begins with."""
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip(b" \t\f"))]

    def ending(self, line: int) -> bytes:
        """Return the line ending in use at *line*; a line feed where it has none."""
        text = self.lines[line - 1]
        return text[len(text.rstrip(b"\r\n")) :] or b"\n"

    def literal(self, value: Scalar) -> str:
        """Return *value* as source, with the quotes that the text uses more often."""
        written = repr(value)
        if isinstance(value, float) and written in ("inf", "-inf", "nan"):
            return f'float("{written}")'
        plain = isinstance(value, str) and '"' not in written and "\\" not in written
        return f'"{value}"' if plain and self.raw.count(b'"') > self.raw.count(b"'") else written

    def spliced(self, *changes: tuple[Span, bytes]) -> str:
        """Return the text with each span replaced; the spans must not overlap."""
        raw = self.raw
        for (start, end), new in sorted(changes, reverse=True):
            raw = raw[:start] + new + raw[end:]
        return raw.decode("utf-8", "surrogatepass")
