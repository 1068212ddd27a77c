"""What reading files costs a batch: more of them than its samples need, or waiting for the storage they lie on."""

from __future__ import annotations

import re

from unstall.model.loading import BatchLine, LoaderUse, Reads

LEAST_LOOKS = 3  # batches; the first ones read headers and imports as well
LEAST_OVER = 4  # bytes read from files over bytes of the sample; compressed ones make more of them than were read
LEAST_AGAIN = 4  # times that a pass reads all of the files; shuffled chunks are read twice by careful code too
LEAST_BLOCKED = 0.5  # of a batch's running time, neither on a CPU nor waiting for one
LEAST_STALLED = (
    0.25  # of that, with storage holding up some task: 0.5 to 0.8 of what storage took, as busy cores dilute it
)
LEAST_STORED = 1.0  # bytes a sample from storage, or page faults
LEAST_RATE = 0.01  # bytes a ns while blocked, where stalls are not known: 10 MB/s, ten times what a sleeping batch gets
LEAST_READ = 16_384  # bytes a sample; less is a buffer of the file object's
_FORMATS = re.compile(
    r"npyio|zipfile|gzip|bz2|lzma|tarfile|zlib|h5py|zarr|numcodecs|pyarrow|fastparquet|netCDF4|tables\.|sqlite3|fsspec"
)
_CALLS = re.compile(r"\.p?read\w*\(|\b(pread|fromfile|load\w*|decompress)\(")


def inflation(use: LoaderUse) -> float:
    """Return bytes read from files over bytes of the sample that came of them; 0 where that is no fault or not sure.

    It is one where the files that are kept open are small beside what a pass over the data reads: then the same parts
    of them are read for many samples. Files of one sample each, and reads past the counter (mapped memory), tell nothing.
    """
    reads = use.reads
    if reads is None or reads.batches < LEAST_LOOKS or not reads.open_bytes or not use.length or use.iterable:
        return 0.0
    over, again = reads.read_bytes / max(1.0, reads.nbytes), reads.read_bytes * use.length / reads.open_bytes
    sure = over >= LEAST_OVER and again >= LEAST_AGAIN and reads.read_bytes >= LEAST_READ
    return over if sure else 0.0


def size(nbytes: float) -> str:
    """Return *nbytes* in words, as ``1.5 MB``."""
    scale, unit = next(((n, u) for n, u in ((1e9, "GB"), (1e6, "MB")) if nbytes >= n), (1e3, "kB"))
    return f"{nbytes / scale:.3g} {unit}"


def reading(lines: tuple[BatchLine, ...]) -> BatchLine | None:
    """Return the user's line that reads most, by what it calls; of lines that call one another the innermost."""
    told = [line for line in lines if line.part == "getitem" and line.line is not None]
    reads = [
        line for line in told if _FORMATS.search(line.callee) or _CALLS.search(line.line.code if line.line else "")
    ]
    return max(reads, key=lambda line: (line.share, line.depth), default=None)


def is_blocked(use: LoaderUse, reads: Reads) -> bool:
    """Return whether most of a batch's running time is neither on a CPU nor waiting for one, and storage was read meanwhile."""
    blocked = use.batch_blocked_ns >= LEAST_BLOCKED * max(1, use.batch_wall_ns - use.batch_run_queue_ns)
    return reads.batches >= LEAST_LOOKS and blocked and max(reads.stored_bytes, reads.faults) >= LEAST_STORED


def waits_for_storage(use: LoaderUse) -> bool:
    """Return whether batches mostly wait for the storage that the data lie on."""
    return (
        use.reads is not None and is_blocked(use, use.reads) and (stalled_share(use, use.reads) or 0.0) >= LEAST_STALLED
    )


def stalled_share(use: LoaderUse, reads: Reads) -> float | None:
    """Return the share of a batch's blocked time in which storage held it up; None where that cannot be told."""
    samples = use.samples or use.batch_size or 1
    if reads.stalled_ns is not None:
        return min(1.0, reads.stalled_ns * samples / max(1, use.batch_blocked_ns))
    return 1.0 if reads.stored_bytes * samples >= LEAST_RATE * use.batch_blocked_ns else None
