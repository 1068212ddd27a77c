"""A run as it was recorded: per rank the live accounting, events, samples and facts, and what was observed.

Shape legend: N rows, P phases, A activities, M marks, K samples, F fetches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from unstall.model.events import Events
from unstall.model.trace import Trace


class Sensor(str, Enum):
    """Something that can be observed; a cause abstains where one that it needs was not."""

    STEPS = "steps"
    SAMPLES = "stack samples"
    GIL = "who holds the interpreter lock"
    LOADERS = "data loaders"
    WORKERS = "data workers"
    RANDOMNESS = "random draws during a fetch"
    COMPILER = "compiler"
    EXTENSIONS = "extensions in C++"
    GARBAGE = "garbage collections"
    SAVES = "checkpoints"
    COLLECTIVES = "collectives"
    SETTINGS = "threads and debug settings"
    MEMORY = "memory"
    MACHINE = "load, pressure and CPU time"
    RUN_QUEUE = "run-queue time"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was and was not observed.

    Attributes:
        observed: sensors that were on.
        missing: sensor -> why it was not, in words that end a sentence "not observed: ...".
        trouble: probes that switched themselves off, with the error.
    """

    observed: frozenset[Sensor]
    missing: Mapping[Sensor, str] = field(default_factory=dict)
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line of code, as a stack frame or a call site names it."""

    file: str
    line: int
    function: str = ""

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Return the place that ``FILE:LINE:FUNCTION`` names, or None."""
        head, _, function = text.rpartition(":")
        file, _, line = head.rpartition(":")
        return cls(file, int(line), function) if file and line.isdigit() else None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.function}"


@dataclass(frozen=True, slots=True)
class Rows:
    """The live accounting: one row a step (or several, where rolled up), in time order without gaps.

    Attributes:
        first_step: int64 (N,), number of the first step covered.
        steps: int32 (N,), steps covered; 0 for the rest after the last step.
        closer: uint16 (N,), which optimizer closed it (`wire.BACKWARD_CLOSES`, `wire.ENDS_OUTSIDE`).
        flags: uint16 (N,), `wire.PROFILED`.
        start_ns, end_ns: int64 (N,).
        cpu_ns: int64 (N,), CPU time of the training thread.
        spent_NPA: int64 (N, P, A), ns; each row adds up to ``end_ns - start_ns``.
        mark_row: int32 (M,); mark_phase: uint8 (M,); mark_start_ns, mark_end_ns: int64 (M,): the phases in
            order, for rows that were not rolled up.
    """

    first_step: NDArray[np.int64]
    steps: NDArray[np.int32]
    closer: NDArray[np.uint16]
    flags: NDArray[np.uint16]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    cpu_ns: NDArray[np.int64]
    spent_NPA: NDArray[np.int64]
    mark_row: NDArray[np.int32]
    mark_phase: NDArray[np.uint8]
    mark_start_ns: NDArray[np.int64]
    mark_end_ns: NDArray[np.int64]

    def __post_init__(self) -> None:
        off = np.flatnonzero(self.spent_NPA.sum(axis=(1, 2)) != self.end_ns - self.start_ns)
        if off.size:
            raise ValueError(f"row {int(off[0])} does not add up to its length")


@dataclass(frozen=True, slots=True)
class Samples:
    """Stack samples of the training thread (or of one data worker).

    Attributes:
        at_ns: int64 (K,); weight_ns: int64 (K,), time since the sample before.
        stack: int32 (K,), index into *stacks*.
        stacks: places, outermost first.
        gil: how often each stack was seen holding the interpreter lock, at *gil_hz*; None where not observed.
        active: how often each stack was seen on a CPU, at *active_hz*; None where not observed.
        hz: sampling rate of the stacks.
    """

    at_ns: NDArray[np.int64]
    weight_ns: NDArray[np.int64]
    stack: NDArray[np.int32]
    stacks: tuple[tuple[Place, ...], ...]
    hz: float
    gil: Mapping[tuple[Place, ...], int] | None = None
    gil_hz: float = 0.0
    active: Mapping[tuple[Place, ...], int] | None = None
    active_hz: float = 0.0


@dataclass(frozen=True, slots=True)
class Fetches:
    """What the data workers of one rank did, one row a batch.

    Attributes:
        pid, worker, loader, batch: int64 (F,).
        start_ns: int64 (F,).
        wall_ns, cpu_ns, run_queue_ns, team_cpu_ns: int64 (F,): the fetch's wall time, the CPU time of its thread, the time
            that thread was runnable without a CPU, and the CPU time of all threads of the worker.
        getitem_ns, collate_ns, pickle_ns: int64 (F,), parts of the work.
        nbytes, samples, flags: int64 (F,); flags are `wire.RANDOM_SEEN` and `wire.RANDOM_DRAWN`.
    """

    pid: NDArray[np.int64]
    worker: NDArray[np.int64]
    loader: NDArray[np.int64]
    batch: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    wall_ns: NDArray[np.int64]
    cpu_ns: NDArray[np.int64]
    run_queue_ns: NDArray[np.int64]
    team_cpu_ns: NDArray[np.int64]
    getitem_ns: NDArray[np.int64]
    collate_ns: NDArray[np.int64]
    pickle_ns: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    samples: NDArray[np.int64]
    flags: NDArray[np.int64]

    @property
    def count(self) -> int:
        return int(self.wall_ns.size)


@dataclass(frozen=True, slots=True)
class Gauges:
    """Readings of one process and of the machine, about one a second.

    Attributes:
        at_ns: int64 (G,).
        rss_bytes: int64 (G,), of the training process.
        team_cpu_ns: int64 (G,), CPU time so far of all its threads.
        main_cpu_ns: int64 (G,), CPU time so far of the training thread.
        main_run_queue_ns: int64 (G,), its run-queue time so far.
        team_run_queue_ns: int64 (G,), the largest of its other threads' growth, accumulated; a starved OpenMP
            thread makes the training thread spin and look like COMPUTE.
        others_cpu_ns: int64 (G,), CPU time so far of all processes that are not this training's.
        pressure: float64 (G,), share of time in which some task of the machine waited for a CPU.
        throttled_ns: int64 (G,), time so far that the control group was throttled.
        system_ns: int64 (G,), the part of team_cpu_ns in the kernel; page_faults: int64 (G,), so far, those that read
            nothing from a disk. None where they were not observed, as in older recordings.
    """

    at_ns: NDArray[np.int64]
    rss_bytes: NDArray[np.int64]
    team_cpu_ns: NDArray[np.int64]
    main_cpu_ns: NDArray[np.int64]
    main_run_queue_ns: NDArray[np.int64]
    team_run_queue_ns: NDArray[np.int64]
    others_cpu_ns: NDArray[np.int64]
    pressure: NDArray[np.float64]
    throttled_ns: NDArray[np.int64]
    system_ns: NDArray[np.int64] | None = None
    page_faults: NDArray[np.int64] | None = None


Fact = str | int | float | bool | None | list["Fact"] | dict[str, "Fact"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Settings and versions, by dotted name; families are numbered, as ``loader:0``.

    Which names exist is listed in docs/recording.md.
    """

    known: Mapping[str, Fact] = field(default_factory=dict)

    def number(self, name: str) -> float | None:
        value = self.known.get(name)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def text(self, name: str) -> str | None:
        value = self.known.get(name)
        return value if isinstance(value, str) else None

    def flag(self, name: str) -> bool | None:
        value = self.known.get(name)
        return value if isinstance(value, bool) else None

    def family(self, stem: str) -> dict[int, Facts]:
        """Return ``{K: facts}`` of every ``stem:K`` that is known."""
        found: dict[int, Facts] = {}
        for name, value in self.known.items():
            head, _, number = name.partition(":")
            if head == stem and number.isdigit() and isinstance(value, dict):
                found[int(number)] = Facts(value)
        return found


@dataclass(frozen=True, slots=True)
class Rank:
    """One process that trains.

    Attributes:
        rank: its number in the process group; 0 where there is none.
        start_ns, end_ns: from spawn to reap.
        seen_start_ns, seen_end_ns: from the first to the last moment it reported itself; what lies outside is an edge
            that no one can see from inside.
        rows: the live accounting, or None where the run comes from events alone (a trace, a drawn timeline).
        events: spans on its lanes.
        trace: what a profiler saw of its calls and of the device, where there was one.
    """

    rank: int
    pid: int
    start_ns: int
    end_ns: int
    seen_start_ns: int
    seen_end_ns: int
    events: Events
    rows: Rows | None = None
    samples: Samples | None = None
    fetches: Fetches | None = None
    worker_samples: tuple[Samples, ...] = ()
    gauges: Gauges | None = None
    facts: Facts = field(default_factory=Facts)
    trace: Trace | None = None

    def __post_init__(self) -> None:
        if not self.start_ns <= self.seen_start_ns <= self.seen_end_ns <= self.end_ns:
            raise ValueError(f"rank {self.rank}: its times are out of order")


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that is known of one run, on one clock.

    Attributes:
        ranks: the processes that train, by rank.
        missing_ranks: ranks of the process group that left no recording.
        facts: of the machine and the command, see docs/recording.md.
        coverage: what was observed.
        project: folder that user code is looked for in (the working folder of the command).
    """

    ranks: tuple[Rank, ...]
    facts: Facts = field(default_factory=Facts)
    coverage: Coverage = field(default_factory=lambda: Coverage(frozenset()))
    missing_ranks: tuple[int, ...] = ()
    project: str = ""
