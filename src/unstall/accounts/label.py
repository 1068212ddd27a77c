"""Put each stack sample in a phase, on a user's line and under an activity.

A sample says where the thread was; whether it held the interpreter lock and whether it was on a CPU is known from two
more samplers, as a rate for each place. Time with the lock is PYTHON, on a CPU without it COMPUTE, off the CPU it waited.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.code import code_of, innermost_users, is_users
from unstall.model.run import Place, Rank, Rows, Samples
from unstall.model.wire import PHASES, Activity, Phase

Stack = tuple[Place, ...]
OFFSETS_NS = range(
    -20_000_000, 80_000_001, 4_000_000
)  # what the sampler's clock may be off by: it starts within this of its spawn
JITTER_NS = 20_000_000  # what a single sample's time may be off by on a busy machine
MIXED = 0.25  # of the places are neither always nor never on a CPU, or holding the lock
MISSED = 0.02  # of the samples show the line before or after, or come late
DISPERSION = 1.4  # the whole time is itself counted, at 25 samples a second to 10
_SHARES = np.linspace(MISSED, 1 - MISSED, 41)
_TAKEN_FOR = np.concatenate([[0.0], _SHARES[1:-1], [1.0]])

# (part of the file, function or None): the innermost of these frames tells the phase, whatever the clock says
_PHASES = (
    ("torch/autograd/graph.py", "_engine_run_backward", Phase.BACKWARD),
    ("unstall/probes/backward.py", "run_backward", Phase.BACKWARD),
    ("torch/optim/lr_scheduler.py", None, None),
    ("torch/optim/optimizer.py", "profile_hook_step", Phase.OPTIMIZER),
    ("torch/optim/optimizer.py", "wrapper", Phase.OPTIMIZER),
    ("torch/optim/optimizer.py", "zero_grad", Phase.OPTIMIZER),
    ("torch/serialization.py", "save", Phase.CHECKPOINT),
    ("safetensors/torch.py", "save_file", Phase.CHECKPOINT),
    ("torch/distributed/checkpoint/state_dict_saver.py", None, Phase.CHECKPOINT),
    ("torch/utils/data/dataloader.py", "__next__", Phase.FETCH),
    # a stack that was read while it changed begins anywhere
    ("torch/utils/data/_utils/fetch.py", "fetch", Phase.FETCH),
    ("unstall/probes/fetching.py", "fetch", Phase.FETCH),
)
TELLING = (Phase.BACKWARD, Phase.OPTIMIZER)  # phases whose samples all show a frame of the list above
WITHIN_OTHERS = (Phase.FETCH, Phase.FORWARD)
# frames whose time a probe has measured already: it is not for the samples to name
_MEASURED = (
    ("torch/_dynamo/convert_frame.py", Activity.COMPILE),
    ("torch/distributed/distributed_c10d.py", Activity.COLLECTIVE),
    ("torch/serialization.py", Activity.IO),
    ("safetensors/torch.py", Activity.IO),
    ("torch/distributed/checkpoint/state_dict_saver.py", Activity.IO),
)
_OURS = re.compile(r"unstall[/\\](probes[/\\]\w+|model[/\\]wire)\.py$")
# what a probe puts in a function's place, and calls that function
_STAND_INS = (
    "observed", "run_backward", "__call__", "learn", "__iter__", "fetch", "dumps", "timed_collate", "remembered", "compile",
    "trace_structured", "exec_module", "noted", "call",
)  # fmt: skip
_COLLECTS = re.compile(r"\bcollect\(")
# calls whose time in the kernel is on a CPU, without the lock, and still no computing: a page cache is copied to
_READS_OR_WRITES = re.compile(
    r"\b(write|writelines|flush|fsync|fdatasync|read|readline|readlines|readinto|pread|pwrite|recv|recv_into|send|sendall|urlopen)\("
)


@dataclass(frozen=True, slots=True)
class Labelled:
    """Samples of the training thread with their labels.

    Attributes:
        at_ns, weight_ns: int64 (K,).
        phase: uint8 (K,); stack: int32 (K,), index into *stacks*.
        measured: the activity that a probe measured where the sample lies, by stack, or None.
        rates: by stack, shares of (PYTHON, COMPUTE, waiting).
        in_torch: by stack, whether the innermost frame is torch's: it waits for its own team of threads.
    """

    at_ns: NDArray[np.int64]
    weight_ns: NDArray[np.int64]
    phase: NDArray[np.uint8]
    stack: NDArray[np.int32]
    stacks: tuple[Stack, ...]
    measured: tuple[Activity | None, ...]
    rates: NDArray[np.float64]
    in_torch: NDArray[np.bool_]


def label(rank: Rank, teaches: bool = False) -> Labelled | None:
    """Return the labelled samples of *rank*, or None where it has none.

    Args:
        teaches: whether its forwards without gradients are part of the step.
    """
    samples, rows = rank.samples, rank.rows
    if samples is None or rows is None or not samples.at_ns.size:
        return None
    producers = _producers(rank)
    told = [_phase_told(stack, producers) for stack in samples.stacks]
    known = np.array([-1 if phase is None else int(phase) for phase in told])[samples.stack]
    begins, ends, phases = rows.mark_start_ns, rows.mark_end_ns, rows.mark_phase
    offset = _offset(samples.at_ns, known, begins, phases) if begins.size else 0
    at = samples.at_ns + offset
    where = np.clip(np.searchsorted(begins, at, side="right") - 1, 0, max(0, begins.size - 1))
    where = _silent_neighbour(where, at, known, begins, ends, phases)
    where = _usual_neighbour(where, at, known, rows, samples)
    phase = phases[where] if begins.size else np.full(at.size, Phase.BETWEEN, np.uint8)
    covered = (at < ends[where]) & (at >= begins[where]) if begins.size else np.zeros(at.size, np.bool_)
    # an evaluation has fetches and forwards of its own, and so may a start-up
    known = np.where(np.isin(known, WITHIN_OTHERS) & np.isin(phase, (Phase.EVALUATE, Phase.STARTUP)), -1, known)
    phase = np.where(known >= 0, known, phase).astype(np.uint8)
    if teaches:
        phase[phase == Phase.EVALUATE] = Phase.FORWARD
    covered |= known >= 0
    ours = np.array([_is_recorders(stack) for stack in samples.stacks])[samples.stack]
    keep = covered & ~ours & (at >= rank.seen_start_ns) & (at <= rank.seen_end_ns)
    measured = tuple(_measured(stack) for stack in samples.stacks)
    rates = _rates(samples)
    in_torch = np.array(["/torch/" in stack[-1].file for stack in samples.stacks])
    return Labelled(
        at[keep], samples.weight_ns[keep], phase[keep], samples.stack[keep], samples.stacks, measured, rates, in_torch
    )  # fmt: skip


def _silent_neighbour(
    where: NDArray[np.intp],
    at: NDArray[np.int64],
    known: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    phases: NDArray[np.uint8],
) -> NDArray[np.intp]:
    """Return *where*, with samples moved out of phases that always show in the stack and did not.

    A sample is some milliseconds off on a busy machine; it goes to the nearest mark of a phase that need not show.
    """
    telling = (*TELLING, Phase.FETCH) if (known == Phase.FETCH).any() else TELLING
    quiet = np.flatnonzero(~np.isin(phases, telling))
    if not quiet.size:
        return where
    wrong = np.flatnonzero((known < 0) & np.isin(phases[where], telling))
    right = np.clip(np.searchsorted(quiet, where[wrong]), 0, quiet.size - 1)
    left = np.clip(right - 1, 0, None)
    before, after = at[wrong] - ends[quiet[left]], begins[quiet[right]] - at[wrong]
    nearest = np.where(np.abs(before) <= np.abs(after), quiet[left], quiet[right])
    moved = where.copy()
    moved[wrong] = nearest
    return moved


def _usual_neighbour(
    where: NDArray[np.intp], at: NDArray[np.int64], known: NDArray[np.int64], rows: Rows, samples: Samples
) -> NDArray[np.intp]:
    """Return *where*, with samples moved to the phase that most samples of the same lines lie in, where it is near in time.

    A line of the loop runs in one phase, but a sample of it may be some milliseconds off, and lie in the phase beside.
    """
    begins, ends, phases = rows.mark_start_ns, rows.mark_end_ns, rows.mark_phase
    if not begins.size:
        return where
    numbers: dict[Stack, int] = {}
    of_stack = [numbers.setdefault(_users_chain(stack), len(numbers)) for stack in samples.stacks]
    chain = np.array(of_stack, np.int64)[samples.stack]
    weight = np.zeros((len(numbers), PHASES))
    np.add.at(weight, (chain[known < 0], phases[where[known < 0]]), samples.weight_ns[known < 0])
    usual = weight.argmax(axis=1)[chain]
    moved = where.copy()
    for phase in np.unique(usual):
        marks = np.flatnonzero(phases == phase)
        strays = np.flatnonzero((known < 0) & (usual == phase) & (phases[where] != phase))
        if not marks.size or not strays.size:
            continue
        right = np.clip(np.searchsorted(marks, where[strays]), 0, marks.size - 1)
        left = np.clip(right - 1, 0, None)
        before, after = at[strays] - ends[marks[left]], begins[marks[right]] - at[strays]
        nearest = np.where(np.abs(before) <= np.abs(after), marks[left], marks[right])
        near = np.minimum(np.abs(before), np.abs(after)) <= JITTER_NS
        moved[strays[near]] = nearest[near]
    return moved


def _users_chain(stack: Stack) -> Stack:
    """Return the user's frames of a stack; all of them where there are none."""
    return tuple(place for place in stack if is_users(place.file)) or stack


def _producers(rank: Rank) -> frozenset[tuple[str, str]]:
    """Return (file, name) of the user's functions that make batches, which a probe stands around."""
    sites = (Place.parse(facts.text("site") or "") for facts in rank.facts.family("producer").values())
    return frozenset((place.file, place.function) for place in sites if place is not None)


def _phase_told(stack: Stack, producers: frozenset[tuple[str, str]] = frozenset()) -> Phase | None:
    """Return the phase that the innermost telling frame of *stack* is of; None where none tells."""
    for place in reversed(stack):
        for part, function, phase in _PHASES:
            if part in place.file and (function is None or _plain(place.function) == function):
                return phase
        if (place.file, _plain(place.function)) in producers:
            return Phase.FETCH
    calls_module = any("torch/nn/modules/module.py" in place.file for place in stack)
    return Phase.FORWARD if calls_module else None


def _plain(function: str) -> str:
    """Return a function's own name: since Python 3.11 samplers tell ``Class.method``."""
    return function.rpartition(".")[2]


def _is_recorders(stack: Stack) -> bool:
    """Return whether the recorder is at its own work: no line of the user's is to blame for what it calls."""
    for place in reversed(stack):
        if _OURS.search(place.file):
            return _plain(place.function) not in _STAND_INS
    return False


def _measured(stack: Stack) -> Activity | None:
    for place in reversed(stack):
        for part, activity in _MEASURED:
            if part in place.file:
                return activity
    leaf = stack[-1]
    return Activity.GC if _COLLECTS.search(code_of(leaf.file, leaf.line)) else None


def _offset(
    at: NDArray[np.int64], known: NDArray[np.int64], begins: NDArray[np.int64], phases: NDArray[np.uint8]
) -> int:
    """Return the shift of the sampler's clock under which most samples lie in the phase that their own stack tells."""
    tells = np.flatnonzero(known >= 0)[:5000]
    if tells.size < 10:
        return 0
    best, best_hits = 0, -1
    for offset in sorted(OFFSETS_NS, key=abs):
        where = np.clip(np.searchsorted(begins, at[tells] + offset, side="right") - 1, 0, begins.size - 1)
        hits = int((phases[where] == known[tells]).sum())
        if hits > best_hits:
            best, best_hits = offset, hits
    return best


def _rates(samples: Samples) -> NDArray[np.float64]:
    """Return float (stacks, 3): shares of PYTHON, COMPUTE and waiting of each stack, pooled over stacks alike."""
    total: Counter[Stack] = Counter()
    for stack, weight in zip(samples.stack, samples.weight_ns):
        total[samples.stacks[int(stack)]] += int(weight)
    if samples.gil is None or not samples.gil_hz:
        return np.tile([0.0, 0.0, 0.0], (len(samples.stacks), 1))
    pools: dict[tuple[object, ...], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    active, active_hz = samples.active, samples.active_hz or 1.0
    for counts, hz, part in ((total, 1e9, 0), (samples.gil, samples.gil_hz, 1), (active or {}, active_hz, 2)):
        for stack, count in counts.items():
            for key in _keys(stack):
                pools[key][part] += count / hz
    rates = np.zeros((len(samples.stacks), 3))
    known: dict[tuple[tuple[object, ...], ...], tuple[float, float]] = {}
    for n, stack in enumerate(samples.stacks):
        keys = tuple(reversed(list(_keys(stack))))  # from the coarsest pool to the finest
        if keys not in known:
            python, running = 0.5, 1.0
            for key in keys:
                seconds, held, ran = pools[key]
                python = _share(held * samples.gil_hz, seconds * samples.gil_hz, python)
                running = _share(ran * active_hz, seconds * active_hz, running) if active is not None else running
            known[keys] = python, max(running, python)
        python, running = known[keys]
        if _READS_OR_WRITES.search(code_of(stack[-1].file, stack[-1].line)):
            running = python
        rates[n] = python, running - python, 1 - running
    return rates


def _share(seen: float, all_of: float, before: float) -> float:
    """Return the share that *seen* counts are of a place's time, where the place's whole time would give *all_of*.

    Most places are of one kind: they compute, wait or hold the lock whenever they are seen. So the counts are weighed against
    three thoughts, always, never and any share between, and *before* is the coarser pool's share. A plain ratio of
    so few counts, cut at 1, takes a tenth of the time from a line that always computes.
    Source: posterior mean under a spike-and-slab prior, Poisson counts.
    """
    if not all_of:
        return before
    weight = np.full(_SHARES.size, MIXED / (_SHARES.size - 2))
    weight[0], weight[-1] = (1 - MIXED) * (1 - before), (1 - MIXED) * before
    expected = all_of * _SHARES
    likelihood = (seen * np.log(expected) - expected) / DISPERSION
    posterior = weight * np.exp(likelihood - likelihood.max())
    return float(posterior @ _TAKEN_FOR / posterior.sum())


def _keys(stack: Stack) -> Iterator[tuple[object, ...]]:
    """Yield pools that a stack belongs to, the finest first: a place alike, a function alike, a kind of code alike."""
    leaf = stack[-1]
    users = innermost_users(stack)
    line = (stack[users].file, stack[users].line) if users is not None else None
    yield (line, leaf.file, leaf.function)
    yield (leaf.file, leaf.function)
    importing = leaf.function == "<module>" or leaf.file.startswith("<frozen importlib")
    calls_torch = any(
        part in leaf.file for part in ("/torch/nn/", "/torch/autograd/", "/torch/optim/", "/torch/_tensor")
    )
    yield ("importing" if importing else "torch" if calls_torch else "user" if users == len(stack) - 1 else "library",)
    yield ()
