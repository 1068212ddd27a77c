"""The lines of the user's code that the time sits on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.code import called, innermost_users, is_compiled, line_at
from unstall.accounts.label import Labelled, Stack
from unstall.accounts.largest_remainder import divide
from unstall.accounts.loops import loops_around
from unstall.model.ledger import Ledger
from unstall.model.loading import WorkerLine
from unstall.model.run import Place, Samples
from unstall.model.tables import HotLine
from unstall.model.wire import Activity, Phase

# what stands for itself in a phase, whatever the samples say
_WHOLE = {Phase.FETCH: (Activity.LOAD, Activity.WAIT_DATA), Phase.CHECKPOINT: (Activity.IO,)}
WRITTEN = "code that torch.compile wrote"  # in the place of a file whose name says nothing


@dataclass
class _Heap:
    """Samples on one line in one phase."""

    weight: float = 0.0
    samples: int = 0
    shares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    measured: Counter[Activity] = field(default_factory=Counter)
    callees: Counter[str] = field(default_factory=Counter)
    library: Counter[str] = field(default_factory=Counter)
    paths: Counter[Stack] = field(default_factory=Counter)
    chain: tuple[Place, ...] = ()
    place: Place = field(default_factory=lambda: Place("", 0))


def hot_lines(
    ledger: Ledger,
    labelled: Sequence[Labelled | None],
    inside: Sequence[NDArray[np.bool_]],
    rows: NDArray[np.bool_],
    project: str,
) -> tuple[HotLine, ...]:
    """Return the user's lines with ledger time on them, the hottest first.

    Args:
        inside: per rank bool (K,): the samples to count.
        rows: bool (E,): the ledger entries that those samples stand for.
    """
    heaps: dict[tuple[int, str, int], _Heap] = defaultdict(_Heap)
    total: Counter[int] = Counter()
    for samples, chosen in zip(labelled, inside):
        if samples is not None:
            _gather(samples, np.flatnonzero(chosen), heaps, total)
    found = []
    for (phase, _, _), heap in heaps.items():
        if not heap.place.file:
            continue
        # a sample tells what the thread does where it has a CPU: time without one is on no line
        in_phase = rows & (ledger.phase == phase) & (ledger.activity != Activity.STARVED)
        share = heap.weight / max(1.0, total[phase])
        spent = int(ledger.ns[in_phase].sum() * share)
        error = int(ledger.ns[in_phase].sum() * np.sqrt(max(share * (1 - share), 0.0) / max(1, _count(heaps, phase))))
        found.append(_hot_line(heap, Phase(phase), spent, error, ledger, in_phase, project))
    return tuple(sorted((line for line in found if line.spent_ns > 0), key=lambda line: -line.spent_ns))


def _count(heaps: dict[tuple[int, str, int], _Heap], phase: int) -> int:
    return sum(heap.samples for key, heap in heaps.items() if key[0] == phase)


def _gather(
    samples: Labelled, chosen: NDArray[np.intp], heaps: dict[tuple[int, str, int], _Heap], total: Counter[int]
) -> None:
    for k in chosen:
        number, phase, weight = int(samples.stack[k]), int(samples.phase[k]), float(samples.weight_ns[k])
        stack = samples.stacks[number]
        total[phase] += int(weight)
        users = innermost_users(stack)
        place = stack[users] if users is not None else Place("", 0)
        heap = heaps[(phase, place.file, place.line)]
        heap.place = place
        heap.weight += weight
        heap.samples += 1
        heap.shares += weight * samples.rates[number]
        if (measured := samples.measured[number]) is not None:
            heap.measured[measured] += int(weight)
        if users is not None:
            heap.chain = tuple(p for p in stack[: users + 1] if innermost_users((p,)) is not None)
            callee, library = _callee(stack, users)
            heap.callees[callee] += int(weight)
            heap.library[library] += int(weight)
            heap.paths[_below(stack, users)] += int(weight)


def _below(stack: Stack, users: int) -> Stack:
    return tuple(place for place in stack[users + 1 :] if "unstall/" not in place.file)


def _callee(stack: Stack, users: int) -> tuple[str, str]:
    """Return the outermost library function below the user's line that is not ours, and the file of the innermost."""
    below = _below(stack, users)
    if not below:
        return "", ""
    return called(below[0]), WRITTEN if any(is_compiled(place.file) for place in below) else below[-1].file


def _hot_line(
    heap: _Heap, phase: Phase, spent: int, error: int, ledger: Ledger, in_phase: NDArray[np.bool_], project: str
) -> HotLine:
    weights: Counter[Activity] = Counter()
    whole = [a for a in _WHOLE.get(phase, ()) if (ledger.activity[in_phase] == a).any()]
    named = sum(heap.measured.values())
    for activity, weight in heap.measured.items():
        weights[activity] += weight
    rest = max(0.0, heap.weight - named)
    if whole:
        held = {a: int(ledger.ns[in_phase & (ledger.activity == a)].sum()) for a in whole}
        weights[max(held, key=lambda a: held[a])] += int(rest)
    else:
        shares = heap.shares if heap.shares.sum() else np.array([0.0, 1.0, 0.0])
        for activity, share in zip((Activity.PYTHON, Activity.COMPUTE, Activity.IO), shares / shares.sum()):
            weights[activity] += int(rest * share)
    names = list(weights)
    parts = divide(spent, np.array([float(weights[a]) for a in names])) if names else np.zeros(0, np.int64)
    callees = tuple((name, n / heap.weight) for name, n in heap.callees.most_common(5) if name)
    return HotLine(
        line_at(heap.place, project), phase, spent, tuple((a, int(p)) for a, p in zip(names, parts) if p), heap.samples,
        error,
        heap.callees.most_common(1)[0][0] if heap.callees else "", callees,
        heap.library.most_common(1)[0][0] if heap.library else "",
        tuple(line_at(place, project) for place in heap.chain),
        loops_around(heap.chain, project), _paths(heap),
    )  # fmt: skip


def _paths(heap: _Heap) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Return the functions below the line with their share, the largest first; lines of one function count together."""
    total = sum(heap.paths.values())
    shares: Counter[tuple[str, ...]] = Counter()
    for below, weight in heap.paths.items():
        shares[tuple(called(place) for place in below)] += weight
    return tuple((names, weight / total) for names, weight in shares.most_common() if total)


def worker_lines(samples: Iterable[Samples], project: str) -> tuple[WorkerLine, ...]:
    """Return the user's lines inside data workers by their share of the samples in which a batch was being made."""
    weight: Counter[Place] = Counter()
    count: Counter[Place] = Counter()
    callees: dict[Place, Counter[str]] = defaultdict(Counter)
    total = 0
    for table in samples:
        for k, ns in zip(table.stack, table.weight_ns):
            stack = table.stacks[int(k)]
            if not any(
                "torch/utils/data/_utils/fetch.py" in place.file or place.function == "_feed" for place in stack
            ):
                continue
            total += int(ns)
            users = innermost_users(stack)
            if users is not None:
                place = stack[users]
                weight[place] += int(ns)
                count[place] += 1
                callees[place][_callee(stack, users)[0]] += int(ns)
    return tuple(
        WorkerLine(line_at(place, project), ns / total, count[place], callees[place].most_common(1)[0][0])
        for place, ns in weight.most_common()
    )
