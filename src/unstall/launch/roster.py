"""Which processes came up with the probes in them, imported torch, and train.

The probes write one small JSON file a process into ``seen/``, ``torch/`` and
``trains/`` of the recording; the launcher looks there ten times a second.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

Record = dict[str, object]


class Roster:
    """The processes that have reported so far, by pid.

    Attributes:
        seen: Python processes that came up with the probes in them.
        torch: those that imported torch (not compile workers).
        trains: those that closed a step, or made a batch as a data worker.
    """

    __slots__ = ("_folder", "seen", "torch", "trains")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.seen: dict[int, Record] = {}
        self.torch: dict[int, Record] = {}
        self.trains: dict[int, Record] = {}

    def poll(self) -> None:
        """Read the files that are new."""
        for part in ("seen", "torch", "trains"):
            known: dict[int, Record] = getattr(self, part)
            try:
                with os.scandir(self._folder / part) as entries:
                    new = [entry for entry in entries if entry.name.isdigit() and int(entry.name) not in known]
            except OSError:
                continue
            for entry in new:
                record = _record(entry.path)
                if record is not None:
                    known[int(entry.name)] = record

    def trainers(self) -> set[int]:
        """Return the pids that closed a step themselves."""
        return {pid for pid, record in self.trains.items() if record.get("role") != "worker"}

    def measured(self) -> set[int]:
        """Return the pids whose CPU time and memory are worth reading."""
        return self.torch.keys() | self.trains.keys()

    def role(self, pid: int) -> str:
        """Return ``main``, ``forked`` or ``worker``."""
        for known in (self.trains, self.torch):
            role = known.get(pid, {}).get("role")
            if role == "worker":
                return "worker"
        return str(self.torch.get(pid, {}).get("role", "main"))

    def thread(self, pid: int) -> int:
        """Return the native id of the process's training thread; its main thread's where it has not said."""
        for known in (self.trains, self.torch):
            thread = known.get(pid, {}).get("thread")
            if isinstance(thread, int):
                return thread
        return pid


def _record(path: str) -> Record | None:
    """Return the JSON object in *path*, or None while it is not yet written to its end."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
