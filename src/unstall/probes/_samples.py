"""What a few samples are made of, and what is read to make them: digests, reads of files, memory of a worker.

The samples to look at are chosen by their index alone, so every epoch and every worker choose the same ones, and
whether one comes out the same each time is told later from all processes together. Only memory of the host is read,
with numpy: no operation of the framework's runs.
"""

from __future__ import annotations

import fcntl
import os
import resource
import stat
import sys
import time
import weakref
import zlib
from typing import Any

import torch
from torch.utils.data._utils import fetch

from unstall.probes._recorder import Probe

WATCHED = 32  # samples of a dataset that are looked at
MOST_DIGESTS = 3 * WATCHED  # a process; 10 to 30 us each
MOST_BYTES = 4096  # of a tensor that go into its digest, spread over all of it
MOST_PARTS = 64  # of a list
READS_UNTIL, READS_ONE_IN = 8, 16  # batches whose reads are counted: the first, then one in so many; 10 us each
OPEN_AFTER = 4  # batches looked at: by then a dataset has opened what it keeps open
MEMORY_FROM = 8  # batches of a worker; its memory is looked at here, and each time their number has doubled
LEAST_APART_NS = 1_000_000_000
MEMORY_COST_AT_FIRST, MEMORY_COST = 20, 100  # a look takes at most one part in so many of the time since the one before
MOST_PAGES = 4_194_304  # of 4 kB: 16 GB; a look takes 50 to 100 ms where 1 GB is held, and the worker stands still


class Samples:
    """Takes digests of the samples that are watched, in the process that makes them."""

    def __init__(self, probe: Probe) -> None:
        self.probe = Probe("samples", probe.recorder)  # what a sample may be has no end: an error ends the looks only
        self.recorder = probe.recorder
        self.reset()

    def reset(self) -> None:
        self.left = MOST_DIGESTS
        self.frames = 0
        self.reads = Reads(self.probe)
        self.memory = Memory(self.probe)

    def wants(self, fetcher: Any, index: Any) -> bool:
        """Return whether a sample that is watched is among those of *index*."""
        if not self.probe.on:
            return False
        try:
            watched = told(fetcher).watched
            return type(index) is list and bool(watched) and not watched.isdisjoint(index)
        except TypeError:  # indices that cannot be hashed
            self.left = 0
        except Exception as error:
            self.probe.switch_off(error)
        return False

    def look(self, fetcher: Any, index: Any, samples: Any) -> None:
        """Write down the digests of the watched ones of *samples*, which are those of *index* in its order."""
        with self.probe.guard():
            if type(samples) is not list or len(samples) != len(index):
                return
            of, found = told(fetcher), []
            for number, sample in zip(index, samples):
                if number in of.watched:
                    made = digest(sample)
                    if made is None:
                        self.left = 0
                        return
                    found.append([int(number), *made])
            self.left = max(0, self.left - len(found))
            self.frames += 1
            self.recorder.fact({f"digests:{self.frames}": [of.name, found]})


class Reads:
    """Sums of what was read from files during the batches that were looked at, by dataset."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.files: tuple[int, int] | None = None  # of /proc/self/io and /proc/pressure/io; -1 where there is none
        self.sums: dict[str, list[int]] = {}

    def begin(self, count: int) -> tuple[int, ...] | None:
        """Return the counters so far, or None for a batch that is not looked at."""
        return self.counters() if (count <= READS_UNTIL or not count % READS_ONE_IN) and self.probe.on else None

    def end(self, begun: tuple[int, ...], fetcher: Any, samples: int, nbytes: int) -> None:
        with self.probe.guard():
            now, name = self.counters(), told(fetcher).name
            sums = self.sums.setdefault(name, [0] * (3 + len(now)))
            for n, grown in enumerate((1, samples, nbytes, *(b - a for a, b in zip(begun, now)))):
                sums[n] += grown
            if sums[0] & (sums[0] - 1) == 0 or sums[0] % 64 == 0:
                assert self.files is not None
                facts: dict[str, object] = {f"reads:{name}": sums if self.files[1] >= 0 else sums[:-1]}
                if sums[0] == OPEN_AFTER:
                    facts[f"open:{name}"] = open_bytes()
                self.recorder.fact(facts)

    def counters(self) -> tuple[int, ...]:
        """Return the counts so far: this process's bytes read, reads, bytes that came from storage, page faults that did;
        and the time in which some task of the machine was held up by storage, us. Zeros where the kernel does not tell.

        Source: /proc/PID/io (rchar, syscr, read_bytes) and /proc/pressure/io (some, total), kept open: 2 us a read.
        """
        if self.files is None:
            self.files = _opened("/proc/self/io"), _opened("/proc/pressure/io")
        io, pressure = self.files
        read = os.pread(io, 400, 0).split() if io >= 0 else [b"0"] * 10
        stalled = os.pread(pressure, 200, 0).split(b"total=", 1)[1].split(None, 1)[0] if pressure >= 0 else b"0"
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        return int(read[1]), int(read[5]), int(read[9]), faults, int(stalled)


def _opened(path: str) -> int:
    """Return a descriptor of *path*, or -1 where it cannot be read (pressure may be off, or hidden in a container)."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        os.pread(file, 1, 0)
        return file
    except OSError:
        os.close(file)
        return -1


def open_bytes() -> int:
    """Return the size of the files, each once, that this process holds open and can read. Some 2 us a file."""
    sizes: dict[tuple[int, int], int] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            file, access = os.fstat(int(name)), fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE
        except OSError:  # the listing's own
            continue
        if stat.S_ISREG(file.st_mode) and access != os.O_WRONLY:
            sizes[file.st_dev, file.st_ino] = file.st_size
    return sum(sizes.values())


class Memory:
    """The memory that a worker holds for itself, looked at ever more seldom."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.due = MEMORY_FROM
        self.after_ns = 0
        self.looks = 0

    def look(self, count: int, now: int) -> None:
        """Write down the worker's memory at its batch *count*, where that is due. A look costs 0.5 ms and more."""
        if count < self.due or now < self.after_ns or not self.probe.on:
            return
        with self.probe.guard():
            self.due, self.looks = 2 * count, self.looks + 1
            with open("/proc/self/statm", encoding="ascii") as file:
                if int(file.read().split()[1]) > MOST_PAGES:
                    return
            sizes, stalled = memory_of(), stalled_us("memory")
            took = time.monotonic_ns() - now
            self.after_ns = now + max(LEAST_APART_NS, took * (MEMORY_COST if self.looks > 1 else MEMORY_COST_AT_FIRST))
            self.recorder.fact({f"memory:{self.looks}": [now, count, *sizes, stalled]})


def memory_of() -> tuple[int, int, int]:
    """Return the bytes that are this process's alone, all that it holds in memory, and what of it was swapped out.

    Source: /proc/self/smaps_rollup: Private_*, Rss, Swap.
    """
    with open("/proc/self/smaps_rollup", encoding="ascii", errors="replace") as file:
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in file if line.endswith("kB\n")}
    own = sizes.get("Private_Clean", 0) + sizes.get("Private_Dirty", 0)
    return 1024 * own, 1024 * sizes.get("Rss", 0), 1024 * sizes.get("Swap", 0)


def stalled_us(what: str) -> int:
    """Return how long some task of the machine was held up for "memory" or "io" so far, us; 0 where it is not told."""
    try:
        with open(f"/proc/pressure/{what}", encoding="ascii") as file:
            return int(file.read().split("total=", 1)[1].split(None, 1)[0])
    except (OSError, ValueError, IndexError):
        return 0


class Told:
    """What a fetcher's samples are told of under.

    Attributes:
        name: the dataset's class and length, as ``train.Clips/4000``: parts of a dataset have one class.
        watched: indices of the samples that are watched.
    """

    __slots__ = ("name", "watched")

    def __init__(self, fetcher: Any) -> None:
        dataset = fetcher.dataset
        length = None
        if isinstance(fetcher, fetch._MapDatasetFetcher):
            known, length = lengths.get(id(dataset), (None, None))
            if known is None or known() is not dataset:
                length = length_of(dataset)
        self.name = f"{type(dataset).__module__}.{type(dataset).__qualname__}/{length}"
        self.watched: frozenset[int] = frozenset()
        if length and fetcher.auto_collation:
            self.watched = frozenset(range(0, length, max(1, length // WATCHED)))


def told(fetcher: Any) -> Told:
    """Return what is known of a fetcher; kept with it, as there is one for each pass over the data."""
    known = getattr(fetcher, "_unstall_told", None)
    if known is None:
        known = fetcher._unstall_told = Told(fetcher)
    return known


# Of datasets by id, which is the same in a forked worker: asked for once a loader. Who it was is kept beside it, as another
# may come to lie where one was.
lengths: dict[int, tuple[weakref.ref[object], int | None]] = {}


def length_of(dataset: Any) -> int | None:
    """Return the samples of a map-style dataset; None where it has no length or cannot tell it."""
    try:
        known: int | None = len(dataset)
    except Exception:  # the user's own code: with a sampler that knows its length nothing else asks for the dataset's
        known = None
    try:
        lengths[id(dataset)] = weakref.ref(dataset), known
    except TypeError:  # a plain list: it tells its length at no cost
        pass
    return known


def digest(sample: Any) -> tuple[int, int] | None:
    """Return a checksum of *sample* and its bytes, or None where it holds what cannot be compared."""
    try:
        return _add(sample, 0, 4)
    except (TypeError, ValueError, RuntimeError):
        return None


def _add(part: Any, crc: int, depth: int) -> tuple[int, int] | None:
    if part is None or isinstance(part, (bool, int, float, str)):
        return zlib.crc32(repr(part).encode(), crc), 8
    if isinstance(part, (bytes, bytearray)):
        step = len(part) // MOST_BYTES + 1
        return zlib.crc32(bytes(part[::step]), zlib.crc32(len(part).to_bytes(8, "little"), crc)), len(part)
    if isinstance(part, torch.Tensor):
        plain = type(part) is torch.Tensor and part.device.type == "cpu" and part.layout is torch.strided
        return _of_array(part.detach().numpy(), crc) if plain else None
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(part, (numpy.ndarray, numpy.generic)):
        return _of_array(numpy.asarray(part), crc)
    if depth and isinstance(part, dict):
        return _of_parts([each for item in part.items() for each in item], crc, depth)
    if depth and isinstance(part, (list, tuple)):
        return _of_parts(part, crc, depth)
    return None


def _of_array(array: Any, crc: int) -> tuple[int, int] | None:
    if array.dtype.hasobject:
        return None
    crc = zlib.crc32(f"{array.shape}{array.dtype}".encode(), crc)
    step = array.nbytes // MOST_BYTES + 1 | 1  # odd: an even one would stay in a few columns of a picture
    return zlib.crc32(array.flat[::step].tobytes(), crc), int(array.nbytes)


def _of_parts(parts: Any, crc: int, depth: int) -> tuple[int, int] | None:
    size, step = 0, len(parts) // MOST_PARTS + 1
    crc = zlib.crc32(f"{type(parts).__name__}{len(parts)}".encode(), crc)
    for part in parts[::step]:
        made = _add(part, crc, depth - 1)
        if made is None:
            return None
        crc, size = made[0], size + made[1]
    return crc, size * step
