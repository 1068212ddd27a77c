"""When to stop a training that is recorded for so many steps or seconds only: at the same step on every rank."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

AHEAD = 2  # steps between a rank's decision to stop and the stop: no other rank is further ahead


class Limits:
    """The limits of config.json; *any* tells whether there is one.

    Steps are counted alike on every rank, so ``step_limit`` needs no word between them. For ``seconds`` rank 0
    decides, and writes the step to stop at into the recording; the others look for it at the end of each step.
    """

    __slots__ = ("_file", "_seconds", "_start_ns", "_steps", "_stop_at", "any")

    def __init__(self, config: Mapping[str, object], recording: str, start_ns: int) -> None:
        steps, seconds = config.get("step_limit"), config.get("seconds")
        self._steps = steps if isinstance(steps, int) else None
        self._seconds = float(seconds) if isinstance(seconds, (int, float)) else None
        self._start_ns = start_ns
        self.any = self._steps is not None or self._seconds is not None
        self._file = os.path.join(recording, "stop-at")
        self._stop_at: int | None = None

    def reached(self, step: int) -> str:
        """Return why to stop at the end of *step*, or "" to go on."""
        if self._steps is not None and step >= self._steps:
            return f"{self._steps} steps were asked for, warm-up included"
        if self._seconds is None:
            return ""
        if self._stop_at is None:
            self._stop_at = self._decide(step) if rank() == 0 else self._look()
        return f"{self._seconds:g} s were asked for" if self._stop_at is not None and step >= self._stop_at else ""

    def _decide(self, step: int) -> int | None:
        if time.monotonic_ns() - self._start_ns < self._seconds_ns():
            return None
        if _world() == 1:
            return step
        with open(self._file + ".tmp", "w", encoding="ascii") as file:
            file.write(str(step + AHEAD))
        os.replace(self._file + ".tmp", self._file)
        return step + AHEAD

    def _look(self) -> int | None:
        try:
            with open(self._file, encoding="ascii") as file:
                return int(file.read())
        except FileNotFoundError:
            return None

    def _seconds_ns(self) -> int:
        return int((self._seconds or 0.0) * 1e9)


def rank() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return int(os.environ.get("RANK") or 0)


def _world() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return int(os.environ.get("WORLD_SIZE") or 1)
