"""What making a batch costs, in a data worker or in the training process itself: one record a batch.

The fetchers of ``torch.utils.data`` are wrapped on their classes; forked workers inherit that, spawned
ones come up with us inside.  Wall time is CPU + run-queue + blocked time, which tells slow CPU work,
too many processes and slow storage apart.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import threading
import time
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch

from unstall.model import wire
from unstall.model.wire import RANDOM_DRAWN, RANDOM_SEEN, Frame
from unstall.probes._recorder import Probe, Recorder
from unstall.probes._samples import Samples
from unstall.probes._sites import call_site

AFTER = "torch"
MAIN_PROCESS = 0xFFFF
SEVERAL = 3  # batches whose random draws are looked at, from each worker's start; then one in so many:
SELDOM = 128
ALL_UNTIL, THEN_ONE_IN = 20_000, 16  # 96 bytes a batch: 2 MB a worker, then a sixteenth of the rate
# A record takes 16 us over and over, and 110 between other work on a busy machine: too much a batch of a millisecond.
CHEAP_NS, CHEAP_UNTIL, CHEAP_ONE_IN = 5_000_000, 256, 64
HERE_UNTIL, THEN_HERE_ONE_IN = 128, 64  # in the training process, where a record costs the training itself 110 us


def install(probe: Probe) -> None:
    fetching = Fetching(probe)
    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        kind.fetch = fetching.observing(kind.fetch)
    torch.set_num_threads = fetching.remembering(torch.set_num_threads)
    os.register_at_fork(after_in_child=fetching.reset)


class Fetching:
    """Times fetches; the collate function of a fetcher is timed by standing in for it during the fetch."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.samples = Samples(probe)
        self.reset()

    def reset(self) -> None:
        self.samples.reset()
        self.count = 0
        self.until, self.one_in = ALL_UNTIL, THEN_ONE_IN
        self.walls_ns = 0  # of all fetches so far
        self.pickled_ns = 0
        self.pickler: Pickling | None = None
        self.collate_ns = 0
        self.queue = RunQueue()
        self.worker: int | None = None
        self.threads = 0
        self.threads_set_at = ""

    def remembering(self, original: Any) -> Any:
        """Wrap ``torch.set_num_threads``: each worker begins with one thread, who asks for more is to be known."""

        @functools.wraps(original)
        def remembered(*args: Any, **kwargs: Any) -> Any:
            if self.probe.on and not torch.compiler.is_compiling():
                with self.probe.guard():
                    site, library = call_site(2)
                    # torch sets one thread itself, below the loop's line
                    self.threads_set_at = "" if library else site
            return original(*args, **kwargs)

        return remembered

    def observing(self, original: Any) -> Any:
        def fetch(fetcher: Any, index: Any) -> Any:
            self.count = count = self.count + 1
            wanted = self.samples.left and self.samples.wants(fetcher, index)
            recorded = self.probe.on and self.records(count)
            if not recorded:
                self.pickled_ns = 0  # a record is to hold what was pickled for one batch
                if self.pickler is not None:  # the batch before a recorded one is sent while that one is made
                    self.pickler.time(self.records(count + 1))
            if not recorded and not (wanted and self.probe.on):
                return original(fetcher, index)
            token = None
            with self.probe.guard():
                token = self.before(fetcher, index if wanted else None)
            if token is None:
                return original(fetcher, index)
            try:
                batch = original(fetcher, index)
            finally:
                fetcher.collate_fn = token.collate
            with self.probe.guard():
                self.after(token, fetcher, index, batch)
            return batch

        return fetch

    def records(self, count: int) -> bool:
        return count <= self.until or not count % self.one_in

    def before(self, fetcher: Any, watched: Any) -> Fetch | None:
        """Begin a fetch, or return None where it is not ours to record; *watched*: its indices, if some are watched."""
        if self.count == 1:
            self.find_out_who_we_are()
            if self.worker == MAIN_PROCESS:
                self.until, self.one_in = HERE_UNTIL, THEN_HERE_ONE_IN
        if self.worker is None:
            return None
        self.collate_ns = 0
        token = Fetch(fetcher.collate_fn, self.look_at_generators())
        fetcher.collate_fn = self.timed(fetcher.collate_fn, fetcher, watched)
        token.reads = self.samples.reads.begin(self.count)
        token.run_queue = self.queue.read()
        token.team, token.cpu, token.start = time.process_time_ns(), time.thread_time_ns(), time.monotonic_ns()
        return token

    def after(self, token: Fetch, fetcher: Any, index: Any, batch: Any) -> None:
        end, cpu, team = time.monotonic_ns(), time.thread_time_ns(), time.process_time_ns()
        run_queue = self.queue.read()
        flags = 0
        if token.generators is not None:
            flags = RANDOM_SEEN | (RANDOM_DRAWN if self.generators() != token.generators else 0)
        wall = end - token.start
        samples = len(index) if isinstance(index, (list, tuple)) else 1
        nbytes = size_of(batch)
        if token.reads is not None:
            self.samples.reads.end(token.reads, fetcher, samples, nbytes)
        if not self.records(self.count):
            return  # only its samples were wanted: how it was sent was not timed, and looking at them took time
        record = wire.FETCHED.pack(
            self.worker, 0, self.count, token.start, wall, cpu - token.cpu, run_queue - token.run_queue,
            team - token.team,
            max(0, wall - self.collate_ns), self.collate_ns, self.pickled_ns, nbytes, samples, flags,
        )  # fmt: skip
        self.pickled_ns = 0
        if self.worker == MAIN_PROCESS:  # it closes rows, and they take the record along
            self.recorder.write_later(Frame.FETCHES, record)
            return
        self.recorder.write(Frame.FETCHES, record)
        self.walls_ns += wall
        if self.count == CHEAP_UNTIL and self.walls_ns < CHEAP_UNTIL * CHEAP_NS:
            self.until, self.one_in = CHEAP_UNTIL, CHEAP_ONE_IN
        self.samples.memory.look(self.count, end)
        if self.count <= SEVERAL:
            self.tell_threads()

    def find_out_who_we_are(self) -> None:
        info = get_worker_info()
        recorder: Recorder = self.recorder
        if info is None:
            self.worker = MAIN_PROCESS if recorder.role == "main" and recorder.mine() else None
            return
        self.worker = info.id
        recorder.become_worker(info.id)
        recorder.fact({"worker": info.id})
        self.tell_threads()
        self.pickler = Pickling(self)

    def tell_threads(self) -> None:
        """Report the threads that tensor operations of this worker may use, where they changed."""
        threads = torch.get_num_threads()
        if threads != self.threads:
            self.threads = threads
            self.recorder.fact({"threads": threads, "threads_set_at": self.threads_set_at})

    def timed(self, collate: Any, fetcher: Any, watched: Any) -> Any:
        def timed_collate(samples: Any) -> Any:
            if watched is not None:
                self.samples.look(fetcher, watched, samples)
            start = time.monotonic_ns()
            try:
                return collate(samples)
            finally:
                self.collate_ns += time.monotonic_ns() - start

        return timed_collate

    def look_at_generators(self) -> list[object] | None:
        return self.generators() if self.count <= SEVERAL or self.count % SELDOM == 0 else None

    def generators(self) -> list[object]:
        """Return the states of the global generators of torch, random and (where imported) numpy, to be compared."""
        states: list[object] = [torch.get_rng_state().numpy().tobytes(), random.getstate()]
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            name, keys, *rest = numpy.random.get_state()
            states.append((name, keys.tobytes(), *rest))
        return states


class Pickling:
    """Stands in for the pickler of this process's queues, which works in the queue's own thread, where it is to be timed."""

    def __init__(self, fetching: Fetching) -> None:
        from multiprocessing import queues

        self.queues: Any = queues  # the name is private, and missing from the types
        self.original = original = self.queues._ForkingPickler

        class Pickler(original):  # type: ignore[misc, valid-type]
            @classmethod
            def dumps(cls, obj: object, protocol: int | None = None) -> Any:
                start = time.monotonic_ns()
                try:
                    return original.dumps(obj, protocol)
                finally:
                    fetching.pickled_ns += time.monotonic_ns() - start

        self.pickler, self.timing = Pickler, False
        self.time(True)

    def time(self, timing: bool) -> None:
        """Put our pickler in the place of the original, or back; not where the user has put one of their own there since."""
        if timing is not self.timing and self.queues._ForkingPickler in (self.pickler, self.original):
            self.timing = timing
            self.queues._ForkingPickler = self.pickler if timing else self.original


class Fetch:
    """One fetch under way."""

    __slots__ = ("collate", "cpu", "generators", "reads", "run_queue", "start", "team")

    def __init__(self, collate: Any, generators: list[object] | None) -> None:
        self.collate, self.generators = collate, generators
        self.start = self.cpu = self.team = self.run_queue = 0
        self.reads: tuple[int, ...] | None = None


class RunQueue:
    """The run-queue time of the calling thread so far, ns; 0 where the kernel does not tell.

    Source: /proc/PID/task/TID/schedstat, second field. The file is kept open: a read costs about 3 us.
    """

    def __init__(self) -> None:
        self.thread = -1
        self.file = -1

    def read(self) -> int:
        thread = threading.get_native_id()
        if thread != self.thread:
            self.thread = thread
            try:
                self.file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self.file = -1
        return int(os.pread(self.file, 80, 0).split()[1]) if self.file >= 0 else 0


def size_of(batch: Any, depth: int = 4) -> int:
    """Return the bytes of the tensors and arrays in *batch*, containers opened to *depth*."""
    if isinstance(batch, torch.Tensor):
        return int(batch.nbytes)
    if depth and isinstance(batch, dict):
        return sum(size_of(part, depth - 1) for part in batch.values())
    if depth and isinstance(batch, (list, tuple)):
        return sum(size_of(part, depth - 1) for part in batch[:64])
    size = getattr(batch, "nbytes", 0)
    return size if isinstance(size, int) else 0
