"""How the loop used each loader, and what a batch costs whoever makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.code import line_at
from unstall.accounts.contents import padding_of
from unstall.accounts.samples import draws_of, early_queued_ns, growth_of, pids_of, reads_of, repeats_of
from unstall.model.finding import Line
from unstall.model.ledger import Ledger
from unstall.model.loading import Draws, LoaderUse
from unstall.model.run import Facts, Fetches, Place, Rank
from unstall.model.steps import Steps
from unstall.model.wire import RANDOM_DRAWN, RANDOM_SEEN, Kind, Phase

MAIN_PROCESS = 0xFFFF
SKIPPED = 2  # first batches of a worker: imports, first touches and cold files
SLOW = 3  # times the median, without waiting for a core: such a batch is not like the others
# part of a library's path -> the configuration key that its loaders are set by
KEYS = (("transformers/trainer", "TrainingArguments.dataloader_num_workers"),)


def loaders(rank: Rank, steps: Steps, ledger: Ledger, project: str) -> tuple[LoaderUse, ...]:
    """Return the loaders of *rank*, those that train first, then by the time the loop spent on them.

    Cost: O(events + fetches x loaders).
    """
    seen = _Spans(rank, steps, ledger)
    uses = [_use(number, facts, seen, project) for number, facts in rank.facts.family("loader").items()]
    uses += [
        _producer(name, seen, project) for name in seen.by_name if not name.startswith("loader:") and Place.parse(name)
    ]
    return tuple(sorted(uses, key=lambda use: (not use.trains, -use.wait_ns)))


class _Spans:
    """The spans of fetching, and what the ledger holds of them.

    Attributes:
        by_name: rows of LOAD and WAIT_DATA events that began in the steady steps, by loader.
        scale: ledger's FETCH time over the spans' (spans may be listed in windows only), iterators apart.
    """

    def __init__(self, rank: Rank, steps: Steps, ledger: Ledger) -> None:
        self.rank, self.events, self.steps = rank, rank.events, steps
        steady = steps.steady
        self.window = (int(steps.start_SR[steady[0], 0]), int(steps.end_SR[steady[-1], 0])) if steady.size else (0, 0)
        self.by_name: dict[str, list[int]] = {}
        for n in self.steady_of(Kind.LOAD, Kind.WAIT_DATA):
            self.by_name.setdefault(self.events.name_of(n), []).append(n)
        told = [name for name in rank.facts.known if name.startswith("trains:")]
        self.training = {"loader:" + name.partition(":")[2] for name in told} if told else set(self.by_name)
        self.training |= {name for name in self.by_name if not name.startswith("loader:")}
        fetch_ns = ledger.total_ns(steps=steady, rank=0, phase=Phase.FETCH)
        about = sum(self.lengths(self.steady_of(Kind.ITER, Kind.STOP)))
        listed = sum(
            sum(self.lengths(rows)) - self.stopped_within(rows)
            for name, rows in self.by_name.items()
            if name in self.training
        )
        self.scale = max(0, fetch_ns - about) / listed if listed > 0 else 0.0

    def steady_of(self, *kinds: Kind) -> list[int]:
        begin, end = self.window
        return [int(n) for n in self.events.of(*kinds) if begin <= self.events.start_ns[n] < end]

    def lengths(self, rows: list[int]) -> list[int]:
        return [int(self.events.end_ns[n] - self.events.start_ns[n]) for n in rows]

    def stopped_within(self, rows: list[int]) -> int:
        """Return the time within *rows* that stopping workers took: the last `next` of an epoch stops them."""
        stops = self.events.of(Kind.STOP)
        starts, ends = self.events.start_ns[rows], self.events.end_ns[rows]
        total = 0
        for n in stops:
            at = int(np.searchsorted(starts, self.events.start_ns[n], side="right")) - 1
            if rows and at >= 0 and self.events.end_ns[n] <= ends[at]:
                total += int(self.events.end_ns[n] - self.events.start_ns[n])
        return total

    def ready(self, rows: list[int]) -> list[int]:
        """Return how long each batch took to get that was ready before, of waits for workers."""
        waits = [n for n in rows if self.events.kind[n] == Kind.WAIT_DATA and self.events.value[n] > 0]
        return self.lengths(waits)

    def wait_ns(self, rows: list[int]) -> int:
        return int((sum(self.lengths(rows)) - self.stopped_within(rows)) * self.scale)


def _producer(name: str, seen: _Spans, project: str) -> LoaderUse:
    """Return the use of a function that makes the batch, where there is no DataLoader."""
    place, rows = Place.parse(name), seen.by_name[name]
    assert place is not None
    return LoaderUse(
        -1,
        line_at(place, project),
        place.function,
        True,
        len(rows),
        len(rows) / max(1, seen.steps.steady_count),
        seen.wait_ns(rows),
        batch_wall_ns=int(np.median(seen.lengths(rows))),
    )


def _use(number: int, facts: Facts, seen: _Spans, project: str) -> LoaderUse:
    rank, name = seen.rank, f"loader:{number}"
    rows = seen.by_name.get(name, [])
    workers = _whole(facts.number("num_workers"))
    iterators = _iterators(number, seen)
    cost = _cost(number, workers or 0, rank.fetches)
    ready = seen.ready(rows)
    contents = rank.facts.family("contents").get(number, Facts())
    dataset = f"{facts.text('dataset')}/{_whole(facts.number('length'))}"
    return LoaderUse(
        number,
        _site(facts, project),
        "DataLoader",
        name in seen.training,
        len(rows),
        len(rows) / max(1, seen.steps.steady_count),
        seen.wait_ns(rows) if name in seen.training else 0,
        workers=workers,
        batch_size=_whole(facts.number("batch_size")),
        prefetch=_whole(facts.number("prefetch_factor")),
        persistent=facts.flag("persistent_workers"),
        context=facts.text("context"),
        iterators=len(iterators.made),
        iterator_ns=iterators.made,
        first_batch_ns=iterators.first,
        stop_ns=iterators.stop,
        restarts=iterators.steady,
        making_ns=iterators.making,
        first_ns=iterators.waiting,
        stopping_ns=iterators.stopping,
        worker_threads=_whole(rank.facts.number("worker.threads")),
        threads_set_at=_line(rank.facts.text("worker.threads_set_at"), project),
        dataset=facts.text("dataset") or "",
        dataset_at=_line(facts.text("dataset_at"), project),
        length=_whole(facts.number("length")),
        collate=facts.text("collate") or "",
        made=_whole(rank.facts.number(f"made:{number}")) or 1,
        iterable=facts.flag("iterable") or False,
        ready_ns=int(np.median(ready)) if ready else 0,
        ready_batches=len(ready),
        tensors=contents.number("tensors"),
        objects=contents.number("objects"),
        padding=padding_of(contents, rank),
        repeats=repeats_of(dataset, rank.facts),
        reads=reads_of(dataset, rank.facts),
        draws=_draws(number, facts, iterators, len(rows), seen, project),
        growth=growth_of(pids_of(number, rank), rank.facts),
        early_queued_ns=early_queued_ns(number, rank.fetches) if workers else 0,
        **cost,
    )


def _draws(number: int, facts: Facts, iterators: _Iterators, batches: int, seen: _Spans, project: str) -> Draws | None:
    # Without workers making an iterator is little else than the sampler's own __iter__.
    eager = int(np.median(iterators.made)) if iterators.made and not facts.number("num_workers") else 0
    told = seen.rank.facts.family("sampler").get(number, Facts())
    return draws_of(facts, told, iterators.steady, batches, eager, project)


def _site(facts: Facts, project: str) -> Line:
    place = Place.parse(facts.text("site") or "") or Place("", 0)
    library = facts.text("library") or None
    key = next((key for part, key in KEYS if library and part in library.replace("\\", "/")), None)
    return line_at(place, project, library, key)


def _line(text: str | None, project: str) -> Line | None:
    place = Place.parse(text or "")
    return line_at(place, project) if place is not None else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


@dataclass(frozen=True, slots=True)
class _Iterators:
    """The iterators of a loader: times of each over the run, and sums over the steady steps, ns."""

    made: tuple[int, ...]
    first: tuple[int, ...]
    stop: tuple[int, ...]
    steady: int
    making: int
    waiting: int
    stopping: int


def _iterators(number: int, seen: _Spans) -> _Iterators:
    events, (begin, end) = seen.events, seen.window
    made = [int(n) for n in events.of(Kind.ITER) if events.value[n] == number]
    stops = [int(n) for n in events.of(Kind.STOP) if events.value[n] == number]
    batches = [int(n) for n in events.of(Kind.LOAD, Kind.WAIT_DATA) if events.name_of(n) == f"loader:{number}"]
    starts = events.start_ns[batches] if batches else np.zeros(0, np.int64)
    first = []
    for n in made:
        at = int(np.searchsorted(starts, events.end_ns[n]))
        if at < len(batches):
            first.append(batches[at])

    def steady(rows: list[int]) -> list[int]:
        return seen.lengths([n for n in rows if begin <= events.start_ns[n] < end])

    return _Iterators(
        tuple(seen.lengths(made)),
        tuple(seen.lengths(first)),
        tuple(seen.lengths(stops)),
        len(steady(made)),
        sum(steady(made)),
        sum(steady(first)),
        sum(steady(stops)),
    )


class _Cost(TypedDict, total=False):
    """What one batch costs, medians, as `LoaderUse` names it."""

    batch_wall_ns: int
    batch_cpu_ns: int
    batch_run_queue_ns: int
    batch_blocked_ns: int
    batch_team_cpu_ns: int
    getitem_ns: int
    collate_ns: int
    pickle_ns: int | None
    nbytes: int
    draws_random: bool | None
    samples: int
    batch_mean_ns: int
    batch_slow_ns: int
    slow_share: float


def _cost(number: int, workers: int, fetches: Fetches | None) -> _Cost:
    if fetches is None:
        return {}
    mine = (fetches.loader == number) & (fetches.worker != MAIN_PROCESS) if workers else fetches.worker == MAIN_PROCESS
    settled = mine & (fetches.batch > SKIPPED)
    mine = settled if settled.any() else mine
    if not mine.any():
        return {}

    def median(column: NDArray[np.int64]) -> int:
        return int(np.median(column[mine]))

    looked = mine & ((fetches.flags & RANDOM_SEEN) > 0) if (mine & ((fetches.flags & RANDOM_SEEN) > 0)).any() else None
    if looked is None:
        looked = (fetches.flags & RANDOM_SEEN) > 0
    drawn = bool((fetches.flags[looked] & RANDOM_DRAWN).any()) if looked.any() else None
    # A thread loses its core most often as it makes a system call, as the probe does right after the end of a fetch: of
    # such a wait only what fits into the fetch belongs to it.
    off_cpu = np.maximum(0, fetches.wall_ns - fetches.cpu_ns)
    queueing = np.minimum(fetches.run_queue_ns, off_cpu)
    wall, cpu, queued = median(fetches.wall_ns), median(fetches.cpu_ns), median(queueing)
    ran = (fetches.wall_ns - queueing)[mine]  # a batch that waits for a core is no slow one
    slow = ran[ran > SLOW * wall]
    return {
        "batch_mean_ns": int(fetches.wall_ns[mine].mean()),
        "batch_slow_ns": int(slow.mean()) if slow.size else 0,
        "slow_share": slow.size / ran.size,
        "batch_wall_ns": wall,
        "batch_cpu_ns": cpu,
        "batch_run_queue_ns": queued,
        "batch_blocked_ns": median(off_cpu - queueing),
        "batch_team_cpu_ns": median(fetches.team_cpu_ns),
        "getitem_ns": median(fetches.getitem_ns),
        "collate_ns": median(fetches.collate_ns),
        "pickle_ns": median(fetches.pickle_ns) if workers else None,
        "nbytes": median(fetches.nbytes),
        "draws_random": drawn,
        "samples": median(fetches.samples),
    }
