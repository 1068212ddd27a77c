"""How often a step enters what graph breaks left: one step of the loop is counted, by the interpreter's profile hook.

The compiler goes on after a break in a function named for it, ``torch_dynamo_resume_in_FUNCTION_at_LINE``; a frame
that it gave up on runs under its own name. Counting changes nothing of what is compiled.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from types import CodeType, FrameType

from unstall.probes._recorder import Probe

QUIET_STEPS = 4  # without a break before the count: what comes later belongs to the step, not to its first time
RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")


class Pieces:
    """Counts the calls of one step, once, where the compiler has told of breaks."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.last_break = -1  # step of it
        self.broken: set[tuple[str, int]] = set()  # file and first line of frames with a break
        self.calls: Counter[CodeType] = Counter()
        self.counting_since = -1
        self.done = False
        self.recorder.at_step.append((probe, self.at_step))
        self.recorder.in_child.append(self.forget)

    def broke(self, code: CodeType | None) -> None:
        self.last_break = self.recorder.step
        if code is not None:
            self.broken.add((code.co_filename, code.co_firstlineno))

    def forget(self) -> None:
        if self.counting_since >= 0:
            sys.setprofile(None)
        self.counting_since = -1

    def at_step(self, step: int) -> None:
        if self.counting_since >= 0:
            self.close(step)
        elif self.done or self.last_break < 0 or step < self.last_break + QUIET_STEPS:
            return
        elif sys.getprofile() is None and self.recorder.mine():
            self.counting_since = step
            sys.setprofile(self.on_event)

    def on_event(self, frame: FrameType, event: str, value: object) -> None:
        if event == "call":
            self.calls[frame.f_code] += 1

    def close(self, step: int) -> None:
        if sys.getprofile() == self.on_event:
            sys.setprofile(None)
        steps, self.counting_since, self.done = step - self.counting_since, -1, True
        resumed: Counter[str] = Counter()
        entered: Counter[str] = Counter()
        for code, calls in self.calls.items():
            if match := RESUMED.match(code.co_name):
                resumed[f"{code.co_filename}:{match[2]}"] += calls
            elif (code.co_filename, code.co_firstlineno) in self.broken:
                entered[f"{code.co_filename}:{code.co_firstlineno}"] += calls
        self.calls.clear()
        self.recorder.fact({"pieces": {"steps": steps, "resumed": dict(resumed), "entered": dict(entered)}})
