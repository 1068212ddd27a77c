"""The events of traces as they stand in their files, a piece at a time, to be written beside others.

Of one trace they are passed through byte for byte. Of several, processes, flows and clocks are told apart by rank.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import msgspec

from unstall.readers._source import Source

PIECE = 8 << 20  # bytes of text held at a time
LARGEST = 64 << 20  # bytes; an event longer than that ends the reading
FRESH_PID = 1_000_000_000  # where two ranks have a process of one number; Linux has none over 4,194,304
_OPENED = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb'\}\s*,(?=\s*\{\s*")')
_CLOSED = re.compile(rb"\}\s*\](?=\s*(?:[,}]|\Z))")
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_SPACE = re.compile(r"[\s,]*")
_WHOLE = json.JSONDecoder().raw_decode
_TRIES = 50  # brackets looked at for the one that closes the list of events

Event = dict[str, msgspec.Raw]
_DECODE = msgspec.json.Decoder(list[Event]).decode
_CHECK = msgspec.json.Decoder(list[msgspec.defstruct("Nothing", [], gc=False)]).decode  # type: ignore[misc] # reads no field


def originals(paths: Sequence[Path], ranks: Sequence[int]) -> tuple[int, Iterator[bytes]]:
    """Return the base of the clock, and pieces of the traces' events, each a JSON list.

    Args:
        paths: one a rank; none of a run that was recorded live.
    Returns:
        ns that are added to a time of an event (microseconds x 1000) to get one of the `Run` read from the same files,
        and the pieces. A file that is damaged ends where it goes wrong.
    Raises:
        UnstallError: When a file cannot be opened.
    """
    if not paths:
        return 0, iter(())
    bases = [_base_ns(path) for path in paths]
    if len(paths) == 1:
        return bases[0], _pieces(paths[0])
    return bases[0], _told_apart(paths, ranks, [base - bases[0] for base in bases])


def _told_apart(paths: Sequence[Path], ranks: Sequence[int], shifts_ns: Sequence[int]) -> Iterator[bytes]:
    taken: set[bytes] = set()
    fresh = itertools.count(FRESH_PID)
    for path, rank, shift_ns in zip(paths, ranks, shifts_ns):
        apart = _Apart(rank, len(paths), shift_ns, taken, fresh)
        for text in _pieces(path):
            yield msgspec.json.encode([apart.event(event) for event in _DECODE(text)])


@dataclass(slots=True)
class _Apart:
    """Renames one rank's processes and flows where another rank has the same.

    Attributes:
        taken: process numbers of all ranks so far, as JSON; fresh: numbers that no file has.
    """

    rank: int
    ranks: int
    shift_ns: int
    taken: set[bytes]
    fresh: Iterator[int]
    pids: dict[bytes, msgspec.Raw] = field(default_factory=dict)

    def event(self, event: Event) -> Event:
        if "pid" in event:
            event["pid"] = self._pid(event["pid"])
        if "id" in event and (number := bytes(event["id"])).isdigit():
            event["id"] = msgspec.Raw(b"%d" % (int(number) * self.ranks + self.rank))
        if self.shift_ns and "ts" in event:
            event["ts"] = self._shifted(event["ts"])
        if bytes(event.get("name", b"")) == b'"process_name"':
            event["args"] = self._named(event.get("args"))
        return event

    def _pid(self, pid: msgspec.Raw) -> msgspec.Raw:
        given = bytes(pid)
        if given not in self.pids:
            free = given not in self.taken
            self.pids[given] = msgspec.Raw(given if free else b"%d" % next(self.fresh))
            self.taken.add(given)
        return self.pids[given]

    def _shifted(self, ts: msgspec.Raw) -> msgspec.Raw:
        try:
            moved = Decimal(bytes(ts).decode().strip('"')) + Decimal(self.shift_ns) / 1000
        except ArithmeticError:
            return ts
        return msgspec.Raw(f"{moved:f}".encode())

    def _named(self, args: msgspec.Raw | None) -> msgspec.Raw:
        known = json.loads(bytes(args)) if args is not None else {}
        name = known.get("name", "") if isinstance(known, dict) else ""
        return msgspec.Raw(json.dumps({"name": f"rank {self.rank}: {name}"}).encode())


def _base_ns(path: Path) -> int:
    """Return what the times of the file count from, wherever in the file it stands; 0 where it does not say."""
    with Source(path) as source:
        rest = b""
        while more := source.read(PIECE):
            found = _BASE.search(rest + more)
            if found:
                return int(found[1])
            rest = more[-64:]
    return 0


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield pieces of the list of events; each is a list of JSON objects."""
    with Source(path) as source:
        buffer, whole = _opened(source)
        while buffer:
            cut = None if whole else _last(buffer)
            if cut is not None and _is_list(text := b"[" + buffer[:cut] + b"]"):
                yield text
                buffer = buffer[cut + 1 :]
            elif whole and (last := _closed(buffer)) is not None:
                yield last
                return
            else:
                good, used, over = _one_by_one(buffer)
                yield b"[" + b",".join(good) + b"]"
                buffer = buffer[used:]
                if over or whole or (not used and len(buffer) > LARGEST):
                    return
            if not whole:
                more = source.read(PIECE)
                whole = len(more) < PIECE
                buffer += more


def _opened(source: Source) -> tuple[bytes, bool]:
    """Return what was read after the bracket that opens the list of events, and whether that was all."""
    buffer = b""
    while more := source.read(PIECE):
        buffer += more
        if buffer.lstrip().startswith(b"["):
            return buffer.lstrip()[1:], len(more) < PIECE
        found = _OPENED.search(buffer)
        if found:
            return buffer[found.end() :], len(more) < PIECE
        if len(buffer) > LARGEST:
            break
    return b"", True


def _last(buffer: bytes) -> int | None:
    """Return where the comma after the last whole event stands, looked for in the last 256 KB."""
    last = None
    for last in _BETWEEN.finditer(buffer, max(0, len(buffer) - (1 << 18))):  # noqa: B007 - the last one is wanted
        pass
    return None if last is None else last.end() - 1


def _is_list(text: bytes) -> bool:
    """Return whether *text* is a JSON list of objects."""
    try:
        _CHECK(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _closed(buffer: bytes) -> bytes | None:
    """Return the events up to the bracket that closes the list, or None where they cannot be read in one go."""
    for closed in itertools.islice(_CLOSED.finditer(buffer), _TRIES):
        text = b"[" + buffer[: closed.start() + 1] + b"]"
        if _is_list(text):
            return text
    return None


def _one_by_one(buffer: bytes) -> tuple[list[bytes], int, bool]:
    """Return the events that can be read, how many bytes they take, and whether the list ends or goes wrong there.

    An event that is no JSON by the standard (NaN, damaged text) is left out.
    """
    said = buffer.decode("latin-1")  # a character a byte, so that places are offsets
    good: list[bytes] = []
    at = 0
    while True:
        begin = _SPACE.match(said, at).end()  # type: ignore[union-attr] # it matches the empty text too
        if said[begin : begin + 1] == "]":
            return good, begin, True
        try:
            _, end = _WHOLE(said, begin)
        except (ValueError, RecursionError):
            return good, at, begin < len(said) and len(said) - begin > LARGEST
        text, at = buffer[begin:end], end
        if _is_list(b"[" + text + b"]"):
            good.append(text)
