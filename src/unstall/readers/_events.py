"""Events out of the text of a Kineto trace, a piece at a time, so that memory stays bounded.

A piece of about 8 MB ends between two events and is decoded at once into typed structs of only the fields that are
wanted; whatever that refuses (odd types, NaN, damage) is read again event by event, which tells exactly where it
goes wrong. Measured on 54 MB of JSON: 0.11 s typed, about 1.5 s event by event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Union

import msgspec

from unstall.model.errors import UnstallError
from unstall.model.trace import NONE
from unstall.readers._source import Source

PIECE = 8 << 20  # bytes decoded at a time
LARGEST = 64 << 20  # bytes that one event, or what precedes the events, may take
EXACT_BELOW_US = 2.0**43  # below it a float64 of microseconds tells every nanosecond (half a unit is 0.49 ns)
_OTHERS = "MisftbneBECIPNODSTpFRcv()="  # phases of events that have no duration, and are left out

Number = Union[int, float, str, None]  # noqa: UP007 - evaluated by msgspec on 3.10
NO_JSON = msgspec.Raw()  # of a field that an event lacks


class Arguments(msgspec.Struct, gc=False):
    """What is wanted of an event's `args`."""

    correlation: Number = NONE
    stream: Number = None
    device: Number = None
    bytes: Number = None
    size: Number = None
    types: msgspec.Raw = msgspec.field(name="Input type", default=NO_JSON)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NO_JSON)
    dims_2020: msgspec.Raw = msgspec.field(name="Input dims", default=NO_JSON)
    stack: Union[str, None] = msgspec.field(name="Call stack", default="")  # noqa: UP007
    collective: Union[str, None] = msgspec.field(name="Collective name", default="")  # noqa: UP007
    sent: Number = msgspec.field(name="In msg nelems", default=None)
    received: Number = msgspec.field(name="Out msg nelems", default=None)
    dtype: Union[str, None] = ""  # noqa: UP007


class Span(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event with a duration; times in microseconds."""

    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    pid: Number = None
    tid: Number = None
    args: Union[Arguments, None] = None  # noqa: UP007


class ExactSpan(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """The same, every digit kept: for fractions of a microsecond since 1970, which a float64 rounds to 0.25 us."""

    name: str = ""
    cat: str = ""
    ts: Decimal = Decimal(0)
    dur: Decimal = Decimal(0)
    pid: Number = None
    tid: Number = None
    args: Union[Arguments, None] = None  # noqa: UP007


AnySpan = Union[Span, ExactSpan]  # noqa: UP007
_UNTIMED = tuple(msgspec.defstruct(f"Untimed{i}", [], tag_field="ph", tag=c, gc=False) for i, c in enumerate(_OTHERS))


def _decoder(spans: type[AnySpan]) -> msgspec.json.Decoder[list[AnySpan]]:
    kinds: Any = Union[(spans, *_UNTIMED)]
    return msgspec.json.Decoder(list[kinds])


_FAST, _EXACT = _decoder(Span), _decoder(ExactSpan)
_ARGUMENTS = {field.encode_name: field for field in msgspec.structs.fields(Arguments)}

_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb'\}\s*,(?=\s*\{\s*"ph")')
_BETWEEN_ANY = re.compile(rb'\}\s*,(?=\s*\{\s*")')
_END = re.compile(rb"\}\s*\](?=\s*(?:[,}]|\Z))")
_FRACTION = re.compile(rb'"ts"\s*:\s*-?\d+\.\d')
_REFUSALS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_SPACE = " \t\r\n"


@dataclass(slots=True)
class Unread:
    """How the reading of one file went.

    Attributes:
        head, tail: the text before and after the events, so far.
        cut_at: bytes of text that were good, where it ends in the middle or goes wrong.
        trouble: why, in words.
        odd: events that are no JSON object, or have a name, a category or a time that is none.
    """

    head: bytes = b""
    tail: bytes = b""
    cut_at: int | None = None
    trouble: str = ""
    odd: int = 0


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
            if spans is not None:
                self._consume(cut + 1)
                return spans
        end = _END.search(self._buffer)
        if end is None:
            return None
        spans = self._decoded(end.start() + 1)
        if spans is not None:
            self._ended = True
            self._consume(end.end())
        return spans

    def _decoded(self, cut: int) -> list[AnySpan] | None:
        text = b"".join((b"[", memoryview(self._buffer)[:cut], b"]"))
        try:
            if not self.exact:
                spans: list[AnySpan] = [event for event in _FAST.decode(text) if type(event) is Span]
                if max((span.ts for span in spans), default=0.0) < EXACT_BELOW_US or not _FRACTION.search(text):
                    return spans
                self.exact = True
            return [event for event in _EXACT.decode(text) if type(event) is ExactSpan]
        except _REFUSALS:
            return None

    def _consume(self, count: int) -> None:
        self._offset += count
        self._buffer = self._buffer[count:]

    def _one_by_one(self) -> list[AnySpan]:
        """Decode event by event as far as the buffer goes; note where it goes wrong."""
        text = self._buffer.decode("latin-1")  # a byte a character, so that places are offsets
        spans: list[AnySpan] = []
        at = good = 0
        while True:
            while at < len(text) and (text[at] in _SPACE or text[at] == ","):
                at += 1
            if at < len(text) and text[at] == "]":
                self._ended, good = True, at + 1
                break
            if at == len(text):
                self._cut(good, "it ends in the middle")
                break
            try:
                event, at = _LENIENT.raw_decode(text, at)
            except RecursionError:
                self._cut(good, "an event is nested too deeply", now=True)
                break
            except ValueError as error:
                place = getattr(error, "pos", at)
                halfway = "Unterminated" in str(error) or place >= len(text) - 12
                self._cut(good, "it ends in the middle" if halfway else "it is damaged there", now=not halfway)
                break
            good = at
            span = self._span(event)
            if span is not None:
                spans.append(span)
        self._consume(good)
        return spans

    def _cut(self, good: int, why: str, now: bool = False) -> None:
        if self._whole or now:
            self.about.cut_at = self._offset + good
            self.about.trouble = self.source.trouble or why

    def _span(self, event: object) -> AnySpan | None:
        """Return a decoded object as a span, or None where it is no span or is odd."""
        if isinstance(event, dict) and event.get("ph") != "X":
            return None
        try:
            assert isinstance(event, dict)
            known = event.get("args")
            arguments = {name: known[name] for name in _ARGUMENTS if name in known} if isinstance(known, dict) else {}
            return ExactSpan(
                _utf8(event.get("name") or ""),
                _utf8(event.get("cat") or ""),
                Decimal(event["ts"]),
                Decimal(event.get("dur") or 0),
                _number(event.get("pid")),
                _number(event.get("tid")),
                _arguments(arguments),
            )
        except (AssertionError, ArithmeticError, KeyError, TypeError, ValueError):
            self.about.odd += 1
            return None

    def _finish(self) -> None:
        """Keep what follows the list of events, within reason."""
        rest = self.source.read(LARGEST) if not self._whole else b""
        self.about.tail = self._buffer + rest
        opened = self.about.head.startswith(b"{")
        if self.source.trouble or (opened and not self.about.tail.rstrip(b" \t\r\n\0").endswith(b"}")):
            self.about.cut_at = self._offset + len(self.about.tail)
            self.about.trouble = self.source.trouble or "it ends after the events"


_LENIENT = json.JSONDecoder(parse_float=Decimal)  # NaN and Infinity come as floats, and are dropped later


def _last(text: bytes) -> int | None:
    """Return where the comma after the last whole event stands, looked for in the last 256 KB."""
    start = max(0, len(text) - (1 << 18))
    for pattern in (_BETWEEN, _BETWEEN_ANY):
        last = None
        for last in pattern.finditer(text, start):  # noqa: B007 - the last one is wanted
            pass
        if last is not None:
            return last.end() - 1
    return None


def _utf8(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError("not a text")
    try:
        return text.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:  # it was written with escapes, and is what it should be
        return text


def _number(value: object) -> Number:
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, (int, float, str)) else None


def _arguments(known: dict[str, Any]) -> Arguments:
    made = Arguments()
    for name, value in known.items():
        attribute = _ARGUMENTS[name].name
        if attribute in ("types", "dims", "dims_2020"):
            value = msgspec.Raw(json.dumps(value, default=float).encode())
        elif attribute in ("stack", "collective", "dtype"):
            value = _utf8(value) if isinstance(value, str) else ""
        else:
            value = _number(value)
        setattr(made, attribute, value)
    return made


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
