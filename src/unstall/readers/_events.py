"""Events out of the text of a Kineto trace, a piece at a time, so that memory stays bounded.

A piece of about 1 MB ends between two events and is decoded at once into typed structs of only the fields that are
wanted; whatever that refuses (odd types, NaN, damage) is read again event by event, which tells exactly where it
goes wrong. Measured on 54 MB of JSON: 0.11 s typed, about 1.5 s event by event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from unstall.model.errors import UnstallError
from unstall.readers._source import Source
from unstall.readers._span import EXACT, EXACT_BELOW_US, FAST, AnySpan, ExactSpan, Span, plain

PIECE = 1 << 20  # bytes decoded at a time: it stays in the caches, and 8 MB took a third longer
WINDOW = 16 << 10  # characters in which one event is looked for at first
TAIL = 64 << 10  # bytes of a piece in which its last event begins
SHOWING = 16 << 10  # bytes of a piece that show whether its times have fractions
LARGEST = 64 << 20  # bytes that one event, or what precedes the events, may take

_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb'\}\s*,(?=\s*\{\s*"ph")')
_BETWEEN_ANY = re.compile(rb'\}\s*,(?=\s*\{\s*")')
_END = re.compile(rb"\}\s*\](?=\s*(?:[,}]|\Z))")
_FOLLOWING, _FOLLOWING_ANY, _LAST = (re.compile(it.pattern.decode()) for it in (_BETWEEN, _BETWEEN_ANY, _END))
_NO_NUMBER = re.compile(rb"(?<=:)(\s*)[-+]?(?:nan|inf|infinity)(?=\s*[,}\]])", re.I)  # Kineto writes such for 0/0
_FRACTION = re.compile(rb'"ts"\s*:\s*-?\d+\.\d')
_REFUSALS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_NEXT = re.compile(r"[\s,]*")


@dataclass(slots=True)
class Unread:
    """How the reading of one file went.

    Attributes:
        head, tail: the text before and after the events, so far.
        cut_at: bytes of text that were good, where it ends in the middle or goes wrong.
        trouble: why, in words.
        odd: events that could not be read: no JSON, or a name, a category or a time that is none.
        odd_at: where the first of them begins, in bytes.
    """

    head: bytes = b""
    tail: bytes = b""
    cut_at: int | None = None
    trouble: str = ""
    odd: int = 0
    odd_at: int | None = None


@dataclass(slots=True)
class Events:
    """The events of one file, in its order.

    Raises (on iteration):
        UnstallError: When it is no trace, or one event is longer than LARGEST.
    """

    source: Source
    about: Unread = field(default_factory=Unread)
    exact: bool = False
    _buffer: bytes = b""
    _offset: int = 0  # of the buffer's first byte in the text
    _whole: bool = False  # nothing more to read
    _ended: bool = False  # the list of events was closed

    def __iter__(self) -> Iterator[list[AnySpan]]:
        self._seek()
        wanted = PIECE
        while not self._ended:
            self._fill(wanted)
            before = self._offset
            spans = self._typed()
            if spans is None:
                spans = self._one_by_one()
            wanted = PIECE if self._offset > before else len(self._buffer) + PIECE
            if spans:
                yield spans
                spans = None  # they hold the piece's text; the next one is decoded without them
            if self.about.cut_at is not None:
                return
        self._finish()

    def _fill(self, wanted: int) -> None:
        if len(self._buffer) >= LARGEST and wanted > LARGEST:
            raise UnstallError(
                f"{self.source.path}: the event at byte {self._offset} is longer than {LARGEST >> 20} MB.\n"
                "That is no event of a profiler; record the trace again."
            )
        if not self._whole and len(self._buffer) < wanted:
            missing = wanted - len(self._buffer)
            more = self.source.read(missing)
            self._whole = len(more) < missing
            self._buffer = self._buffer + more if self._buffer else more

    def _seek(self) -> None:
        """Find the list of events; what precedes it is the head."""
        while True:
            wanted = max(PIECE, 2 * len(self._buffer))
            self._buffer += self.source.read(wanted - len(self._buffer))
            self._whole = len(self._buffer) < wanted
            text = self._buffer.removeprefix(b"\xef\xbb\xbf").lstrip()
            skipped = len(self._buffer) - len(text)
            if text.startswith(b"[") and text[1:4096].lstrip()[:1] in (b"{", b"]", b""):
                return self._skip(skipped + 1, b"")
            found = _START.search(text)
            if found and text.startswith(b"{"):
                return self._skip(skipped + found.end(), text[: found.end()])
            if self._whole or len(text) >= LARGEST or not text.startswith(b"{"):
                raise not_a_trace(self.source, text)

    def _skip(self, count: int, head: bytes) -> None:
        self.about.head = head
        self._offset += count
        self._buffer = self._buffer[count:]

    def _typed(self) -> list[AnySpan] | None:
        """Decode up to the last boundary between two events, or to the list's end; None where that is refused."""
        cut = None if self._whole else _last(self._buffer)
        if cut is not None:
            spans = self._decoded(cut)
            if spans is None and self._mended():
                spans = self._decoded(cut)
            if spans is not None:
                self._consume(cut + 1)
                return spans
        end = _END.search(self._buffer)
        if end is None:
            return None
        spans = self._decoded(end.start() + 1)
        if spans is None and cut is None and self._mended():
            spans = self._decoded(end.start() + 1)
        if spans is not None:
            self._ended = True
            self._consume(end.end())
        return spans

    def _mended(self) -> bool:
        """Write 0 for numbers that are none; whether there were such. Every byte keeps its place."""
        mended = _NO_NUMBER.sub(lambda found: b"0".ljust(len(found[0])), self._buffer)
        differs, self._buffer = mended != self._buffer, mended
        return differs

    def _decoded(self, cut: int) -> list[AnySpan] | None:
        text = b"".join((b"[", memoryview(self._buffer)[:cut], b"]"))
        try:
            if not self.exact:
                spans: list[AnySpan] = [event for event in FAST.decode(text) if type(event) is Span]
                far = [span.ts for span in spans if span.ts >= EXACT_BELOW_US]
                if not far or not (_FRACTION.search(text, 0, SHOWING) or any(ts % 1 for ts in far)):
                    return spans
                self.exact = True
            return [event for event in EXACT.decode(text) if type(event) is ExactSpan]
        except _REFUSALS:
            return None

    def _consume(self, count: int) -> None:
        self._offset += count
        self._buffer = self._buffer[count:]

    def _one_by_one(self) -> list[AnySpan]:
        """Decode event by event as far as the buffer goes; pass over the damaged, note where it ends too early."""
        text = self._buffer.decode("utf-8", "surrogateescape")
        spans: list[AnySpan] = []
        at = good = 0
        while True:
            at = _NEXT.match(text, at).end()  # type: ignore[union-attr]
            if text[at : at + 1] == "]":
                self._ended, good = True, at + 1
                break
            if at == len(text):
                self._cut(_width(text[:good]), "it ends in the middle")
                break
            try:
                event, end = _parsed(text, at)
            except _Damaged as damage:
                resumed = self._after(damage, text)
                if resumed is None:
                    self._cut(_width(text[:good]), "it ends in the middle")
                    break
                self._odd(text, at)
                at = good = resumed
                continue
            span = self._span(event, text, at)
            at = good = end
            if span is not None:
                spans.append(span)
        self._consume(_width(text[:good]))
        return spans

    def _after(self, damage: _Damaged, text: str) -> int | None:
        """Return where the event after the damage begins; None where an event may be only cut off."""
        following = _FOLLOWING.search(text, damage.place) or _FOLLOWING_ANY.search(text, damage.place)
        if following:
            return following.end()
        if damage.halfway:
            return None
        if last := _LAST.search(text, damage.place):
            return last.end() - 1
        return len(text) if not self._whole and len(text) - damage.place > PIECE else None

    def _odd(self, text: str, at: int) -> None:
        self.about.odd += 1
        if self.about.odd_at is None:
            self.about.odd_at = self._offset + _width(text[:at])

    def _cut(self, good: int, why: str) -> None:
        if self._whole:
            self.about.cut_at = self._offset + good
            self.about.trouble = self.source.trouble or why

    def _span(self, event: object, text: str, at: int) -> AnySpan | None:
        """Return a decoded object as a span, or None where it is no span or is odd."""
        if isinstance(event, dict) and event.get("ph") != "X":
            return None
        try:
            return plain(event)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            self._odd(text, at)
            return None

    def _finish(self) -> None:
        """Keep what follows the list of events, within reason."""
        rest = self.source.read(LARGEST) if not self._whole else b""
        self.about.tail = self._buffer + rest
        opened = self.about.head.startswith(b"{") and len(rest) < LARGEST  # beyond it nothing is asked of the end
        if self.source.trouble or (opened and not self.about.tail.rstrip(b" \t\r\n\0").endswith(b"}")):
            self.about.cut_at = self._offset + len(self.about.tail)
            self.about.trouble = self.source.trouble or "it ends after the events"


class _Damaged(Exception):
    """An event is no JSON: from which character on, and whether the text may only end too early."""

    def __init__(self, place: int, halfway: bool) -> None:
        super().__init__(place, halfway)
        self.place, self.halfway = place, halfway


_LENIENT = json.JSONDecoder(parse_float=Decimal, strict=False)  # line ends in strings are let pass


def _parsed(text: str, at: int) -> tuple[object, int]:
    """Return the value that begins at *at*, and where it ends.

    It is looked for in a window, as an error of json counts the lines before it: many in a long text would take minutes.

    Raises:
        _Damaged: When there is none.
    """
    width = WINDOW
    while True:
        window = text[at : at + width]
        try:
            value, length = _LENIENT.raw_decode(window)
        except RecursionError:
            raise _Damaged(at, False) from None
        except ValueError as error:  # its place is none where a number has too many digits
            place = getattr(error, "pos", 0)
            halfway = "Unterminated" in str(error) or place >= len(window) - len("\\ud83d\\ude00")
            if not halfway or at + width >= len(text):
                raise _Damaged(at + place, halfway) from None
            width *= 8
        else:
            return value, at + length


def _last(text: bytes) -> int | None:
    """Return where the comma after the last whole event stands, looked for in the last TAIL bytes."""
    start = max(0, len(text) - TAIL)
    for pattern in (_BETWEEN, _BETWEEN_ANY):
        last = None
        for last in pattern.finditer(text, start):  # noqa: B007 - the last one is wanted
            pass
        if last is not None:
            return last.end() - 1
    return None


def _width(text: str) -> int:
    """Return how many bytes of the file *text* was."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def not_a_trace(source: Source, text: bytes) -> UnstallError:
    """Return the error that says what *source* is instead of a trace."""
    path, start = source.path, text[:4096]
    what = "it is not JSON"
    if not text:
        what = f"it is empty ({source.trouble})" if source.trouble else "it is empty"
    elif b'"nodes"' in text[: 1 << 20] and b'"schema"' in start:
        what = "it is an execution trace (ExecutionTraceObserver), which holds no times of the device"
    elif start.startswith(b"["):
        what = "its list holds no events (a memory timeline, perhaps)"
    elif start.startswith(b"{"):
        what = f'no "traceEvents" in its first {max(1, len(text) >> 20)} MB'
    return UnstallError(
        f"{path} is not a profiler's trace: {what}.\n"
        "Give the file that torch.profiler's export_chrome_trace or tensorboard_trace_handler wrote."
    )
