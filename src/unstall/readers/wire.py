"""Read one .wire file: what one process recorded. A file cut short is read up to the cut."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unstall.model import wire
from unstall.model.errors import NotARecording
from unstall.model.exclusive import BASE, CLOSED, CUT, MOST_MARKS, OUTSIDE, WITHIN, Spent
from unstall.model.run import Fact, Rows
from unstall.model.wire import ACTIVITIES, PHASES, Frame

SPAN = np.dtype([("kind", "u1"), ("step", "<u4"), ("start", "<i8"), ("end", "<i8"), ("name", "<u4"), ("value", "<i8")])
FETCHED = np.dtype(
    [(name, "<u2") for name in ("worker", "loader")]
    + [
        (name, "<i8")
        for name in ("batch", "start", "wall", "cpu", "run_queue", "team_cpu", "getitem", "collate", "pickle", "nbytes")
    ]
    + [(name, "<u4") for name in ("samples", "flags")]
)
MAGICS = tuple(b"unstall-wire/%d\n" % number for number in range(wire.EARLIEST, wire.FORMAT + 1))  # alike in length
LEAST_STEP_NS = 10_000  # ten times less than the shortest; a damaged number of steps is told by it
STACK = np.dtype([("at", "<i8"), ("weight", "<i8"), ("cell", "u1"), ("stack", "<u4")])
assert SPAN.itemsize == wire.SPAN.size and FETCHED.itemsize == wire.FETCHED.size and STACK.itemsize == wire.STACK.size


@dataclass
class Process:
    """What one process recorded.

    Attributes:
        spans, fetches, stacks: structured arrays, see SPAN, FETCHED and STACK.
        texts: strings by id.
        ended_ns: when it ended in good order, or None.
        cut: whether the file ends in the middle of a frame.
    """

    path: Path
    hello: dict[str, Fact] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    rows: Rows | None = None
    spans: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, SPAN))
    fetches: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, FETCHED))
    stacks: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, STACK))
    trouble: list[str] = field(default_factory=list)
    stopped: str = ""
    ended_ns: int | None = None
    cut: bool = False

    @property
    def pid(self) -> int:
        return int(str(self.hello["pid"]))

    @property
    def thread(self) -> int:
        """The native id of the training thread."""
        return int(str(self.facts.get("thread") or self.hello["thread"]))

    @property
    def steps(self) -> int:
        return int(self.rows.steps.sum()) if self.rows is not None else 0


def read(path: Path) -> Process:
    """Return what *path* holds.

    Raises:
        NotARecording: When it is no .wire file, or of a newer format. The message names the file and the offset.
    """
    data = path.read_bytes()
    process, frames = Process(path), _Frames()
    if not data.startswith(MAGICS):
        if any(
            magic.startswith(data) for magic in MAGICS
        ):  # the process was killed, or the disk was full, before it wrote more
            process.cut = True
            return process
        raise NotARecording(_why_foreign(path, data))
    at = len(wire.MAGIC)
    while at + wire.HEAD.size <= len(data):
        kind, length = wire.HEAD.unpack_from(data, at)
        at += wire.HEAD.size
        if at + length > len(data):
            process.cut = True
            break
        try:
            frames.take(process, kind, data[at : at + length])
        except _UNREADABLE as error:
            raise _damaged(path, f"the frame at byte {at} cannot be read ({error})") from None
        at += length
    process.cut = process.cut or at != len(data)
    try:
        frames.finish(process)
    except _UNREADABLE as error:
        raise _damaged(path, f"its frames contradict one another ({error})") from None
    return process


_UNREADABLE = (ValueError, KeyError, TypeError, IndexError, OverflowError, struct.error)


def _damaged(path: Path, why: str) -> NotARecording:
    return NotARecording(f"{path}: {why}.\nThe file is damaged, or another program wrote to it.\nRecord again.")


def _why_foreign(path: Path, data: bytes) -> str:
    head = data[:40].split(b"\n")[0]
    if head.startswith(b"unstall-wire/"):
        return (
            f"{path}: written in format {head[13:].decode(errors='replace')}, "
            f"this version reads formats {wire.EARLIEST} to {wire.FORMAT}.\n"
            "Read it with the version of unstall that recorded it, or a newer one."
        )
    return f"{path}: not an unstall recording (it begins with {head[:16]!r})."


CELLS = PHASES * ACTIVITIES
CODES = ((0, CELLS), (WITHIN, WITHIN + ACTIVITIES), (BASE, BASE + CELLS), (CLOSED, CUT + 1), (OUTSIDE, OUTSIDE + CELLS))


def _settled(frame: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows of a frame of events, as `Frame.ROW` holds them.

    Raises:
        ValueError: When it is not as long as it says, or holds a code that nothing writes.
    """
    begun, base, cpu, count = (int(n) for n in frame[: wire.EVENTS_HEAD])
    after = wire.EVENTS_HEAD + wire.CUT_FIELDS * count
    cuts, noted = frame[wire.EVENTS_HEAD : after].reshape(-1, wire.CUT_FIELDS), frame[after:].reshape(-1, 2)
    codes = noted[:, 0]
    known = (codes < 0) | np.any([(low <= codes) & (codes < high) for low, high in CODES], axis=0)
    if not 0 <= base < CELLS or not known.all() or len(cuts) != count:
        raise ValueError("an event is none that is known")
    live = Spent(begun, base)
    live.settle(zip(codes.tolist(), noted[:, 1].tolist(), strict=True))
    if len(live.rows) != count:
        raise ValueError("there are not as many rows as it says")
    rows = []
    for (end, spent, marks), (step, steps, closer, flags, then, _) in zip(live.rows, cuts.tolist(), strict=True):
        marks = marks if len(marks) < MOST_MARKS else []
        head = (step - steps, steps, closer, flags, begun, end, max(0, then - cpu), len(spent), len(marks) // 2)
        rows.append(np.array([*head, *spent, *spent.values(), *marks], np.int64))
        begun, cpu = end, then
    return rows


class _Frames:
    """Frames of one file, gathered until they can be made columns."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.rows: list[NDArray[np.int64]] = []
        self.parts: dict[int, list[bytes]] = {Frame.SPANS: [], Frame.FETCHES: [], Frame.STACKS: []}

    def take(self, process: Process, kind: int, payload: bytes) -> None:
        if kind == Frame.ROW:
            row = np.frombuffer(payload, "<i8")
            cells, marks = (int(n) for n in row[wire.ROW_HEAD - 2 : wire.ROW_HEAD])
            if min(cells, marks) < 0 or row.size != wire.ROW_HEAD + 2 * (cells + marks):
                raise ValueError("a row is not as long as it says")
            self.rows.append(row)
        elif kind == Frame.EVENTS:
            self.rows += _settled(np.frombuffer(payload, "<i8"))
        elif kind in self.parts:
            self.parts[kind].append(payload)
        elif kind == Frame.TEXT:
            # By number: one that is written during another (by a second thread, in a collection) stands before it.
            self.texts[int.from_bytes(payload[:4], "little")] = payload[4:].decode("utf-8", "replace").replace("\0", "")
        elif kind == Frame.HELLO:
            process.hello = dict(json.loads(payload))
            for name in ("pid", "thread", "origin_ns"):
                int(process.hello[name])  # type: ignore[arg-type]
        elif kind == Frame.FACTS:
            process.facts.update(json.loads(payload))
        elif kind == Frame.TROUBLE:
            trouble = json.loads(payload)
            process.trouble.append(f"{trouble['probe']}: {trouble['error']}")
        elif kind == Frame.STEPPED_DOWN:
            process.stopped = str(json.loads(payload)["because"])
        elif kind == Frame.BYE:
            process.ended_ns = int(json.loads(payload)["at_ns"])

    def finish(self, process: Process) -> None:
        for kind, dtype, name in (
            (Frame.SPANS, SPAN, "spans"),
            (Frame.FETCHES, FETCHED, "fetches"),
            (Frame.STACKS, STACK, "stacks"),
        ):
            joined = b"".join(self.parts[kind])
            setattr(process, name, np.frombuffer(joined[: len(joined) // dtype.itemsize * dtype.itemsize], dtype))
        process.texts = [self.texts[n] for n in range(len(self.texts))]
        for cited in (process.spans["name"], process.stacks["stack"]):
            if cited.size and int(cited.max()) >= len(process.texts):
                raise ValueError(f"text {cited.max()} is cited, and there are {len(process.texts)}")
        if self.rows:
            process.rows = self._rows()

    def _rows(self) -> Rows:
        heads = np.stack([row[: wire.ROW_HEAD] for row in self.rows])
        first, steps, closer, flags, start, end, cpu, cells, _ = heads.T
        if start[0] < 0 or (end < start).any() or (start[1:] != end[:-1]).any():
            raise ValueError("the rows do not follow one another")
        if (steps < 0).any() or (steps > 1 + (end - start) // LEAST_STEP_NS).any():
            raise ValueError("a row has more steps than fit in it")
        spent = np.zeros((len(self.rows), CELLS), np.int64)
        begin, after = wire.ROW_HEAD, wire.ROW_HEAD + cells
        for n, row in enumerate(self.rows):
            numbers = row[begin : after[n]]
            if (numbers < 0).any():
                raise ValueError("a row has a cell that does not exist")
            spent[n, numbers] = row[after[n] : after[n] + cells[n]]
        if (spent < 0).any():
            raise ValueError("a row has spent less than nothing")
        of_row, phase, begun, ended = [], [], [], []
        for n, row in enumerate(self.rows):
            phases, at = row[after[n] + cells[n] :].reshape(-1, 2).T
            until = np.append(at[1:], end[n])[: at.size]
            if (until < at).any() or (at < start[n]).any() or ((phases < 0) | (phases >= PHASES)).any():
                raise ValueError("a row's phases do not follow one another")
            of_row.append(np.full(at.size, n, np.int32))
            phase.append(phases.astype(np.uint8))
            begun.append(at)
            ended.append(until)
        return Rows(
            first.astype(np.int64), steps.astype(np.int32), closer.astype(np.uint16), flags.astype(np.uint16),
            start.astype(np.int64), end.astype(np.int64), cpu.astype(np.int64), spent.reshape(-1, PHASES, ACTIVITIES),
            np.concatenate(of_row), np.concatenate(phase), np.concatenate(begun), np.concatenate(ended),
        )  # fmt: skip
