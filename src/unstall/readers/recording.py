"""Read a recording folder and join its processes to one Run on one clock."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.model import wire
from unstall.model.errors import NotARecording, NothingRecorded
from unstall.model.events import Events
from unstall.model.run import Coverage, Fact, Facts, Fetches, Place, Rank, Run, Samples, Sensor
from unstall.readers import machine, stacks, windows
from unstall.readers._looks import looks
from unstall.readers.wire import Process
from unstall.readers.wire import read as read_wire

PROBE_OF = {
    Sensor.STEPS: "optimizers",
    Sensor.LOADERS: "loaders",
    Sensor.WORKERS: "fetching",
    Sensor.RANDOMNESS: "fetching",
    Sensor.COMPILER: "compiling",
    Sensor.EXTENSIONS: "extending",
    Sensor.GARBAGE: "garbage",
    Sensor.SAVES: "saving",
    Sensor.COLLECTIVES: "collectives",
    Sensor.SETTINGS: "settings",
}
_LOST = re.compile(r"lost-(\d{1,9})-(\d{1,4})")  # the pid, and the error's number


_NO_WINDOW = "the first window of the profiler opens at step 48, where a device is used"


@dataclass(frozen=True)
class Ended:
    """How the command began and ended, from recording.json.

    Attributes:
        child: pid of the process that the launcher started; exits: when other processes were seen to end, by pid.
    """

    command: tuple[str, ...]
    cwd: str
    child: int
    spawn_ns: int
    reap_ns: int
    exit_code: int
    exits: Mapping[int, int]
    refused: str
    facts: Mapping[str, Fact]
    warmup: int | None = None


def is_recording(path: Path) -> bool:
    """Return whether *path* is a folder that `unstall run` records to, be the recording whole or not."""
    return path.is_dir() and (
        (path / "recording.json").exists() or (path / "seen").is_dir() or any(path.glob("*.wire"))
    )


def read_ended(folder: Path) -> Ended:
    """Return what the launcher wrote of the command.

    Raises:
        NotARecording: When *folder* holds no recording, or one of a newer format.
    """
    try:
        about = json.loads((folder / "recording.json").read_text())
    except (FileNotFoundError, NotADirectoryError):
        what = (
            "it is a file" if folder.is_file() else "it has no recording.json" if folder.exists() else "there is none"
        )
        raise NotARecording(
            f"{folder} is not a recording: {what}.\nGive the folder that `unstall run` named at its end."
        ) from None
    except (ValueError, OSError) as error:
        raise NotARecording(f"{folder / 'recording.json'} cannot be read: {error}.\nRecord again.") from None
    made_in = about.get("format") if isinstance(about, dict) else None
    if not isinstance(made_in, int):
        raise NotARecording(
            f"{folder / 'recording.json'} was not written by unstall: it names no format.\n"
            "Give the folder that `unstall run` named at its end."
        )
    if not wire.EARLIEST <= made_in <= wire.FORMAT:
        raise NotARecording(
            f"{folder}: recorded in format {made_in}, this version reads formats {wire.EARLIEST} to {wire.FORMAT}.\n"
            "Read it with the version of unstall that recorded it, or a newer one."
        )
    try:
        return _ended(about)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NotARecording(
            f"{folder / 'recording.json'} tells of no command that was started.\nRecord again."
        ) from None


def _ended(about: dict[str, Any]) -> Ended:
    return Ended(
        tuple(about.get("command", ())), about.get("cwd", ""), int(about.get("pid") or 0), int(about["spawn_ns"]),
        int(about.get("reap_ns") or about["spawn_ns"]), int(about.get("exit_code") or 0),
        {int(pid): int(at) for pid, at in (about.get("rank_exits") or {}).items()},
        about.get("refused") or "", about.get("facts") or {}, about.get("warmup"),
    )  # fmt: skip


def read(folder: Path) -> Run:
    """Return the run that *folder* holds.

    Raises:
        NotARecording: When the folder or a file of it cannot be read.
        NothingRecorded: When no process in it trained; the message says how far each came.
    """
    ended = read_ended(folder)
    processes = [process for path in sorted(folder.glob("*.wire")) if (process := read_wire(path)).hello]
    trainers = [process for process in processes if process.steps]
    if not trainers:
        raise NothingRecorded(_why_nothing(folder, processes))
    trainers = _one_job(trainers)
    threads = {process.pid: process.thread for process in trainers}
    sampled, workers_sampled = stacks.read(folder, threads)
    gauges, machine_facts = machine.read(folder, threads)
    ranks = []
    for process in trainers:
        workers = _workers_of(process, processes)
        rank = _rank(process, workers, ended, folder)
        trace, of_device = windows.read(folder, process.pid)
        ranks.append(
            replace(
                rank,
                samples=sampled.get(process.pid) or _own_samples(process),
                worker_samples=tuple(workers_sampled[w.pid] for w in workers if w.pid in workers_sampled),
                gauges=gauges.get(process.pid),
                trace=trace,
                facts=Facts({**rank.facts.known, **of_device}),
            )
        )
    ranks.sort(key=lambda rank: rank.rank)
    world = max((int(rank.facts.number("world_size") or 1) for rank in ranks), default=1)
    missing = tuple(sorted(set(range(world)) - {rank.rank for rank in ranks})) if world > 1 else ()
    facts: dict[str, Fact] = {
        **ended.facts,
        **machine_facts,
        "exit_code": ended.exit_code,
        "command": list(ended.command),
    }
    facts["warmup"] = ended.warmup
    facts |= {name: str(trainers[0].hello.get(name) or "") for name in ("python", "torch")}
    facts["others"] = len([p for p in processes if p.steps]) - len(ranks)
    facts["stopped"] = next((p.stopped for p in trainers if p.stopped), "")
    lost = _lost(folder)
    facts["cut"] = [p.path.name for p in trainers if p.cut and p.pid not in lost]
    facts["ended"] = all(p.ended_ns is not None or p.pid in lost for p in trainers)
    facts["lost"] = next((lost[p.pid] for p in trainers if p.pid in lost), "")
    facts["lost_ranks"] = [*sorted(_rank_of(p) for p in trainers if p.pid in lost)]
    facts["cut_off_ranks"] = [*sorted(_rank_of(p) for p in trainers if p.ended_ns is None and p.pid not in lost)]
    facts["second_thread"] = any(bool(p.facts.get("second_thread")) for p in trainers)
    return Run(tuple(ranks), Facts(facts), _coverage(ranks, trainers, ended), missing, ended.cwd)


def _lost(folder: Path) -> dict[int, str]:
    """Return why processes could not write to the recording any more, by pid."""
    marks = [_LOST.fullmatch(path.name) for path in folder.glob("lost-*")]
    return {int(mark[1]): os.strerror(int(mark[2])) for mark in marks if mark}


def _one_job(trainers: list[Process]) -> list[Process]:
    """Return the processes of one job: those of one process group, or the one that trained longest."""
    grouped = [p for p in trainers if int(str(p.facts.get("world_size") or p.hello.get("world_size") or 1)) > 1]
    if grouped:
        by_rank: dict[int, Process] = {}
        # A later group of the same command (a script that trains twice) does not mix with the first.
        for process in grouped:
            by_rank.setdefault(_rank_of(process), process)
        return list(by_rank.values())
    return [max(trainers, key=lambda p: p.rows.spent_NPA.sum() if p.rows is not None else 0)]


def _workers_of(process: Process, processes: list[Process]) -> list[Process]:
    """Return its data workers: its children, and those that it named (a fork server starts them for it)."""
    named = {
        int(str(pid))
        for name, pids in process.facts.items()
        if name.startswith("workers_of:") and isinstance(pids, list)
        for pid in pids[1:]
    }
    workers = [p for p in processes if p.hello.get("role") == "worker"]
    return [p for p in workers if p.hello.get("ppid") == process.pid or p.pid in named]


def _rank_of(process: Process) -> int:
    known = process.facts.get("rank", process.hello.get("rank"))
    return int(str(known)) if known is not None else 0


def _rank(process: Process, workers: list[Process], ended: Ended, folder: Path) -> Rank:
    rows = process.rows
    assert rows is not None
    seen_start, seen_end = int(rows.start_ns[0]), int(rows.end_ns[-1])
    if process.pid == ended.child:
        start, end = ended.spawn_ns, ended.reap_ns
    else:
        start, end = (
            _process_start(process, folder, seen_start),
            ended.exits.get(process.pid, process.ended_ns or seen_end),
        )
    return Rank(
        _rank_of(process), process.pid, min(start, seen_start), max(end, seen_end), seen_start, seen_end,
        _events(process, workers), rows, fetches=_fetches(process, workers), facts=_facts(process, workers),
    )  # fmt: skip


def _process_start(process: Process, folder: Path, otherwise: int) -> int:
    """Return when the process began, from the kernel's clock ticks; *otherwise* for a fork: it begins where it is seen."""
    if process.hello.get("role") != "main" or int(str(process.hello["origin_ns"])) != otherwise:
        return otherwise
    try:
        seen = json.loads((folder / "seen" / str(process.pid)).read_text())
    except (OSError, ValueError):
        return otherwise
    began = (
        int(seen["start_ticks"]) * 10_000_000
    )  # USER_HZ is 100 on Linux; boot and monotonic clock differ by suspended time
    return began if 0 <= otherwise - began < 10_000_000_000 else otherwise


def _facts(process: Process, workers: list[Process]) -> Facts:
    known = {"python": process.hello.get("python"), "torch": process.hello.get("torch"), **process.facts}
    threads = [worker.facts.get("threads") for worker in workers if worker.facts.get("threads")]
    if threads:
        known["worker.threads"] = max(threads, key=lambda n: int(str(n)))
        known["worker.threads_set_at"] = next((str(at) for w in workers if (at := w.facts.get("threads_set_at"))), "")
    return Facts({**known, **looks(process, workers)})


def _events(process: Process, workers: list[Process]) -> Events:
    """Return the training thread's spans on lane 0 and each worker's fetches on a lane of its own."""
    spans, texts = process.spans, process.texts
    parts: list[tuple[NDArray[np.int64], ...]] = [
        (
            spans["start"].astype(np.int64), spans["end"].astype(np.int64), spans["kind"].astype(np.int64),
            np.zeros(spans.size, np.int64), spans["name"].astype(np.int64) + 1, spans["step"].astype(np.int64),
            spans["value"].astype(np.int64),
        )
    ]  # fmt: skip
    lanes = ["main"]
    for worker in workers:
        f = worker.fetches
        one = np.ones(f.size, np.int64)
        parts.append(
            (f["start"].astype(np.int64), (f["start"] + f["wall"]).astype(np.int64), one * wire.Kind.WORKER_FETCH,
             one * len(lanes),
             one * 0, one * -1, f["batch"].astype(np.int64))
        )  # fmt: skip
        lanes.append(f"worker {worker.pid}")
    start, end, kind, lane, name, step, value = (np.concatenate(column) for column in zip(*parts))
    order = np.lexsort((-end, start))
    return Events(
        start[order], np.maximum(end, start)[order], kind[order].astype(np.uint8), lane[order].astype(np.int32),
        name[order].astype(np.int32), step[order].astype(np.int32), value[order], tuple(lanes), ("", *texts),
    )  # fmt: skip


def _fetches(process: Process, workers: list[Process]) -> Fetches | None:
    loader_of: dict[int, int] = {}
    for name, numbers in process.facts.items():
        if name.startswith("workers_of:") and isinstance(numbers, list):
            for worker in numbers[1:]:
                loader_of[int(str(worker))] = int(str(numbers[0]))
    tables = [(process.pid, process.fetches, None)] + [(w.pid, w.fetches, loader_of.get(w.pid, -1)) for w in workers]
    tables = [table for table in tables if table[1].size]
    if not tables:
        return None

    def column(name: str) -> NDArray[np.int64]:
        return np.concatenate([fetches[name].astype(np.int64) for _, fetches, _ in tables])

    pid = np.concatenate([np.full(fetches.size, pid, np.int64) for pid, fetches, _ in tables])
    loader = np.concatenate(
        [
            np.full(f.size, number, np.int64) if number is not None else f["loader"].astype(np.int64)
            for _, f, number in tables
        ]
    )
    return Fetches(
        pid, column("worker"), loader, column("batch"), column("start"), column("wall"), column("cpu"),
        column("run_queue"),
        column("team_cpu"), column("getitem"), column("collate"), column("pickle"), column("nbytes"),
        column("samples"), column("flags"),
    )  # fmt: skip


def _own_samples(process: Process) -> Samples | None:
    """Return the samples of the in-process thread, taken where no sampler may attach from outside."""
    table = process.stacks
    if not table.size:
        return None
    numbers, stack = np.unique(table["stack"], return_inverse=True)
    places = tuple(
        tuple(place for text in process.texts[int(n)].split("\n") if (place := Place.parse(text))) for n in numbers
    )
    period = float(np.median(table["weight"])) if table.size else 1e9
    return Samples(
        table["at"].astype(np.int64),
        table["weight"].astype(np.int64),
        stack.astype(np.int32),
        places,
        1e9 / max(period, 1.0),
    )


def _coverage(ranks: list[Rank], trainers: list[Process], ended: Ended) -> Coverage:
    trouble = tuple(dict.fromkeys(message for process in trainers for message in process.trouble))
    off = {message.partition(":")[0]: message for message in trouble}
    missing: dict[Sensor, str] = {}
    if any(rank.trace is None or not rank.trace.work.start_ns.size for rank in ranks):
        missing[Sensor.DEVICE] = "none here" if not ended.facts.get("machine.gpus") else _NO_WINDOW
    for sensor, probe in PROBE_OF.items():
        if probe in off:
            missing[sensor] = f"its probe switched itself off ({off[probe]})"
    if all(rank.samples is None for rank in ranks):
        why = ended.refused or "the run was too short for the sampler to attach"
        missing[Sensor.SAMPLES] = missing[Sensor.GIL] = why
    elif all(rank.samples is None or rank.samples.gil is None for rank in ranks):
        missing[Sensor.GIL] = ended.refused or "the outside sampler could not attach"
    if all(rank.gauges is None for rank in ranks):
        missing[Sensor.MACHINE] = missing[Sensor.MEMORY] = missing[Sensor.RUN_QUEUE] = (
            "the run was too short for a reading"
        )
    return Coverage(frozenset(Sensor) - frozenset(missing), missing, trouble)


def _why_nothing(folder: Path, processes: list[Process]) -> str:
    seen = list((folder / "seen").glob("*"))
    if not seen:
        return (
            "no Python process of the command reported back, so nothing was recorded.\n"
            "It was not started as Python, or as `python -I`, `-E` or `-S`, which ignore PYTHONPATH.\n"
            "Start it without these options, or name the Python script itself: unstall run train.py"
        )
    if not processes:
        return (
            f"{_processes(len(seen), 'Python ')} ran ({_interpreters(seen)}), none imported torch, "
            "so there was no training to record.\n"
            "Check that the command trains, and that its Python environment has torch; another Python is named so:\n"
            "unstall run /path/to/python train.py"
        )
    return (
        f"{_processes(len(processes))} imported torch, "
        "none made a training step (an optimizer step or a backward pass).\n"
        "The time cannot be divided into steps.\n"
        "Check that the command reaches its training loop; an error before it is shown above."
    )


def _processes(count: int, kind: str = "") -> str:
    return f"{count} {kind}process{'es' if count > 1 else ''}"


def _interpreters(seen: list[Path]) -> str:
    """Return the Pythons that ran, home folder shortened."""
    found: set[str] = set()
    for path in seen:
        try:
            found.add(str(json.loads(path.read_text()).get("executable") or "python"))
        except (OSError, ValueError, AttributeError):  # killed as it wrote
            continue
    home = os.path.expanduser("~")
    return ", ".join("~" + one[len(home) :] if one.startswith(home + os.sep) else one for one in sorted(found))
