"""Drawn timelines: one character a millisecond, one run of a letter an event.

    step    |ssssssssss|ssssssssss      a bar cuts an event and takes no time
    main    |DDDFFFBBBO|DDDFFFBBBO      the training thread; rows main, host and host2 nest, the later inside
    host    |www.......|www.......
    worker  |WWWWWWWWWW|WWWWWWWWWW      a lane of its own

Letters: s step; phases D fetch, F forward, B backward, O optimizer, E evaluate, K checkpoint, b between, u start-up;
activities w wait for data, l load, m copy, r compile, y sync, C collective, g garbage collection, i input/output,
p python, x compute; W a worker's fetch, I an iterator made; k kernel, h device copy, n device collective.
"""

from __future__ import annotations

import itertools
import textwrap

import numpy as np

from unstall.model.case import Given
from unstall.model.events import Events, Kind
from unstall.model.run import Coverage, Facts, Rank, Run, Sensor

MS = 1_000_000
LETTERS = {
    "s": Kind.STEP, "D": Kind.FETCH, "F": Kind.FORWARD, "B": Kind.BACKWARD, "O": Kind.OPTIMIZER, "E": Kind.EVALUATE,
    "K": Kind.CHECKPOINT, "b": Kind.BETWEEN, "u": Kind.STARTUP, "w": Kind.WAIT_DATA, "l": Kind.LOAD, "m": Kind.COPY,
    "r": Kind.COMPILE, "y": Kind.SYNC, "C": Kind.COLLECTIVE, "g": Kind.GC, "i": Kind.IO, "p": Kind.PYTHON,
    "x": Kind.COMPUTE, "W": Kind.WORKER_FETCH, "I": Kind.ITER, "k": Kind.KERNEL, "h": Kind.DEVICE_COPY,
    "n": Kind.DEVICE_COLLECTIVE,
}  # fmt: skip
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
    rank = Rank(0, 1, 0, end, 0, end, events, facts=Facts(given.facts))
    missing = dict.fromkeys(given.missing, "drawn as missing")
    return Run((rank,), Facts(given.facts), Coverage(frozenset(Sensor) - given.missing, missing))
