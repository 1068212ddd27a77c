"""What each compiled region is, in the compiler's own numbers, and how often a step enters it.

The compiler keeps a record of each compilation; it is read at the end of a few steps. Entries are counted in one step
of the loop, once, by the interpreter's profile hook, which changes nothing of what is compiled.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from types import FrameType
from typing import Any

from unstall.probes._recorder import Probe

AFTER = "torch"
LOOK_AT = (2, 6, 16, 64, 256)  # steps at whose end the records are read, about 20 us each
QUIET_STEPS = 4  # without a new record before the count: what is compiled later belongs to the step by then
MOST_REGIONS = 200
_GRAPHS_IN = ("_inductor/output_code.py", "_inductor/codecache.py")  # since torch 2.6; before


def install(probe: Probe) -> None:
    Regions(probe)


class Regions:
    """Reads the compiler's records, and counts the calls of one step."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.told: set[str] = set()
        self.last_new = -1  # step at which a record was new
        self.codes: set[tuple[str, int]] = set()  # file and first line of what was compiled
        self.calls: Counter[tuple[str, int]] = Counter()
        self.graphs = 0
        self.counting_since = -1
        self.done = False
        self.recorder.at_step.append((probe, self.at_step))
        self.recorder.in_child.append(self.forget)

    def forget(self) -> None:
        if self.counting_since >= 0:
            sys.setprofile(None)
        self.counting_since = -1

    def at_step(self, step: int) -> None:
        if self.counting_since >= 0:
            self.close(step)
        elif step in LOOK_AT:
            self.look(step)
        elif self.done or self.last_new < 0 or step < self.last_new + QUIET_STEPS:
            return
        elif sys.getprofile() is None and self.recorder.mine():
            self.counting_since = step
            sys.setprofile(self.on_event)

    def look(self, step: int) -> None:
        """Tell the records that are new; the compiler keeps the last 64."""
        compiler = sys.modules.get("torch._dynamo.utils")
        records: list[Any] = getattr(compiler, "get_compilation_metrics", list)()  # since torch 2.4
        for record in records:
            identity = str(getattr(record, "compile_id", None) or "")
            operators = getattr(record, "graph_op_count", None)  # of the backward pass it is None
            if not identity or not operators or identity in self.told or len(self.told) >= MOST_REGIONS:
                continue
            self.recorder.fact({f"region:{len(self.told)}": told(identity, record)})
            self.told.add(identity)
            self.codes.add((str(record.co_filename), int(record.co_firstlineno or 0)))
            self.last_new = step

    def on_event(self, frame: FrameType, event: str, value: object) -> None:
        if event == "call":
            code = frame.f_code
            key = code.co_filename, code.co_firstlineno
            if key in self.codes:
                self.calls[key] += 1
            elif code.co_name == "__call__" and code.co_filename.endswith(_GRAPHS_IN):
                self.graphs += 1

    def close(self, step: int) -> None:
        if sys.getprofile() == self.on_event:
            sys.setprofile(None)
        steps, self.counting_since, self.done = step - self.counting_since, -1, True
        entered = {place_of(*key): calls for key, calls in self.calls.items()}
        self.recorder.fact({"entries": {"steps": steps, "entered": entered, "graphs": self.graphs}})


def told(identity: str, record: Any) -> dict[str, object]:
    """Return what the compiler counted of one compilation; what this version of torch does not count is None."""
    place = place_of(str(record.co_filename), int(record.co_firstlineno or 0))
    return {
        "id": identity,
        "frame": f"{place}:{record.co_name}",
        "operators": int(record.graph_op_count),
        "guards": getattr(record, "guard_count", None),
        "guard_us": getattr(
            record, "guard_latency_us", None
        ),  # since torch 2.8: of the first look-up, not yet in a cache
    }


def place_of(file: str, line: int) -> str:
    return f"{os.path.abspath(file)}:{line}"
