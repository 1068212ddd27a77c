"""Join the traces of several ranks to one Run on one clock."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from unstall.model.errors import UnstallError
from unstall.model.run import Coverage, Fact, Facts, Rank, Run, Sensor
from unstall.model.trace import Call
from unstall.model.wire import Device
from unstall.model.words import count
from unstall.readers.kineto import read_trace

ENDINGS = (".json", ".json.gz")
SMALL = 200 << 20  # bytes of text; reading less takes less time (1 s) than starting processes does
PACKED = 15  # bytes of text in a byte of gzip, about
APART_NS = 3600 * 10**9  # ranks of one job do not start to trace an hour apart
EPOCH_NS = 10**18  # 2001; times before it do not count from 1970, so two files' clocks cannot be compared
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_ ]?(\d{1,6})(?!\d)", re.I)
_NO_DEVICE = (
    "no device activity in the trace; record again with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
)
_CUT = "the trace ends in the middle, and what the device did may stand in what is missing"
_AFTER = "it ends after the events"  # what is missing then holds no events
_NO_STEPS = "no step is named in the trace; call profiler.step() once a step"
_NO_COLLECTIVES = "no collective in the trace"
_NOT_IN_TRACES = "a profiler's trace does not hold it; `unstall run` records it"


def read(paths: Sequence[Path | str]) -> Run:
    """Return the run whose ranks' traces are in *paths*.

    Args:
        paths: files, folders (every .json and .json.gz directly in them; those that are no traces are passed over)
            and glob patterns.
    Raises:
        UnstallError: When there is no trace, a file cannot be read, two files are of one rank, or not all are of one
            job.
    """
    files, optional = _files(paths)
    ranks, passed_over = _ranks(files, optional)
    ranks = _numbered(ranks)
    _one_job(ranks)
    world = max((int(rank.facts.number("world_size") or 1) for rank in ranks), default=1)
    present = {rank.rank for rank in ranks}
    missing = tuple(sorted(set(range(world)) - present)) if world > 1 else ()
    facts: dict[str, Fact] = {
        name: value for name, value in ranks[0].facts.known.items() if not name.startswith(("trace.", "steps.", "rank"))
    }
    facts["traces"] = [rank.facts.text("trace.path") for rank in ranks]
    if passed_over:
        facts["traces.passed_over"] = list(passed_over)
    if len(ranks) > 1:
        facts["clock"] = _clock(ranks)
    return Run(tuple(ranks), Facts(facts), _coverage(ranks), missing, os.getcwd())


def _files(paths: Sequence[Path | str]) -> tuple[list[Path], set[Path]]:
    """Return the files that are meant, once each, and which of them were found in a folder."""
    files: dict[Path, Path] = {}
    found: set[Path] = set()
    for given in paths:
        try:
            inside, in_folder = _named(given)
        except OSError as error:
            raise UnstallError(f"{given} cannot be read: {error.strerror}.") from None
        found.update(inside if in_folder else ())
        for file in inside:
            files.setdefault(file.resolve(), file)
    if not files:
        raise UnstallError("no trace was given.")
    return list(files.values()), found


def _named(given: Path | str) -> tuple[list[Path], bool]:
    """Return the files that *given* names, and whether it is a folder."""
    path = Path(given)
    if path.is_dir():
        inside = sorted(file for file in path.iterdir() if file.name.endswith(ENDINGS) and file.is_file())
        if not inside:
            raise UnstallError(f"{path} holds no .json or .json.gz file.\nGive the folder that the traces are in.")
        return inside, True
    if path.exists() or not glob.has_magic(str(given)):
        return [path], False
    matching = sorted(Path(name) for name in glob.glob(str(given), recursive=True))
    if not matching:
        raise UnstallError(f"no file matches {given}.")
    return [file for file in matching if file.is_file()], False


def _ranks(files: list[Path], optional: set[Path]) -> tuple[list[Rank], tuple[str, ...]]:
    """Read all files; of those found in a folder such as are no traces are passed over, as long as one is."""
    read_ranks: list[Rank] = []
    refused: list[tuple[Path, str]] = []
    for file, outcome in zip(files, _all(files)):
        if isinstance(outcome, Rank):
            read_ranks.append(outcome)
        elif file in optional and len(files) > 1:
            refused.append((file, outcome))
        else:
            raise UnstallError(outcome)
    if not read_ranks:
        raise UnstallError("\n".join(message for _, message in refused))
    return read_ranks, tuple(file.name for file, _ in refused)


def _all(files: list[Path]) -> list[Rank | str]:
    """Read the files, large ones in processes side by side; of one that is refused the message."""
    size = sum(file.stat().st_size * (PACKED if file.suffix == ".gz" else 1) for file in files if file.exists())
    workers = min(len(files), _usable_cores())
    if workers < 2 or size < SMALL:
        return [_one(file) for file in files]
    try:
        # spawned, for a fork of a process that has threads (a progress display, a BLAS) may hang
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            return list(pool.map(_one, files))
    except (BrokenProcessPool, OSError):  # no memory or no semaphores for them: one after the other, then
        return [_one(file) for file in files]


def _one(file: Path) -> Rank | str:
    try:
        return read_trace(file)
    except UnstallError as error:
        return str(error)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _numbered(ranks: list[Rank]) -> list[Rank]:
    """Return the ranks by number: the file's own, else the one in its name, else the next that is free."""
    numbered: dict[int, Rank] = {}
    unknown: list[Rank] = []
    for rank in ranks:
        number = rank.facts.number("rank")
        if number is None and len(ranks) > 1:
            named = _RANK_IN_NAME.search(_name(rank))
            number = int(named[1]) if named else None
        if number is None:
            unknown.append(rank)
            continue
        if int(number) in numbered:
            raise UnstallError(
                f"{_path(numbered[int(number)])} and {_path(rank)} are both of rank {int(number)}.\n"
                "Give the traces of one recording: one file a rank."
            )
        numbered[int(number)] = replace(rank, rank=int(number))
    if len(unknown) > 1:
        raise UnstallError(
            f"{', '.join(map(_path, unknown))} do not say which rank they are of.\n"
            "Give one of them (a profiler that repeats writes a file each time), or name them by rank, as rank0.json."
        )
    for rank in unknown:
        free = next(number for number in range(len(ranks)) if number not in numbered)
        numbered[free] = replace(rank, rank=free)
    return [numbered[number] for number in sorted(numbered)]


def _one_job(ranks: list[Rank]) -> None:
    """Refuse ranks that cannot be of one job, with the names of two files that show it."""
    first = ranks[0]
    for other in ranks[1:]:
        here, there = (rank.facts.number("world_size") for rank in (first, other))
        if here is not None and there is not None and here != there:
            raise _mixed(first, other, f"one is of a job of {here:.0f} processes, the other of {there:.0f}")
        if not _compared(first, other):
            continue
        if abs(other.start_ns - first.start_ns) > APART_NS:
            hours = abs(other.start_ns - first.start_ns) / APART_NS
            raise _mixed(first, other, f"they begin {hours:.1f} hours apart")
    comparable = [rank for rank in ranks if rank.start_ns >= EPOCH_NS]
    if len(comparable) > 1:
        latest = max(comparable, key=lambda rank: rank.start_ns)
        earliest = min(comparable, key=lambda rank: rank.end_ns)
        if latest.start_ns >= earliest.end_ns:
            gap = (latest.start_ns - earliest.end_ns) / 1e9
            raise _mixed(earliest, latest, f"one begins {gap:.3f} s after the other has ended")


def _compared(one: Rank, other: Rank) -> bool:
    """Whether both clocks count from 1970; else either may count from anywhere."""
    if (one.start_ns >= EPOCH_NS) != (other.start_ns >= EPOCH_NS):
        raise _mixed(one, other, "their clocks differ: one counts from 1970, the other from an unknown moment")
    return one.start_ns >= EPOCH_NS


def _mixed(one: Rank, other: Rank, why: str) -> UnstallError:
    return UnstallError(
        f"{_path(one)} and {_path(other)} are not of one recording: {why}.\n"
        "Give the traces of one job, recorded at the same time; compare two jobs one by one."
    )


def _clock(ranks: list[Rank]) -> str:
    if ranks[0].start_ns < EPOCH_NS:
        return "the files' own, from an unknown moment; comparable only if the ranks ran on one host"
    return "wall clock of each rank's host; between hosts as good as their synchronisation, and not aligned further"


def _coverage(ranks: list[Rank]) -> Coverage:
    missing: dict[Sensor, str] = dict.fromkeys(Sensor, _NOT_IN_TRACES)
    observed: set[Sensor] = set()
    seen: Mapping[Sensor, tuple[bool, str]] = {
        Sensor.DEVICE: (all(_has_device(rank) for rank in ranks), _lacking(ranks)),
        Sensor.STEPS: (all(rank.facts.flag("steps.seen") for rank in ranks), _NO_STEPS),
        Sensor.COLLECTIVES: (any(_has_collectives(rank) for rank in ranks), _NO_COLLECTIVES),
    }
    for sensor, (known, why) in seen.items():
        if known:
            observed.add(sensor)
            del missing[sensor]
        else:
            missing[sensor] = why
    return Coverage(frozenset(observed), missing, tuple(said for rank in ranks for said in _trouble(rank)))


def _lacking(ranks: list[Rank]) -> str:
    without = [rank for rank in ranks if not _has_device(rank)]
    why = _CUT if any(_is_cut(rank) for rank in without) else _NO_DEVICE
    if len(without) in (0, len(ranks)):
        return why
    return f"{why} (rank {', '.join(str(rank.rank) for rank in without)})"


def _has_device(rank: Rank) -> bool:
    """Whether all that the device did was read: events stand by kind, so what is missing may be any time's."""
    return rank.trace is not None and bool(rank.trace.work.start_ns.size) and not _is_cut(rank)


def _is_cut(rank: Rank) -> bool:
    return rank.trace is not None and rank.trace.cut_at is not None and rank.facts.text("trace.trouble") != _AFTER


def _has_collectives(rank: Rank) -> bool:
    """Whether a collective was seen on the device, or a range that names one on the host (gloo has no kernels)."""
    trace = rank.trace
    if trace is None:
        return False
    if bool((trace.work.kind == Device.COLLECTIVE).any()):
        return True
    named = np.array([name.startswith(("nccl:", "gloo:", "hccl:", "c10d::")) for name in trace.names], bool)
    return bool(named[trace.calls.name[trace.calls.call != Call.FRAME]].any())


def _trouble(rank: Rank) -> list[str]:
    """Return what could not be read of a rank's trace, in words."""
    known, said = rank.facts, []
    if rank.trace is not None and rank.trace.cut_at is not None:
        why = known.text("trace.trouble") or "it ends in the middle"
        said.append(f"{_name(rank)}: {why}, at byte {rank.trace.cut_at} of its text; what came before was read")
    if odd := known.number("trace.unreadable"):
        at = known.number("trace.unreadable_at") or 0
        said.append(f"{_name(rank)}: {count(odd, 'damaged event')} passed over, the first at byte {at:.0f} of its text")
    if dropped := known.number("trace.dropped"):
        said.append(f"{_name(rank)}: {count(dropped, 'event')} with a negative or impossible time left out")
    return said


def _name(rank: Rank) -> str:
    return rank.facts.text("trace.path") or ""


def _path(rank: Rank) -> str:
    return rank.trace.path if rank.trace is not None else _name(rank)
