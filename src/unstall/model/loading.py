"""Shared evidence on the input: what loaders, their workers and the lines that make batches took, as the causes read it."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.model.finding import Line


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
        loop: whether it stands in a loop of its function, so that the interpreter walks it.
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
    loop: bool = False


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
        batch_mean_ns, batch_slow_ns: mean of the batches' wall time, and mean of those that take over three times its
            median without waiting for a core (less that wait; 0 where there are none); slow_share: how many those are.
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
