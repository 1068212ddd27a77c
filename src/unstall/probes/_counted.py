"""The calls of one step of the loop, counted once by the interpreter's profile hook; it changes nothing of what is compiled."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType

from unstall.probes._recorder import Recorder

QUIET_STEPS = 4  # without news before the count: what comes later belongs to the step, not to its first time


class CountedStep:
    """Counts the calls of one step, once, when nothing new was seen for a few steps.

    Attributes:
        last_new: step at which something new was seen; -1 until then, and nothing is counted.
    """

    def __init__(self, recorder: Recorder, told: Callable[[int, Counter[CodeType]], None]) -> None:
        """Args: told: hears of the steps counted over, which is one unless the hook of ends came late, and of the calls."""
        self.recorder, self.told = recorder, told
        self.last_new = -1
        self.calls: Counter[CodeType] = Counter()
        self.since = -1  # step at whose end the count began
        self.done = False
        recorder.in_child.append(self.forget)

    @property
    def counts(self) -> bool:
        """Whether a step is being counted now."""
        return self.since >= 0

    def forget(self) -> None:
        if self.counts:
            sys.setprofile(None)
        self.since = -1

    def at_step(self, step: int) -> None:
        """Begin or end the count at the end of *step*, where that is due."""
        if self.counts:
            self._close(step)
        elif self.done or self.last_new < 0 or step < self.last_new + QUIET_STEPS:
            return
        elif sys.getprofile() is None and self.recorder.mine():
            self.since = step
            self.recorder.look_next()
            sys.setprofile(self._on_event)

    def _on_event(self, frame: FrameType, event: str, value: object) -> None:
        if event == "call":
            self.calls[frame.f_code] += 1

    def _close(self, step: int) -> None:
        if sys.getprofile() == self._on_event:
            sys.setprofile(None)
        steps, self.since, self.done = step - self.since, -1, True
        calls, self.calls = self.calls, Counter()
        self.told(steps, calls)
