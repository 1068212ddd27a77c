"""Read machine.jsonl: load, pressure, CPU time and memory, about one line a second, more at first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import numpy as np

from unstall.model.run import Fact, Gauges


class _Process(TypedDict):
    cpu_ns: int
    rss: int
    threads: dict[str, list[int]]
    system_ns: int  # not in older recordings, as the next
    faults: int


def read(folder: Path, threads: Mapping[int, int]) -> tuple[dict[int, Gauges], dict[str, Fact]]:
    """Return the readings of each process by pid, and facts about the machine over the run.

    A line that is cut short or none of ours is left out.

    Args:
        threads: native id of the training thread by pid; the main thread's where it is not told.
    """
    lines = []
    path = folder / "machine.jsonl"
    for text in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("processes"), dict) and "at_ns" in line:
            lines.append(line)
    loads = [line["load1"] for line in lines if line.get("load1") is not None]
    facts: dict[str, Fact] = {"machine.load_first": loads[0], "machine.load_max": max(loads)} if loads else {}
    pids = {int(pid) for line in lines for pid in line.get("processes", {})}
    of_pid = {pid: _gauges(pid, str(threads.get(pid, pid)), lines) for pid in pids}
    return {pid: gauges for pid, gauges in of_pid.items() if gauges is not None}, facts


def _gauges(pid: int, trains: str, lines: list[dict[str, object]]) -> Gauges | None:
    columns: dict[str, list[int]] = {
        name: [] for name in ("at", "rss", "team", "main", "main_rq", "team_rq", "others", "some", "thr")
    }
    kernel: list[tuple[int, int]] = []
    latest: dict[str, list[int]] = {}
    team_rq = 0
    for line in lines:
        processes = line.get("processes")
        assert isinstance(processes, dict)
        process: _Process | None = processes.get(str(pid))
        if process is None:
            continue
        threads = process["threads"]  # those that ran since the line before; the others are as they were
        grown = [
            now[1] - latest[tid][1]
            for tid, now in threads.items()
            # a thread that hardly ran is no part of the team that the training thread waits for
            if tid in latest and tid != trains and now[0] - latest[tid][0] > 50_000_000
        ]
        team_rq += max([0, *grown])
        latest = {**latest, **threads}
        main = latest.get(trains, [0, 0])
        busy = sum(int(other["cpu_ns"]) for other in processes.values())
        columns["at"].append(int(str(line["at_ns"])))
        columns["rss"].append(int(process["rss"]))
        columns["team"].append(int(process["cpu_ns"]))
        columns["main"].append(int(main[0]))
        columns["main_rq"].append(int(main[1]))
        columns["team_rq"].append(team_rq)
        columns["others"].append(int(str(line.get("busy_ns") or 0)) - busy)
        columns["some"].append(int(str(line.get("cpu_some_us") or 0)))
        columns["thr"].append(1000 * int(str(line.get("throttled_us") or 0)))
        if "faults" in process and "system_ns" in process:
            kernel.append((int(process["system_ns"]), int(process["faults"])))
    if len(columns["at"]) < 2:
        return None
    at, rss, team, main_cpu, main_rq, team_rq_, others, some, throttled = (
        np.array(c, np.int64) for c in columns.values()
    )
    pressure = np.zeros(at.size)
    pressure[1:] = np.diff(some) * 1000 / np.maximum(1, np.diff(at))
    known = np.array(kernel, np.int64).T if len(kernel) == at.size else (None, None)
    return Gauges(at, rss, team, main_cpu, main_rq, team_rq_, others, pressure, throttled, *known)
