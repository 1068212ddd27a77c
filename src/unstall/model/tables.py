"""Evidence that several causes share, each computed once, lazily, by `accounts`.

Causes get a `Tables` and read what they need; a table that could not be made is empty or None.
All times are over the steady steps unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from unstall.model.finding import Line
from unstall.model.fusion import Fusion
from unstall.model.ledger import Activity, Device, Phase
from unstall.model.remedy import Safety


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop in the user's source: ``for``, ``while`` or one clause of a comprehension, by its first and last line.

    Attributes:
        turns: what it calls is named as what ends a step (``loss.backward()``, ``opt.step()``, ``train_step(x)``).
    """

    file: str
    first: int
    last: int
    turns: bool = False


@dataclass(frozen=True, slots=True)
class HotLine:
    """A user's line and the ledger time that stack samples put on it.

    Attributes:
        line: innermost frame in the user's own code.
        spent_ns: over the steady steps, all ranks; by activity in *parts*, which sum to it.
        samples: how many stack samples that is; error_ns: standard error of spent_ns.
        callee: what the line calls where most of the time goes, as ``json.dump`` (module.function of the
            outermost library frame below the line), or "" where the line itself is the leaf.
        callees: the same for every library function that was seen, with its share of the line's time.
        library: file of the innermost library frame, or "".
        chain: the user's lines that led to it, outermost first, the line itself last.
        loops: the loops around the lines of *chain* in their functions, outermost first: the loop of the steps is among
            them.
        paths: the library functions below the line, outermost first, with the share of the line's time in which the
            samples showed just these; () is the line itself as the leaf. The shares add up to 1; empty where unknown.
    """

    line: Line
    phase: Phase
    spent_ns: int
    parts: tuple[tuple[Activity, int], ...]
    samples: int
    error_ns: int
    callee: str = ""
    callees: tuple[tuple[str, float], ...] = ()
    library: str = ""
    chain: tuple[Line, ...] = ()
    loops: tuple[Loop, ...] = ()
    paths: tuple[tuple[tuple[str, ...], float], ...] = ()

    def part_ns(self, *activities: Activity) -> int:
        return sum(ns for activity, ns in self.parts if activity in activities)


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """A user's line inside a data worker, with its share of the worker's busy samples."""

    line: Line
    share: float
    samples: int
    callee: str = ""


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A line of the user's code that makes batches, with its share of the samples in which one was being made.

    Attributes:
        line: the user's line; None for batches in whose making no user's line takes part.
        part: "getitem", "collate", or "source" where there is no DataLoader.
        depth: 0 for the function that the loader calls, 1 for what that calls, and so on.
        share: with what the line calls; own_share: with the line as the user's innermost.
        samples: how many samples *share* is.
        callee: what the line calls where most of the time goes, "" where it is the leaf.
        python: share of its time on a CPU in which it held the interpreter lock; waiting: share of its time off the
            CPU; None where not observed.
        opens: the call by which the line opens, closes or reads whole the same file for each sample; "" for others.
    """

    line: Line | None
    part: str
    depth: int
    share: float
    own_share: float
    samples: int
    callee: str = ""
    python: float | None = None
    waiting: float | None = None
    opens: str = ""


@dataclass(frozen=True, slots=True)
class Padding:
    """How the rows of a loader's largest padded tensor are filled up, means over the batches that were looked at.

    Attributes:
        width: positions of a row; length: those with data, mean; longest: of the longest row of a batch.
        part: share of the batch's bytes that is padded alike.
        same_width: whether all batches were as wide; looks: how many were looked at.
        skipped: the user's code packs the rows (``pack_padded_sequence``, nested tensors), so that padding is not computed.
    """

    width: float
    length: float
    longest: float
    part: float
    same_width: bool
    looks: int
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Repeats:
    """Whether samples came out the same each time they were made, of the few that are watched.

    Attributes:
        samples: watched samples that were made more than once; same: those of them whose bytes were the same each time.
        once: those that were made once only.
        nbytes: bytes of a sample, mean.
    """

    samples: int
    same: int
    once: int
    nbytes: float


@dataclass(frozen=True, slots=True)
class Reads:
    """What was read from files to make a sample, means over the batches that were looked at, whoever made them.

    Attributes:
        batches: how many were looked at.
        nbytes: bytes of a sample as it came out.
        read_bytes: bytes read from files, page-cached or not; calls: reads that took.
        stored_bytes: bytes that came from storage; faults: page faults that waited for it (files mapped to memory).
        stalled_ns: time in which some task of the machine was held up by storage; None where the kernel does not tell.
        open_bytes: size of the files that the process keeps open, of a sample or not; None where it was not looked at.
    """

    batches: int
    nbytes: float
    read_bytes: float
    calls: float
    stored_bytes: float
    faults: float
    stalled_ns: float | None = None
    open_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Draws:
    """Time of the training thread in the loader's samplers.

    Attributes:
        sampler: its class; at: where it begins to draw, for one of the user's.
        first_ns: of the first draw of each pass over the data, over the whole run (of the first 32 passes).
        batch_ns: of one of the others, mean; batches: how many those were.
        passes, taken: passes that began and batches that were taken in the steady steps.
    """

    sampler: str
    at: Line | None
    first_ns: tuple[int, ...]
    batch_ns: int
    batches: int
    passes: int
    taken: int

    @property
    def pass_ns(self) -> int:
        """Mean time of the first draw of a pass."""
        return sum(self.first_ns) // max(1, len(self.first_ns))


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory that a data worker holds for itself, mean over the workers that were looked at more than once.

    Attributes:
        first_bytes, last_bytes: at its first and at its last look; batches: batches made between them.
        copied_bytes: what of the growth it had shared with the training before: written to, a page is copied.
        swapped_bytes: swapped out at its last look.
        stalled_share: of the time between the looks in which some task of the machine was held up for memory.
        workers: how many that is.
    """

    first_bytes: int
    last_bytes: int
    copied_bytes: int
    swapped_bytes: int
    batches: int
    stalled_share: float
    workers: int

    @property
    def grown_bytes(self) -> int:
        return max(0, self.last_bytes - self.first_bytes)


@dataclass(frozen=True, slots=True)
class LoaderUse:
    """One loader (or a function that makes the batch) as the loop used it.

    Attributes:
        site: where it was made; made_by: "DataLoader", or the function's name where there is no DataLoader.
        trains: its batches reached a forward with gradients.
        dataset: the dataset's class; dataset_at: where that is made, for a class of the user's; length: samples in it.
        samples: samples a batch, median; collate: name of the collate function.
        made: how many such loaders were made at the site; iterable: whether its dataset is an IterableDataset.
        workers, batch_size, prefetch, persistent, context: as configured; None where not known.
        batches: batches taken in the steady steps; per_step: batches a step.
        wait_ns: time the loop waited for, or made, its batches in the steady steps (ledger time of FETCH).
        iterators: how often an iterator was made over the whole run; iterator_ns: time each took to be made,
            first_batch_ns: how long the loop waited for the first batch of each.
        stop_ns: time each stop of its workers took, over the whole run.
        restarts: iterators made in the steady steps; making_ns, first_ns, stopping_ns: steady time in which they were made,
            their first batches waited for (part of *wait_ns*), and their workers stopped.
        threads_set_at: line that set *worker_threads*, where a user's did.
        batch_wall_ns, batch_cpu_ns, batch_blocked_ns, batch_run_queue_ns: what one batch costs whoever makes it, medians.
        batch_team_cpu_ns: CPU time of all threads of the worker for one batch, median.
        getitem_ns, collate_ns, pickle_ns: parts of it, medians; None where not observed.
        nbytes: size of a batch, median.
        worker_threads: threads that a worker's tensor operations may use; None where not observed.
        batch_mean_ns, batch_slow_ns: mean of the batches' wall time, and mean of those above three times the median (0 where
            there are none); slow_share: how many those are.
        ready_ns: what the loop takes to get a batch that is ready, median; ready_batches: how many were ready, of
            *batches*; both where there are workers.
        tensors, objects: tensors and other objects in a batch, means; None where not looked at. padding: None for no padding.
        draws_random: whether making a batch changed the state of a global random generator; None where not observed.
        repeats, reads, draws, growth: None where not observed.
        early_queued_ns: time that each worker's first batch was runnable without a core, median.
    """

    number: int
    site: Line
    made_by: str
    trains: bool
    batches: int
    per_step: float
    wait_ns: int
    workers: int | None = None
    batch_size: int | None = None
    prefetch: int | None = None
    persistent: bool | None = None
    context: str | None = None
    iterators: int = 0
    iterator_ns: tuple[int, ...] = ()
    first_batch_ns: tuple[int, ...] = ()
    batch_wall_ns: int = 0
    batch_cpu_ns: int = 0
    batch_blocked_ns: int = 0
    batch_run_queue_ns: int = 0
    batch_team_cpu_ns: int = 0
    getitem_ns: int | None = None
    collate_ns: int | None = None
    pickle_ns: int | None = None
    nbytes: int = 0
    worker_threads: int | None = None
    draws_random: bool | None = None
    stop_ns: tuple[int, ...] = ()
    restarts: int = 0
    making_ns: int = 0
    first_ns: int = 0
    stopping_ns: int = 0
    threads_set_at: Line | None = None
    dataset: str = ""
    dataset_at: Line | None = None
    length: int | None = None
    samples: int | None = None
    collate: str = ""
    made: int = 1
    iterable: bool = False
    batch_mean_ns: int = 0
    batch_slow_ns: int = 0
    slow_share: float = 0.0
    ready_ns: int = 0
    ready_batches: int = 0
    tensors: float | None = None
    objects: float | None = None
    padding: Padding | None = None
    repeats: Repeats | None = None
    reads: Reads | None = None
    draws: Draws | None = None
    growth: Growth | None = None
    early_queued_ns: int = 0


@dataclass(frozen=True, slots=True)
class Cores:
    """CPUs this training may use, and uses.

    Attributes:
        usable: CPUs of the affinity mask, bounded by the control group's quota.
        ranks_here: ranks of this training on this machine.
        main_busy: mean CPUs that the training process kept busy in steady steps; None where not observed.
        busy_outside_fetch: the same while the loop was not waiting for data.
        others_busy: mean CPUs that other programs of the machine kept busy; None where not observed.
        starved_share: share of steady time in which the training thread (or its team) was runnable without a CPU.
    """

    usable: float
    ranks_here: int = 1
    main_busy: float | None = None
    busy_outside_fetch: float | None = None
    others_busy: float | None = None
    starved_share: float | None = None


@dataclass(frozen=True, slots=True)
class Trend:
    """How step time and memory change over the run, warm-up left out.

    Attributes:
        first_ns, last_ns: median step time of the first and last fifth of the steps.
        growth_ns_per_step: Theil-Sen slope of step time, and the bounds of its 95 % interval.
        by_phase: slope by phase, ns a step.
        rss_bytes_per_step: slope of the process's memory; None where not observed.
        steps: steps it rests on.
    """

    first_ns: int
    last_ns: int
    growth_ns_per_step: float
    growth_low: float
    growth_high: float
    by_phase: tuple[tuple[Phase, float], ...]
    rss_bytes_per_step: float | None
    steps: int


@dataclass(frozen=True, slots=True)
class Compile:
    """One compile window of the whole run.

    Attributes:
        number: 0 for a frame's first compilation, n for its n-th recompilation.
        frame: the function that was compiled; site: the user's line that asked for compilation (torch.compile, Module.compile).
        reason: why it was compiled anew, in the compiler's words; "" where it was not.
        guard: the line that the failed guard names, if any.
        step: step it happened in, or -1; steady: whether that step is one of the steady ones.
        phase: phase it happened in.
    """

    start_ns: int
    ns: int
    number: int
    compile_id: str
    frame: Line | None
    site: Line | None
    reason: str = ""
    guard: Line | None = None
    step: int = -1
    steady: bool = False
    phase: Phase = Phase.FORWARD


@dataclass(frozen=True, slots=True)
class Collections:
    """Garbage collections set off at one place, over the steady steps.

    Attributes:
        line: the user's line; explicit: it calls ``gc.collect`` (itself or through a library).
        called: the frame that called, where it is not the user's.
    """

    line: Line
    explicit: bool
    count: int
    spent_ns: int
    generation: int
    phase: Phase
    called: str = ""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """Forward work that activation checkpointing does again in the backward pass, over the steady steps.

    Attributes:
        line: the user's line that calls the checkpoint.
        spent_ns: of BACKWARD, apportioned by samples; error_ns: its standard error.
        samples: how many stack samples that is.
    """

    line: Line
    spent_ns: int
    error_ns: int
    samples: int


@dataclass(frozen=True, slots=True)
class Saves:
    """Checkpoints written at one place, over the whole run."""

    line: Line
    count: int
    spent_ns: int
    steady_count: int
    steady_ns: int
    nbytes: int
    steps_between: float


@dataclass(frozen=True, slots=True)
class Collectives:
    """Collectives of one operation called at one line in one place of the step, over the steady steps, all ranks.

    Attributes:
        line: the user's line; its *framework* is the library's function that it calls, None where it calls the collective.
        operation: as ``all_gather_object``.
        phase: phase it happens in; after: the pass (FORWARD, BACKWARD, OPTIMIZER) that was the last before it.
        spent_ns: ledger time; together_ns: what of it every rank spends: the rest waits for ranks that come later.
        per_step: calls a step and rank; nbytes: tensor bytes a call, median.
    """

    line: Line
    operation: str
    phase: Phase
    after: Phase | None
    spent_ns: int
    together_ns: int
    per_step: float
    nbytes: int = 0


class Idle(str, Enum):
    """Why the device had nothing to do."""

    HOST = "the host had not launched more"
    DATA = "the host waited for data"
    SYNC = "the host waited for the device, and launched nothing"
    RANK = "another rank was late"
    LATENCY = "launched, and not begun yet"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Idling:
    """Time in which the device idled, with what the host did meanwhile; over the steady steps, all ranks.

    Attributes:
        gaps: how many stretches of idle time that is.
        line: the user's line that the host was at, None where no stack was recorded; call: the operator or runtime call
            there, or "".
    """

    why: Idle
    phase: Phase
    activity: Activity
    ns: int
    gaps: int
    line: Line | None = None
    call: str = ""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Device work of one name, launched by one operator at one line; over the steady steps, all ranks.

    Attributes:
        ns: summed length; critical_ns: what of it lies on the critical path.
        operator: outermost operator that launched it, "" where none is known; detail: types and sizes of that operator's
            inputs as `trace.Calls.detail`, "" where not recorded; line: the user's line, None where no stack was.
    """

    name: str
    kind: Device
    count: int
    ns: int
    critical_ns: int
    operator: str = ""
    detail: str = ""
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of one kind made at one line, as ``Memcpy HtoD (Pageable -> Device)``; over the steady steps, all ranks.

    Attributes:
        ns: on the device; exposed_ns: while the device did nothing else; host_ns: the host was held in the call.
        phase: phase of the host's call that made it.
    """

    name: str
    count: int
    ns: int
    exposed_ns: int
    host_ns: int
    nbytes: int
    phase: Phase
    operator: str = ""
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class Syncs:
    """Waits of the host for the device of one kind at one line; over the steady steps, all ranks.

    Attributes:
        call: runtime call, as ``cudaStreamSynchronize``; operator: what asked for it, as ``aten::item``, or "".
        ns: the host waited; idle_ns: the device idled afterwards until the host had launched again, which it could have
            done before.
    """

    call: str
    operator: str
    phase: Phase
    count: int
    per_step: float
    ns: int
    idle_ns: int
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class DeviceCollectives:
    """Collectives of one name on the device; over the steady steps, all ranks.

    Attributes:
        exposed_ns: while the device computed nothing; waited_ns: from a rank's start until the last rank had come, None
            where one rank was recorded.
    """

    name: str
    count: int
    ns: int
    exposed_ns: int
    nbytes: int
    waited_ns: int | None = None
    phase: Phase = Phase.BACKWARD
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class Critical:
    """Time of the critical path: the chain of host calls and device work, each waiting for the one before, that the
    step's length is the sum of. On the host *device* is IDLE or NONE; on the device *activity* is None."""

    phase: Phase
    activity: Activity | None
    device: Device
    ns: int


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What the device did in the steady steps, all ranks.

    Attributes:
        busy_ns: some work ran (union over streams); of it compute_ns a kernel; collective_ns a collective and no kernel;
            copy_ns a copy and nothing else. idle_ns: the rest of the steps.
        launches_per_step: work launched a step, median; launch_ns: host time of one launch call, median.
        tensor_cores: whether the device has units for matrices in reduced precision; None where not known.
        dilation: as `trace.Trace.dilation`.
    """

    busy_ns: int
    compute_ns: int
    collective_ns: int
    copy_ns: int
    idle_ns: int
    idling: tuple[Idling, ...]
    kernels: tuple[Kernels, ...]
    copies: tuple[Copies, ...]
    syncs: tuple[Syncs, ...]
    collectives: tuple[DeviceCollectives, ...]
    critical: tuple[Critical, ...]
    launches_per_step: float = 0.0
    launch_ns: int = 0
    tensor_cores: bool | None = None
    dilation: float | None = None


class Tables(Protocol):
    """The shared evidence. Every attribute is computed when first read."""

    @property
    def lines(self) -> tuple[HotLine, ...]:
        """Hot lines of the steady steps, the hottest first."""

    @property
    def outside_lines(self) -> tuple[HotLine, ...]:
        """Hot lines of all time outside the steady steps, the hottest first."""

    @property
    def worker_lines(self) -> tuple[WorkerLine, ...]: ...

    @property
    def batch_lines(self) -> tuple[BatchLine, ...]:
        """Lines that make the training's batches, over the whole run, the largest share first."""

    @property
    def loaders(self) -> tuple[LoaderUse, ...]: ...

    @property
    def cores(self) -> Cores: ...

    @property
    def trend(self) -> Trend | None: ...

    @property
    def compiles(self) -> tuple[Compile, ...]: ...

    @property
    def fusion(self) -> Fusion | None:
        """What Inductor fused and what it left out; None where it compiled nothing that was seen."""

    @property
    def recomputed(self) -> Recomputed | None:
        """What activation checkpointing does again; None where no sample showed any."""

    @property
    def collections(self) -> tuple[Collections, ...]: ...

    @property
    def saves(self) -> tuple[Saves, ...]: ...

    @property
    def collectives(self) -> tuple[Collectives, ...]: ...

    @property
    def device(self) -> DeviceUse | None:
        """What the device did; None where it was not observed."""

    @property
    def backward_passes(self) -> int:
        """Backward passes of a steady step of one rank, median; 0 where none was seen."""

    @property
    def steady_steps(self) -> int:
        """Steady steps of the training (rolled-up ones counted each)."""

    @property
    def rank_steps(self) -> int:
        """Steady steps times ranks, 1 at least: what ledger time of all ranks is divided by to be time a step."""

    @property
    def step_ns(self) -> int:
        """Median wall time of a steady step, 0 where there is none."""

    @property
    def steady_ns(self) -> int:
        """Ledger time of all steady steps, all ranks."""

    @property
    def steady_parts(self) -> Mapping[tuple[Phase, Activity], int]:
        """Ledger time of all steady steps by entry, all ranks; entries without time are absent."""

    @property
    def device_parts(self) -> Mapping[tuple[Phase, Activity, Device], int]:
        """The same, by what the device did meanwhile as well."""

    @property
    def input_safety(self) -> Safety:
        """What changing the number of workers may do to this training."""

    def set_at(self, name: str) -> Line | None:
        """Return the line that sets a configuration or variable *name*, in a file that asks for compilation, or None."""

    def place(self, text: str) -> Line | None:
        """Return the line that a recorded ``FILE:LINE:FUNCTION`` names, with its code."""
