"""Accounts of drawn timelines, and traces whose calls are written by hand."""

from dataclasses import replace

import numpy as np

from unstall.model.events import Events, Kind
from unstall.model.run import Rank, Run
from unstall.model.trace import NONE, Call, Calls, Trace, Work
from unstall.model.wire import Device
from unstall.pipeline import account
from unstall.testing.timeline import MS, draw


def use_of(picture, launch=None):
    """Return the ledger and the use of the device of a drawn run; *launch* replaces which call launched each piece."""
    run = draw(picture)
    if launch is not None:
        rank = run.ranks[0]
        work = replace(rank.trace.work, launch=np.array(launch, np.int32))
        run = replace(run, ranks=(replace(rank, trace=replace(rank.trace, work=work)),))
    ledger, tables, _ = account(run)
    return ledger, tables.device


def ms(rows, *fields):
    """Return the time of *rows* by the names of *fields*, in ms."""
    found = {}
    for row in rows:
        key = tuple(value.name if value is not None else None for value in (getattr(row, field) for field in fields))
        found[key] = found.get(key, 0) + row.ns / MS
    return {key[0] if len(fields) == 1 else key: spent for key, spent in found.items()}


def trace_of(calls, work=(), steps=(), end=1000, detail=None):
    """Return a run of one rank.

    Args:
        calls: (kind of call, name, start, end), with a thread (0) and what it launches (None) behind, at will; ns.
        work: (name, start, end, stream), launched by the call that names it.
        steps: (start, end).
    """
    rows = sorted((call + (0, None)[len(call) - 4 :] for call in calls), key=lambda call: (call[2], -call[3]))
    names = ["", *dict.fromkeys([call[1] for call in rows] + [piece[0] for piece in work]), *(detail or ())]
    by = {call[5]: n for n, call in enumerate(rows) if call[5]}
    column = lambda values, kind: np.array(list(values), kind)  # noqa: E731
    kinds = {"Memcpy": Device.COPY, "nccl": Device.COLLECTIVE}
    pieces = sorted(work, key=lambda piece: piece[1])
    trace = Trace(
        Calls(
            column((call[2] for call in rows), np.int64), column((call[3] for call in rows), np.int64),
            column((call[4] for call in rows), np.int32), column((call[0] for call in rows), np.uint8),
            column((names.index(call[1]) for call in rows), np.int32), np.full(len(rows), NONE, np.int64),
            np.zeros(len(rows), np.int32),
        ),
        Work(
            column((piece[1] for piece in pieces), np.int64), column((piece[2] for piece in pieces), np.int64),
            np.zeros(len(pieces), np.int64), column((piece[3] for piece in pieces), np.int64),
            column((kinds.get(piece[0].split()[0], Device.COMPUTE) for piece in pieces), np.uint8),
            column((names.index(piece[0]) for piece in pieces), np.int32), np.full(len(pieces), NONE, np.int64),
            column((by.get(piece[0], NONE) for piece in pieces), np.int32), np.full(len(pieces), NONE, np.int64),
        ),
        tuple(names), ("1/1", "1/2"),
    )  # fmt: skip
    steps = steps or ((0, end),)
    none = np.zeros(len(steps), np.int32)
    events = Events(
        column((step[0] for step in steps), np.int64), column((step[1] for step in steps), np.int64),
        np.full(len(steps), Kind.STEP, np.uint8), none, none, none, none.astype(np.int64),
    )  # fmt: skip
    return Run((Rank(0, 1, 0, end, 0, end, events, trace=trace),))


OPERATOR, RUNTIME, RANGE, FRAME = Call.OPERATOR, Call.RUNTIME, Call.ANNOTATION, Call.FRAME
