"""Read a trace that torch.profiler (Kineto) wrote, of any vintage from 2020 on, into one `Rank`."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np

from unstall.model.errors import UnstallError
from unstall.model.run import Fact, Facts, Rank
from unstall.model.trace import Call, Trace, Work
from unstall.readers import _kept, _steps
from unstall.readers._about import about, device_facts
from unstall.readers._columns import Columns
from unstall.readers._events import Events, Unread
from unstall.readers._kept import Decoded
from unstall.readers._source import Source


def read_trace(path: Path) -> Rank:
    """Return what the trace in *path* (JSON, or JSON in gzip) tells of one rank.

    The rank has no live accounting; its `events` are the steps, its `trace` holds calls and device work, and its times
    are the first and the last moment in the trace. A file that is cut short is read as far as it goes, and
    `Trace.cut_at` says how far; a damaged event is passed over, and the facts say how many were. docs/traces.md lists
    the facts.

    Raises:
        UnstallError: When the file cannot be read, is no trace, or holds nothing that can be accounted.
    Cost: linear; memory for two pieces of text (1 MB each) and about 90 bytes an event.
    """
    kept = _kept.place(path)
    decoded = None if kept is None else _kept.load(kept)
    if decoded is None:
        decoded = _decode(path)
        if kept is not None:
            _kept.store(kept, decoded)
    return _rank(path, decoded)


def _decode(path: Path) -> Decoded:
    columns = Columns()
    collecting = gc.isenabled()
    gc.disable()  # a piece is many thousand objects that hold no cycles; looking for some took a third of the time
    try:
        with Source(path) as source:
            events = Events(source)
            for spans in events:
                columns.add(spans)
            unread, size = events.about, source.read_bytes
    finally:
        if collecting:
            gc.enable()
    known = about(unread.head, unread.tail)
    calls, work, names = columns.table(known.base_ns)
    if not calls.start_ns.size and not work.start_ns.size:
        raise _nothing(path, columns, unread)
    facts: dict[str, Fact] = {**known.facts, **_facts(columns, unread, size), **device_facts(known, _busiest(work))}
    facts.setdefault("profiler.with_stack", bool((calls.call == Call.FRAME).any()))
    threads = tuple(f"{pid}/{tid}" for pid, tid in columns.threads) or ("main",)
    return Decoded(calls, work, names, threads, unread.cut_at, known.rank, facts)


def _rank(path: Path, decoded: Decoded) -> Rank:
    """Return the rank with its steps."""
    calls, work, names, threads = decoded.calls, decoded.work, decoded.names, decoded.threads
    start = min(int(column[0]) for column in (calls.start_ns, work.start_ns) if column.size)
    end = max(int(column.max()) for column in (calls.end_ns, work.end_ns) if column.size)
    main = _steps.main_thread(calls, names, len(threads))
    steps = _steps.find(calls, names, main, start, end)
    facts: dict[str, Fact] = {**decoded.facts, "trace.path": path.name, "steps.seen": steps.seen}
    if steps.inferred:
        facts["steps.inferred"] = steps.inferred
    trace = Trace(calls, work, names, threads, main, str(path), decoded.cut_at)
    pid = threads[main].partition("/")[0]
    return Rank(
        decoded.rank or 0, int(pid) if pid.isdecimal() and len(pid) < 18 else 0, start, end, start, end,
        steps.events(names), facts=Facts(facts), trace=trace,
    )  # fmt: skip


def _facts(columns: Columns, unread: Unread, size: int) -> dict[str, Fact]:
    """Return how the reading went."""
    left_out: dict[str, Fact] = {
        category: count for category, count in sorted(columns.counted.items()) if columns.left_out(category)
    }
    facts: dict[str, Fact] = {"trace.text_bytes": size, "trace.left_out": left_out}
    if columns.dropped:
        facts["trace.dropped"] = columns.dropped
    if unread.odd:
        facts["trace.unreadable"] = unread.odd
        facts["trace.unreadable_at"] = unread.odd_at
    if unread.trouble:
        facts["trace.trouble"] = unread.trouble
    return facts


def _busiest(work: Work) -> int | None:
    """Return the number of the device that did most pieces of work."""
    if not work.device.size:
        return None
    devices, counts = np.unique(work.device, return_counts=True)
    return int(devices[counts.argmax()])


def _nothing(path: Path, columns: Columns, unread: Unread) -> UnstallError:
    if unread.cut_at is not None or unread.odd_at is not None:
        at = unread.cut_at if unread.odd_at is None else unread.odd_at
        why = unread.trouble if unread.odd_at is None else "it holds events that cannot be read"
        return UnstallError(
            f"{path}: {why}, at byte {at} of its text, and there is no call and no device work before or after it.\n"
            "Copy or record it again."
        )
    seen = ", ".join(sorted(filter(None, columns.counted))[:5])
    return UnstallError(
        f"{path} holds no calls and no device work{f' (only {seen})' if seen else ''}.\n"
        "Record again with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], and a step inside the profiler."
    )
