"""What a process that trains writes to disk, and the axes of the ledger.

This module and `exclusive` are imported inside the training process besides the probes, so they
need the standard library only and any Python from 3.10 on.

A recording is a folder::

    config.json       what the launcher asks of the probes (`Config`)
    recording.json    the command, its times and how it ended (written by the launcher)
    seen/PID          one file a Python process that came up with us inside (the handshake)
    PID-NS.wire       what one process recorded: MAGIC, then frames, appended as they happen
    machine.jsonl     one line a second: load, pressure, CPU time of each process and thread
    stacks-PID-N.*    stack samples taken from outside
    window-PID-N.*    what torch.profiler saw of the device in a few steps
    captured-PID*     what a trial kept of its training: losses, digests, gradients (`probes/capture.py`)
    lost-PID-ERRNO    empty: a process could not write any more, and why

A frame is ``<BI`` (`Frame`, length of the payload) and the payload.  A process that
is killed leaves at most one frame cut short at the end of its file.

All times are integer nanoseconds of ``time.monotonic_ns``, one clock for every
process of a machine.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import struct
from enum import IntEnum

FORMAT = 2  # raised when an older reader could misread what is written
EARLIEST = 1  # the first that is still read; 2 brought the frames of events
MAGIC = b"unstall-wire/%d\n" % FORMAT
RECORDING = "UNSTALL_RECORDING"  # environment variable: the folder to record to
PLAN = "UNSTALL_PLAN"  # environment variable: the file that holds the edits of a trial


class Phase(IntEnum):
    """Where in the loop."""

    STARTUP = 0
    FETCH = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    BETWEEN = 5
    EVALUATE = 6
    CHECKPOINT = 7
    SHUTDOWN = 8


class Activity(IntEnum):
    """What the host's training thread was doing.

    The live recorder enters time that no probe can name as UNKNOWN; stack samples
    and counters name it later (`accounts/apportion.py`).
    """

    COMPUTE = 0
    LOAD = 1
    WAIT_DATA = 2
    COPY = 3
    COMPILE = 4
    GUARD = 5
    LAUNCH = 6
    SYNC = 7
    COLLECTIVE = 8
    GC = 9
    IO = 10
    PYTHON = 11
    STARVED = 12
    UNKNOWN = 13


class Device(IntEnum):
    """What the device was doing meanwhile; NONE where there is no device."""

    NONE = 0
    COMPUTE = 1
    COPY = 2
    COLLECTIVE = 3
    IDLE = 4


PHASES, ACTIVITIES = len(Phase), len(Activity)


def cell(phase: int, activity: int) -> int:
    """Return the number of a (phase, activity) pair in a row."""
    return phase * ACTIVITIES + activity


class Kind(IntEnum):
    """What an event is.  In brackets: what its `value` and `name` hold.

    STEP is a whole step; PHASE_* and the activities nest inside one another on the
    training thread's lane; the WORKER_* kinds lie on lanes of data workers.
    """

    STEP = 0
    FETCH = 1  # the loop gets its batch [batches ready before; "loader:K" or "FILE:LINE:FUNCTION"]
    FORWARD = 2  # outermost module called with gradients on
    BACKWARD = 3
    OPTIMIZER = 4
    EVALUATE = 5  # outermost module called with gradients off
    CHECKPOINT = 6  # torch.save [bytes written or 0; call site]
    LOAD = 7  # a batch made in the training process itself [samples]
    WAIT_DATA = 8  # waiting for a worker's batch [batches ready before]
    COPY = 9  # between host and device [bytes; call site]
    COMPILE = 10  # a compile window [recompile number; compile id]
    SYNC = 11  # the host waits for the device [0; call site]
    COLLECTIVE = 12  # [bytes; "OPERATION|FILE:LINE:FUNCTION|LIBRARY FRAME"]
    GC = 13  # [generation; "FILE:LINE:FUNCTION" that set it off]
    IO = 14  # [bytes; call site]
    PYTHON = 15  # drawn timelines only: interpreted code
    COMPUTE = 16  # drawn timelines only: tensor work on the host
    ITER = 17  # a loader's iterator is made, workers started [loader; "loader:K"]
    WORKER_START = 18  # worker lane: from its first line to ready for work [worker id]
    WORKER_FETCH = 19  # worker lane: one batch [batch index]
    BETWEEN = 20  # drawn timelines only: the rest of a step
    STARTUP = 21  # drawn timelines only
    KERNEL = 22  # device lane
    DEVICE_COPY = 23  # device lane
    DEVICE_COLLECTIVE = 24  # device lane
    STOP = 25  # a loader's workers are stopped [loader; "loader:K"]
    LAUNCH = 26  # the host launches device work


class Frame(IntEnum):
    """The kinds of frame in a .wire file."""

    HELLO = 1  # JSON: who this process is
    FACTS = 2  # JSON object, merged into the process's facts
    TEXT = 3  # <I id>, UTF-8: a string that later frames cite by id
    ROW = 4  # int64, repeated: ROW_HEAD fields, the numbers of its cells, their ns, then its marks
    SPANS = 5  # SPAN, repeated
    FETCHES = 6  # FETCHED, repeated
    STACKS = 7  # STACK, repeated (in-process sampler, where no outside one may attach)
    TROUBLE = 8  # JSON: {"probe", "error"}: a probe switched itself off
    STEPPED_DOWN = 9  # JSON: why the run was stopped by us
    BYE = 10  # JSON: {"at_ns"}: the process ended in good order
    EVENTS = 11  # int64: EVENTS_HEAD fields, CUT_FIELDS for each row, then the events (`model/exclusive.py`)


HEAD = struct.Struct("<BI")
# first step, steps covered, closer (optimizer number, or BACKWARD_CLOSES), flags, start, end, thread CPU, cells, marks.
# The cells' ns add up to end - start, exactly. A mark is a phase and when it began, in order; absent in rolled-up rows.
ROW_HEAD = 9
# start, cell at the base there, thread CPU there, rows. Nothing but the base is open at the start and at the end.
EVENTS_HEAD = 4
CUT_FIELDS = 6  # steps closed after it, steps covered, closer, flags, thread CPU after it, 1
SPAN = struct.Struct("<BIqqIq")  # kind, step, start, end, text id of the name, value
STACK = struct.Struct("<qqBI")  # time, weight ns, cell, text id of the stack
# worker id, loader, batch, start, wall, CPU, run-queue, team CPU, getitem, collate, pickle, bytes, samples, flags
FETCHED = struct.Struct("<HHqqqqqqqqqqII")

BACKWARD_CLOSES = 0xFFFF  # a row closed by the end of backward: no optimizer was seen
ENDS_OUTSIDE = 0xFFFE  # the row after the last step
PROFILED = 1  # row flag: a window of another sensor was open; no statistics from it
CLOCK_MARK = "unstall.clock#"  # in a window's trace a range of this name and a number begins at that time, ns
RANDOM_SEEN, RANDOM_DRAWN = 1, 2  # fetch flags: generator states were compared; they differed


class Writer:
    """Appends frames to one file; whole frames at a time, so a kill cuts at most the last.

    Raises:
        OSError: When the folder cannot be written or the disk is full.
    """

    __slots__ = ("_fd", "_numbers", "_texts", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._texts: dict[str, int] = {}
        self._numbers = itertools.count()
        self.raw(MAGIC)

    def frame(self, kind: int, payload: bytes) -> None:
        self.raw(HEAD.pack(kind, len(payload)) + payload)

    def raw(self, frames: bytes) -> None:
        """Write frames that were packed before."""
        # a write cut short: the disk became full in the middle, and what follows would be misread
        if os.write(self._fd, frames) != len(frames):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def json(self, kind: int, record: dict[str, object]) -> None:
        self.frame(kind, json.dumps(record, default=str).encode())

    def text(self, text: str) -> int:
        """Return the id of *text*, writing it the first time it is seen."""
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = next(self._numbers)  # one number, though several threads call
            self.frame(Frame.TEXT, struct.pack("<I", known) + text.encode("utf-8", "replace"))
        return known

    def close(self) -> None:
        os.close(self._fd)
