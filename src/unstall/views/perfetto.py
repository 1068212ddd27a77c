"""The report's tracks as a trace that ui.perfetto.dev opens: steps, ledger and findings, beside the events they rest on.

The format is the Chrome JSON trace: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.model.errors import UnstallError

if TYPE_CHECKING:
    from unstall.model.finding import Finding
    from unstall.model.report import Report, Track

NAME = "perfetto"
FIRST_PID = 2_000_000_000  # of our process of rank 0; Linux gives no process a number over 4,194,304
STEPS = "steps"  # the track that findings are put on the steps of; its first label is that of a steady step
FINDINGS = "findings"
MOST_SLICES = 1000  # of one finding; where there are more steps, those that follow one another are one slice

Event = dict[str, object]


def render(report: Report, *, width: int = 0, colour: bool = False, verbose: bool = False) -> str:
    """Return the report's own tracks as a whole trace."""
    return b"".join(pieces(report, (), 0)).decode()


def save(report: Report, originals: Iterable[bytes], base_ns: int, path: Path) -> None:
    """Write the trace to *path*, in gzip if its name ends in .gz: all of it or nothing; memory holds a piece at a time.

    Args:
        originals: pieces of the traces, each a JSON list of events; base_ns: where their clock begins on that of the tracks.
    Raises:
        UnstallError: When the file cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with gzip.open(part, "wb", 3) if path.suffix == ".gz" else part.open("wb") as out:
            for piece in pieces(report, originals, base_ns):
                out.write(piece)
        part.replace(path)
    except OSError as error:
        raise UnstallError(f"{path}: the trace could not be written ({error.strerror}).") from error
    finally:
        part.unlink(missing_ok=True)


def pieces(report: Report, originals: Iterable[bytes], base_ns: int) -> Iterator[bytes]:
    """Yield the trace in pieces; args as of `save`."""
    yield b'{"displayTimeUnit": "ns", "traceEvents": [\n'
    for piece in originals:
        inside = piece.strip()[1:-1].strip()
        if inside:
            yield inside + b",\n"
    yield b",\n".join(_text(event, base_ns) for event in _ours(report))
    yield b"\n]}\n"


def _ours(report: Report) -> Iterator[Event]:
    """Yield our events: a process a rank, a thread a row of slices."""
    threads: dict[tuple[int, str], int] = {}
    for track in report.tracks:
        if not any(rank == track.rank for rank, _ in threads):
            yield from _process(track.rank, len(report.rank_wall_ns))
        key = (track.rank, track.name)
        if key not in threads:
            threads[key] = 1 + sum(rank == track.rank for rank, _ in threads)
            yield from _thread(track.rank, threads[key], track.name)
        yield from _slices(track, threads[key])
    for track in report.tracks:
        if track.name == STEPS:
            tid = 1 + sum(rank == track.rank for rank, _ in threads)
            yield from _thread(track.rank, tid, FINDINGS)
            yield from _findings(report, track, tid)
    if not report.tracks:
        yield _named("process_name", 0, 0, name="unstall")


def _process(rank: int, ranks: int) -> Iterator[Event]:
    yield _named("process_name", rank, 0, name="unstall" if ranks < 2 else f"unstall, rank {rank}")
    yield _named("process_sort_index", rank, 0, sort_index=rank - 1000)  # above the others


def _thread(rank: int, tid: int, name: str) -> Iterator[Event]:
    yield _named("thread_name", rank, tid, name=name)
    yield _named("thread_sort_index", rank, tid, sort_index=tid)


def _named(what: str, rank: int, tid: int, **args: object) -> Event:
    return {"ph": "M", "name": what, "pid": FIRST_PID + rank, "tid": tid, "args": args}


def _slices(track: Track, tid: int) -> Iterator[Event]:
    columns = (track.start_ns.tolist(), track.end_ns.tolist(), track.label.tolist())
    for n, (start, end, label) in enumerate(zip(*columns)):
        name = track.labels[label]
        yield _slice(f"{name} {n}" if track.name == STEPS else name, track.rank, tid, start, end)


def _slice(name: str, rank: int, tid: int, start: int, end: int, args: Event | None = None) -> Event:
    event: Event = {"ph": "X", "cat": "unstall", "name": name, "pid": FIRST_PID + rank, "tid": tid}
    event |= {"ts": start, "dur": end - start}  # ns; written in microseconds
    return event if args is None else {**event, "args": args}


def _text(event: Event, base_ns: int) -> bytes:
    """Return the event as JSON, its times in microseconds with every digit: a float64 rounds those of today to 0.25 us."""
    start, length = event.get("ts"), event.get("dur")
    times = ""
    if isinstance(start, int) and isinstance(length, int):
        times = f', "ts": {_microseconds(start - base_ns)}, "dur": {_microseconds(length)}'
    rest = {key: value for key, value in event.items() if key not in ("ts", "dur")}
    return f"{json.dumps(rest, ensure_ascii=False)[:-1]}{times}}}".encode("utf-8", "replace")


def _microseconds(ns: int) -> str:
    return f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def _findings(report: Report, steps: Track, tid: int) -> Iterator[Event]:
    """Yield each finding as slices over the steps it is about; one that is not of every step, over the whole."""
    from unstall.model.finding import Scope

    if not steps.start_ns.size:
        return
    whole = [(int(steps.start_ns[0]), int(steps.end_ns[-1]))]
    steady = _stretches(steps)
    for finding in report.findings:  # the first found lies on the outside: all cover the same steps
        for start, end in steady if finding.scope is Scope.STEADY else whole:
            yield _slice(f"{finding.cause}: {finding.title}", steps.rank, tid, start, end, _about(finding))


def _stretches(steps: Track) -> list[tuple[int, int]]:
    """Return the steady steps, those that follow one another as one where there are too many."""
    found: list[tuple[int, int]] = []
    rows = (steps.label == 0).nonzero()[0]
    joined = rows.size > MOST_SLICES
    for n, row in enumerate(rows.tolist()):
        start, end = int(steps.start_ns[row]), int(steps.end_ns[row])
        if joined and n and rows[n - 1] == row - 1:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _about(finding: Finding) -> Event:
    from unstall.views import _words as words

    evidence = {one.what: words.finish(words.measured(one.value, one.unit)) for one in finding.evidence}
    return {"where": words.finish(words.place(finding.where)), "share": round(finding.share, 4), **evidence}
