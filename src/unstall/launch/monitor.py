"""Read load, pressure and the CPU time of each process and thread from outside, about once a second.

Each reading is one line of machine.jsonl::

    {"at_ns", "load1", "cpu_some_us", "throttled_us", "busy_ns", "steal_ns", "tool_ns",
     "processes": {pid: {"cpu_ns", "system_ns", "faults", "rss", "threads": {tid: [cpu_ns, run_queue_ns]}}}}

Times are totals so far.  ``at_ns`` is `time.monotonic_ns`; ``tool_ns`` is the CPU time of the launcher and its
samplers; ``system_ns`` is the part of ``cpu_ns`` that was spent in the kernel, told to the tick; ``faults`` counts page
faults that read nothing from a disk; ``rss`` is in bytes.  A thread that has not run since the last line is left out of
it, and what cannot be read is null.

Lines come each half second at first, each second from half a minute to ten minutes, then each five seconds.  Measured at
one training on 2 cores: 0.4 ms CPU and 310 bytes a line, so 0.5 s CPU and 0.4 MB in the first hour, and 0.2 MB in each
one after it; more threads take more.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection
from pathlib import Path

from unstall.launch import cgroup

FIRST_NS = 200_000_000  # after the start, so that a short run has a reading
EARLY_NS = 500_000_000  # for the first EARLIEST_NS, since many a run is short
EARLIEST_NS = 30_000_000_000
EVERY_NS = 1_000_000_000
LATER_NS = 5_000_000_000  # once DENSE_NS have passed, to bound the file
DENSE_NS = 600_000_000_000
_TICK_NS = 1_000_000_000 // (os.sysconf("SC_CLK_TCK") or 100)
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Monitor:
    """Writes machine.jsonl; `tick` is called often and reads when a reading is due.

    Attributes:
        unread: what could not be read, in words, each once.
    """

    __slots__ = ("_before", "_due_ns", "_fd", "_group", "_start_ns", "unread")

    def __init__(self, folder: Path, now_ns: int) -> None:
        self._start_ns = now_ns
        self._due_ns = now_ns + FIRST_NS
        self._group = cgroup.find("cpu")
        self._before: dict[str, tuple[int, int]] = {}  # by thread, as last written
        self.unread: list[str] = []
        try:
            self._fd: int | None = os.open(folder / "machine.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            self._fd = None
            self._note(f"machine.jsonl cannot be written: {error.strerror}")

    def tick(self, now_ns: int, pids: Collection[int], tool_ns: int) -> None:
        """Write a line when one is due.  *pids* are the processes to read, *tool_ns* our own CPU time."""
        if now_ns >= self._due_ns:
            self.read(pids, tool_ns)
            past_ns = now_ns - self._start_ns
            self._due_ns = now_ns + (
                EARLY_NS if past_ns < EARLIEST_NS else EVERY_NS if past_ns < DENSE_NS else LATER_NS
            )

    def read(self, pids: Collection[int], tool_ns: int) -> None:
        """Write a line now."""
        if self._fd is None:
            return
        line = {
            "at_ns": time.monotonic_ns(),
            "load1": self._load(),
            "cpu_some_us": self._pressure(),
            "throttled_us": cgroup.throttled_us(self._group),
            **self._busy(),
            "tool_ns": tool_ns,
            "processes": {str(pid): found for pid in pids if (found := self._process(pid)) is not None},
        }
        try:
            os.write(self._fd, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            self._note(f"machine.jsonl cannot be written: {error.strerror}")
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _process(self, pid: int) -> dict[str, object] | None:
        """Return the reading of one process, or None where it has ended."""
        statm = _text(f"/proc/{pid}/statm").split()
        cpu_ns = process_cpu_ns(pid)
        if cpu_ns is None or len(statm) < 2:
            return None
        return {
            "cpu_ns": cpu_ns,
            **_kernel(pid),
            "rss": int(statm[1]) * _PAGE,
            "threads": self._threads(pid),
        }

    def _threads(self, pid: int) -> dict[str, tuple[int, int]]:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            return {}
        changed: dict[str, tuple[int, int]] = {}
        for thread in threads:
            fields = _text(f"/proc/{pid}/task/{thread}/schedstat").split()
            if len(fields) < 2:
                if os.path.exists(f"/proc/{pid}/task/{thread}/stat"):
                    self._note("the kernel keeps no run-queue times (/proc/PID/schedstat)")
                continue
            now = (int(fields[0]), int(fields[1]))
            if self._before.get(thread) != now:
                self._before[thread] = changed[thread] = now
        return changed

    def _load(self) -> float | None:
        fields = _text("/proc/loadavg").split()
        return float(fields[0]) if fields else None

    def _pressure(self) -> int | None:
        """Return how long some task of the machine has waited for a CPU, us."""
        for line in _text("/proc/pressure/cpu").splitlines():
            if line.startswith("some ") and "total=" in line:
                return int(line.rpartition("total=")[2])
        self._note("the kernel keeps no pressure of the CPUs (/proc/pressure/cpu)")
        return None

    def _busy(self) -> dict[str, int | None]:
        first, _, _ = _text("/proc/stat").partition("\n")
        ticks = [int(field) for field in first.split()[1:]]
        if len(ticks) < 8:
            self._note("the CPU time of the machine (/proc/stat)")
            return {"busy_ns": None, "steal_ns": None}
        user, nice, system, _idle, _iowait, irq, softirq, steal = ticks[:8]
        busy = user + nice + system + irq + softirq
        return {"busy_ns": busy * _TICK_NS, "steal_ns": steal * _TICK_NS}

    def _note(self, what: str) -> None:
        if what not in self.unread:
            self.unread.append(what)


def process_cpu_ns(pid: int) -> int | None:
    """Return the CPU time of all threads of a process so far, ended ones too, ns; None where it has ended.

    Source: CPU-time clock of a process, clock_getcpuclockid(3): ``~pid << 3 | CPUCLOCK_SCHED``.  The sum
    over /proc/PID/task would lose the threads that have ended; utime + stime are only told to the tick.
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except (OSError, AttributeError):
        fields = _stat(pid)
        return (int(fields[11]) + int(fields[12])) * _TICK_NS if len(fields) > 12 else None


def _kernel(pid: int) -> dict[str, int]:
    """Return the time of a process in the kernel and its page faults so far; nothing where it has ended."""
    fields = _stat(pid)
    return {"system_ns": int(fields[12]) * _TICK_NS, "faults": int(fields[7])} if len(fields) > 12 else {}


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name of the program, its state first; none where it has ended."""
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
