"""What each compiled region is, in the compiler's own numbers, and how often a step enters it.

The compiler keeps a record of each compilation; it is read at the end of a few steps. Entries are counted in one step
of the loop, once, by the interpreter's profile hook, which changes nothing of what is compiled.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from types import CodeType
from typing import Any

from unstall.probes._counted import CountedStep
from unstall.probes._recorder import Probe

AFTER = "torch"
LOOK_AT = (2, 6, 16, 64, 256)  # steps at whose end the records are read, about 20 us each
MOST_REGIONS = 200
_GRAPHS_IN = ("_inductor/output_code.py", "_inductor/codecache.py")  # since torch 2.6; before


def install(probe: Probe) -> None:
    Regions(probe)


class Regions:
    """Reads the compiler's records, and counts the calls of one step."""

    def __init__(self, probe: Probe) -> None:
        self.recorder = probe.recorder
        self.told: set[str] = set()
        self.codes: set[tuple[str, int]] = set()  # file and first line of what was compiled
        self.counted = CountedStep(self.recorder, self.tell)
        self.recorder.at_step.append((probe, self.at_step))

    def at_step(self, step: int) -> None:
        if step in LOOK_AT and not self.counted.counts:
            self.look(step)
        else:
            self.counted.at_step(step)

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
            self.counted.last_new = step

    def tell(self, steps: int, calls: Counter[CodeType]) -> None:
        entered: Counter[str] = Counter()
        graphs = 0
        for code, times in calls.items():
            key = code.co_filename, code.co_firstlineno
            if key in self.codes:
                entered[place_of(*key)] += times
            elif code.co_name == "__call__" and code.co_filename.endswith(_GRAPHS_IN):
                graphs += times
        self.recorder.fact({"entries": {"steps": steps, "entered": dict(entered), "graphs": graphs}})


def told(identity: str, record: Any) -> dict[str, object]:
    """Return what the compiler counted of one compilation; what this version of torch does not count is None."""
    place = place_of(str(record.co_filename), int(record.co_firstlineno or 0))
    return {
        "id": identity,
        "frame": f"{place}:{record.co_name}",
        "operators": int(record.graph_op_count),
        "guards": getattr(record, "guard_count", None),
        # since torch 2.8: of the first look-up, not yet in a cache
        "guard_us": getattr(record, "guard_latency_us", None),
    }


def place_of(file: str, line: int) -> str:
    return f"{os.path.abspath(file)}:{line}"
