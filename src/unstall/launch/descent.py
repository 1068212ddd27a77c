"""The processes that descend from the training, so that none is left behind.

On Linux the launcher becomes the reaper of orphans (PR_SET_CHILD_SUBREAPER), so that a process whose parent has died
still descends from us.  Elsewhere orphans cannot be found.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Collection

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, prctl(2)
_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def adopt_orphans(wanted: bool) -> None:
    """Become (or cease to be) the process that orphans among our descendants are given to."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def dies_with_us() -> Callable[[], None] | None:
    """Return what the child is to call before it executes the command, so that it gets SIGTERM when we die.

    None where that is not safe: what runs between fork and exec must not wait for a lock that another thread
    holds, so it is used only while this process has one thread; and not elsewhere than on Linux.
    """
    if sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1:
        return None
    prctl = ctypes.CDLL(None).prctl  # loaded before the fork
    number = int(signal.SIGTERM)

    def ask() -> None:
        prctl(_SET_PARENT_DEATH_SIGNAL, number, 0, 0, 0)

    return ask


def descendants(of: int, besides: Collection[int] = ()) -> list[int]:
    """Return the living descendants of process *of*, without those in *besides* and what descends from them.

    Cost: reads one file of each process of the machine.
    """
    children: dict[int, list[int]] = {}
    for name in _processes():
        state_parent = _state_and_parent(name)
        if state_parent is not None and state_parent[0] != "Z":
            children.setdefault(state_parent[1], []).append(int(name))
    found: list[int] = []
    waiting = [of]
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), []) if pid not in besides]
        found += new
        waiting += new
    return found


def reap_orphans(ours: Collection[int]) -> None:
    """Take the exit status of orphans that were given to us; *ours* are children that others wait for."""
    for pid in _children():
        if pid not in ours:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def left_group(pid: int) -> bool:
    """Return whether *pid* has made a session of its own, as a process does that daemonises on purpose."""
    try:
        return os.getsid(pid) != os.getsid(0)
    except (ProcessLookupError, PermissionError):
        return False


def send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _processes() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _children() -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:
                found += [int(pid) for pid in file.read().split()]
    except OSError:
        pass
    return found


def _state_and_parent(pid: str) -> tuple[str, int] | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], int(fields[1])
    except (OSError, IndexError, ValueError):
        return None
