"""Drawn timelines: one character a millisecond, one run of a letter an event.

    step    |ssssssssss|ssssssssss      a bar cuts an event and takes no time
    main    |DDDFFFBBBO|DDDFFFBBBO      the training thread; rows main, host and host2 nest, the later inside
    host    |www.L.....|www.L.....
    worker  |WWWWWWWWWW|WWWWWWWWWW      a lane of its own
    stream  |....kkkkkk|....kkkkkk      what one stream of the device does; a row for each, of any name

Letters: s step; phases D fetch, F forward, B backward, O optimizer, E evaluate, K checkpoint, b between, u start-up;
activities w wait for data, l load, m copy, r compile, y sync, C collective, g garbage collection, i input/output,
p python, x compute, L launch; W a worker's fetch, I an iterator made; k kernel, h device copy, n device collective.

Where some k, h or n is drawn the run has a trace, and the ledger tells what the device did. The n-th L in
time launches the n-th k, h or n by start; work beyond the last L has no launch that is known. A y is a call in which the
host waits for the device.
"""

from __future__ import annotations

import itertools
import textwrap

import numpy as np

from unstall.model.case import Given
from unstall.model.events import Events, Kind
from unstall.model.run import Coverage, Facts, Rank, Run, Sensor
from unstall.model.trace import NONE, Call, Calls, Trace, Work
from unstall.model.wire import Device

MS = 1_000_000
LETTERS = {
    "s": Kind.STEP, "D": Kind.FETCH, "F": Kind.FORWARD, "B": Kind.BACKWARD, "O": Kind.OPTIMIZER, "E": Kind.EVALUATE,
    "K": Kind.CHECKPOINT, "b": Kind.BETWEEN, "u": Kind.STARTUP, "w": Kind.WAIT_DATA, "l": Kind.LOAD, "m": Kind.COPY,
    "r": Kind.COMPILE, "y": Kind.SYNC, "C": Kind.COLLECTIVE, "g": Kind.GC, "i": Kind.IO, "p": Kind.PYTHON,
    "x": Kind.COMPUTE, "W": Kind.WORKER_FETCH, "I": Kind.ITER, "k": Kind.KERNEL, "h": Kind.DEVICE_COPY,
    "n": Kind.DEVICE_COLLECTIVE, "L": Kind.LAUNCH,
}  # fmt: skip
# What stands in a trace for an event that is drawn.
WORK = {
    Kind.KERNEL: (Device.COMPUTE, "kernel"),
    Kind.DEVICE_COPY: (Device.COPY, "Memcpy HtoD (Pinned -> Device)"),
    Kind.DEVICE_COLLECTIVE: (Device.COLLECTIVE, "ncclDevKernel_AllReduce"),
}
CALLS = {Kind.LAUNCH: "cudaLaunchKernel", Kind.SYNC: "cudaStreamSynchronize"}
THREAD = ("step", "main", "host", "host2")  # rows of the training thread, which is one lane


def draw(picture: str, given: Given | None = None) -> Run:
    """Return the run that *picture* draws, with one rank, all sensors on but those *given* as missing.

    Raises:
        ValueError: When a letter is unknown.
    """
    given = given or Given()
    rows: list[tuple[int, int, int, int]] = []
    lanes, end = ["main"], 0
    for line in textwrap.dedent(picture).strip().splitlines():
        label, drawing = line.split(None, 1)
        if label not in THREAD:
            lanes.append(label)
        lane = 0 if label in THREAD else len(lanes) - 1
        at = 0
        for letter, run in itertools.groupby(drawing):
            width = 0 if letter == "|" else len(list(run))
            if letter not in ".|":
                if letter not in LETTERS:
                    raise ValueError(f"unknown letter {letter!r} in {line!r}")
                rows.append((at * MS, (at + width) * MS, LETTERS[letter], lane))
            at += width
        end = max(end, at * MS)
    columns = np.array(sorted(rows, key=lambda row: (row[0], -row[1])), np.int64).reshape(-1, 4)
    start, stop, kind, lane_of = columns.T
    zeros = np.zeros(start.size, np.int32)
    events = Events(
        start,
        stop,
        kind.astype(np.uint8),
        lane_of.astype(np.int32),
        zeros,
        zeros - 1,
        zeros.astype(np.int64),
        tuple(lanes),
    )
    trace = _trace(events)
    rank = Rank(0, 1, 0, end, 0, end, events, facts=Facts(given.facts), trace=trace)
    missing = dict.fromkeys(given.missing, "drawn as missing")
    return Run((rank,), Facts(given.facts), Coverage(frozenset(Sensor) - given.missing, missing))


def _trace(events: Events) -> Trace | None:
    """Return the device work among *events* and the calls that launch it; None where no work is drawn."""
    works, calls = events.of(*WORK), events.of(*CALLS)
    if not works.size:
        return None
    names = ("", *CALLS.values(), *(name for _, name in WORK.values()))
    kinds = [Kind(kind) for kind in events.kind[works].tolist()]
    called = [names.index(CALLS[Kind(kind)]) for kind in events.kind[calls].tolist()]
    launches = np.flatnonzero(events.kind[calls] == Kind.LAUNCH)[: works.size]
    launch = np.full(works.size, NONE, np.int32)
    launch[: launches.size] = launches
    correlation = np.full(calls.size, NONE, np.int64)
    correlation[launches] = np.arange(launches.size)
    none, small = np.zeros(calls.size, np.int32), np.full(works.size, NONE, np.int64)
    return Trace(
        Calls(
            events.start_ns[calls], events.end_ns[calls], none, np.full(calls.size, Call.RUNTIME, np.uint8),
            np.array(called, np.int32), correlation, none,
        ),
        Work(
            events.start_ns[works], events.end_ns[works], np.zeros(works.size, np.int64),
            events.lane[works].astype(np.int64), np.array([WORK[kind][0] for kind in kinds], np.uint8),
            np.array([names.index(WORK[kind][1]) for kind in kinds], np.int32),
            np.where(launch == NONE, NONE, np.arange(works.size)), launch, small,
        ),
        names,
    )  # fmt: skip
