"""How often a step enters what graph breaks left: one step of the loop is counted, by the interpreter's profile hook.

The compiler goes on after a break in a function named for it, ``torch_dynamo_resume_in_FUNCTION_at_LINE``; a frame
that it gave up on runs under its own name. Counting changes nothing of what is compiled.
"""

from __future__ import annotations

import re
from collections import Counter
from types import CodeType

from unstall.probes._counted import CountedStep
from unstall.probes._recorder import Probe

RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")


class Pieces:
    """Counts the calls of one step, once, where the compiler has told of breaks."""

    def __init__(self, probe: Probe) -> None:
        self.recorder = probe.recorder
        self.broken: set[tuple[str, int]] = set()  # file and first line of frames with a break
        self.counted = CountedStep(self.recorder, self.tell)
        self.recorder.at_step.append((probe, self.counted.at_step))

    def broke(self, code: CodeType | None) -> None:
        self.counted.last_new = self.recorder.step
        if code is not None:
            self.broken.add((code.co_filename, code.co_firstlineno))

    def tell(self, steps: int, calls: Counter[CodeType]) -> None:
        resumed: Counter[str] = Counter()
        entered: Counter[str] = Counter()
        for code, times in calls.items():
            if match := RESUMED.match(code.co_name):
                resumed[f"{code.co_filename}:{match[2]}"] += times
            elif (code.co_filename, code.co_firstlineno) in self.broken:
                entered[f"{code.co_filename}:{code.co_firstlineno}"] += times
        self.recorder.fact({"pieces": {"steps": steps, "resumed": dict(resumed), "entered": dict(entered)}})
