"""The lines that make the batches: stack samples below the loader's fetch, in workers or in the training process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.code import called, code_of, is_users, line_at
from unstall.accounts.label import Labelled, Stack
from unstall.accounts.loops import loops_around
from unstall.accounts.opening import opened_again
from unstall.model.loading import BatchLine
from unstall.model.run import Place, Samples
from unstall.model.wire import Phase

_FETCH = "torch/utils/data/_utils/fetch.py"
_OURS = ("unstall/probes/", "unstall/model/")  # what records runs within the making of a batch
_COLLATE = (
    "unstall/probes/fetching.py",
    "timed_collate",
)  # our stand-in for the collate function, in the stack above it, of those batches that are timed
_CALLS_COLLATE = "collate_fn("  # in the line of the fetcher that hands the samples to it, timed or not


@dataclass
class _Heap:
    """Samples with one line among the user's."""

    weight: float = 0.0
    own: float = 0.0
    samples: int = 0
    depth: int = 99
    rates: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    callees: Counter[str] = field(default_factory=Counter)


def batch_lines(
    labelled: Iterable[Labelled | None],
    workers: Iterable[Samples],
    in_workers: bool,
    producer: Place | None,
    project: str,
) -> tuple[BatchLine, ...]:
    """Return the lines that make the batches by their share of that work, the largest first.

    Args:
        labelled: samples of the training threads; workers: of the data workers.
        in_workers: whether the training's loader has workers, so that only their samples count.
        producer: the function that makes the batch, where there is no DataLoader.
    """
    heaps: dict[tuple[str, Place | None], _Heap] = defaultdict(_Heap)
    total = 0.0
    seen = _of_workers(workers) if in_workers else _of_main(labelled)
    for stack, weight, rates in seen:
        below = _below(stack, producer)
        if below is not None:
            total += weight
            _enter(heaps, below[0], below[1], weight, rates)
    found = [_line(part, place, heap, total, project) for (part, place), heap in heaps.items()]
    return tuple(sorted(found, key=lambda line: (-line.share, line.depth)))


def _of_workers(tables: Iterable[Samples]) -> Iterator[tuple[Stack, float, NDArray[np.float64] | None]]:
    for table in tables:
        for k, ns in zip(table.stack, table.weight_ns):
            yield table.stacks[int(k)], float(ns), None


def _of_main(tables: Iterable[Labelled | None]) -> Iterator[tuple[Stack, float, NDArray[np.float64] | None]]:
    for table in tables:
        if table is not None:
            told = bool(table.rates.any())
            for k in np.flatnonzero(table.phase == Phase.FETCH):
                number = int(table.stack[k])
                yield table.stacks[number], float(table.weight_ns[k]), table.rates[number] if told else None


def _below(stack: Stack, producer: Place | None) -> tuple[str, Stack] | None:
    """Return the part of the work and the frames below what called for it, or None where no batch is being made."""
    if producer is not None:
        at = [n for n, p in enumerate(stack) if p.file == producer.file and _name(p) == producer.function]
        return ("source", stack[at[0] :]) if at else None
    files = [place.file.replace("\\", "/") for place in stack]
    at = [n for n, file in enumerate(files) if file.endswith(_FETCH)]
    if not at:
        return None
    below = stack[at[-1] + 1 :]
    collates = any(file.endswith(_COLLATE[0]) and _name(p) == _COLLATE[1] for p, file in zip(stack, files))
    collates = collates or _CALLS_COLLATE in code_of(stack[at[-1]].file, stack[at[-1]].line)
    return ("collate" if collates else "getitem"), tuple(
        p for p in below if not any(ours in p.file.replace("\\", "/") for ours in _OURS)
    )


def _name(place: Place) -> str:
    """Return a frame's function without its class and the functions around it: the sampler may name it in full."""
    return place.function.rpartition(".")[2]


def _enter(
    heaps: dict[tuple[str, Place | None], _Heap],
    part: str,
    frames: Stack,
    weight: float,
    rates: NDArray[np.float64] | None,
) -> None:
    users = [n for n, place in enumerate(frames) if is_users(place.file)]
    if not users:
        heap = heaps[(part, None)]
        heap.depth = 0
        heap.callees[called(frames[0]) if frames else ""] += int(weight)
        _add(heap, weight, True, rates)
        return
    entered = set()
    for depth, n in enumerate(users):
        place = frames[n]
        if place in entered:  # recursion: once a sample
            continue
        entered.add(place)
        heap = heaps[(part, place)]
        heap.depth = min(heap.depth, depth)
        after = frames[n + 1] if n + 1 < len(frames) else None
        heap.callees["" if after is None else after.function if is_users(after.file) else called(after)] += int(weight)
        _add(heap, weight, n == users[-1], rates)


def _add(heap: _Heap, weight: float, innermost: bool, rates: NDArray[np.float64] | None) -> None:
    heap.weight += weight
    heap.own += weight if innermost else 0.0
    heap.samples += 1
    if rates is not None:
        heap.rates += weight * rates


def _line(part: str, place: Place | None, heap: _Heap, total: float, project: str) -> BatchLine:
    known = heap.rates.sum() > 0
    waiting = float(heap.rates[2] / heap.rates.sum()) if known else None
    python = float(heap.rates[0] / max(1e-9, heap.rates[0] + heap.rates[1])) if known else None
    return BatchLine(
        line_at(place, project) if place is not None else None,
        part,
        heap.depth,
        heap.weight / total,
        heap.own / total,
        heap.samples,
        heap.callees.most_common(1)[0][0],
        python,
        waiting,
        opened_again(place.file, place.line) if place is not None and part == "getitem" else "",
        place is not None and bool(loops_around((place,))),
    )
