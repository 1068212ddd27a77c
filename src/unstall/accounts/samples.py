"""What is known of single samples and of how they were drawn: repeats, reads, draws, and the memory of workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from unstall.accounts.code import line_at
from unstall.model.loading import Draws, Growth, Reads, Repeats
from unstall.model.run import Fact, Facts, Fetches, Place, Rank


def repeats_of(dataset: str, facts: Facts) -> Repeats | None:
    """Return whether the samples of *dataset* (its class and length) come out the same, from the fact ``digests``."""
    seen: dict[int, list[int]] = defaultdict(list)
    sizes: list[int] = []
    for name, found in _pairs(facts.known.get("digests")):
        if name == dataset and isinstance(found, list):
            for index, checksum, nbytes in (_whole(one) for one in found if isinstance(one, list) and len(one) == 3):
                seen[index].append(checksum)
                sizes.append(nbytes)
    if not seen:
        return None
    again = [checksums for checksums in seen.values() if len(checksums) > 1]
    same = sum(len(set(checksums)) == 1 for checksums in again)
    return Repeats(len(again), same, len(seen) - len(again), float(np.mean(sizes)))


def reads_of(dataset: str, facts: Facts) -> Reads | None:
    """Return what is read to make a sample of *dataset* (its class and length), from the facts ``reads`` and ``open``."""
    told, opened = _of(dataset, facts.known.get("reads")), _of(dataset, facts.known.get("open"))
    batches, samples, *sums = _whole(told) if isinstance(told, list) and len(told) in (7, 8) else (0, 0)
    if not batches or not samples:
        return None
    nbytes, read, calls, stored, faults, *stalled = (one / samples for one in sums)
    stalled_ns = 1000 * stalled[0] if stalled else None
    return Reads(batches, nbytes, read, calls, stored, faults, stalled_ns, opened if isinstance(opened, int) else None)


def _of(name: str, known: Fact) -> Fact:
    return known.get(name) if isinstance(known, dict) else None


def draws_of(loader: Facts, told: Facts, restarts: int, batches: int, eager_ns: int, project: str) -> Draws | None:
    """Return what the samplers of a loader took.

    Args:
        loader: its facts; told: the fact ``sampler:K``.
        restarts, batches: passes that began, and batches that were taken, in the steady steps.
        eager_ns: time a pass in which the sampler may have drawn before it was asked for the first batch.
    """
    first = told.known.get("first_ns")
    if not isinstance(first, list):
        return None
    draws, ns = int(told.number("draws") or 0), int(told.number("ns") or 0)
    place = Place.parse(loader.text("sampler_at") or "")
    return Draws(
        loader.text("sampler") or "",
        line_at(place, project) if place is not None else None,
        tuple(ns + eager_ns for ns in _whole(first)),
        ns // max(1, draws),
        draws,
        restarts,
        batches,
    )


def growth_of(workers: Iterable[int], facts: Facts) -> Growth | None:
    """Return how the memory of *workers* (pids) grew, from the fact ``memory``."""
    memory = facts.known.get("memory")
    grown: list[tuple[float, ...]] = []
    for pid in workers:
        looks = memory.get(str(pid)) if isinstance(memory, dict) else None
        if isinstance(looks, list) and len(looks) > 1:
            first, last = (_whole(looks[n]) for n in (0, -1))
            if len(first) == len(last) == 6:
                more = max(0, last[2] - first[2])
                copied = max(0, more - max(0, last[3] - first[3]))
                stalled = 1000 * (last[5] - first[5]) / max(1, last[0] - first[0])
                grown.append((first[2], last[2], copied, last[4], last[1] - first[1], stalled))
    if not grown:
        return None
    *sizes, batches, stalled = np.mean(np.array(grown), axis=0)
    before, after, copied, swapped = (int(size) for size in sizes)
    return Growth(before, after, copied, swapped, int(batches), float(min(1.0, stalled)), len(grown))


def pids_of(number: int, rank: Rank) -> list[int]:
    """Return the pids of the workers that the loader *number* had over the run."""
    told = [value for name, value in rank.facts.known.items() if name.startswith("workers_of:")]
    return [pid for numbers in told if (whole := _whole(numbers))[:1] == [number] for pid in whole[1:]]


def early_queued_ns(number: int, fetches: Fetches | None) -> int:
    """Return the time that a worker's first batch was runnable without a core, median over the workers."""
    if fetches is None:
        return 0
    first = (fetches.loader == number) & (fetches.batch == 1)
    return int(np.median(fetches.run_queue_ns[first])) if first.any() else 0


def _whole(numbers: Fact) -> list[int]:
    """Return the whole numbers of a list; of anything else, none."""
    listed = numbers if isinstance(numbers, list) else []
    return [int(one) for one in listed if isinstance(one, (int, float))]


def _pairs(told: Fact) -> Iterable[tuple[Fact, Fact]]:
    listed = told if isinstance(told, list) else []
    return [(one[0], one[1]) for one in listed if isinstance(one, list) and len(one) == 2]
