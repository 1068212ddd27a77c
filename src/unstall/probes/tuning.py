"""What Inductor's search for the fastest matrix kernel takes, and what it finds: each operator is timed in several ways.

Only what happens while a graph is compiled is wrapped. Triton's own search, which runs when a kernel is first called on a
GPU, is not seen.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from unstall.model.wire import ACTIVITIES, Phase
from unstall.probes._around import around
from unstall.probes._recorder import Probe

AFTER = "torch"
SEARCHES = "torch._inductor.select_algorithm"
MOST_SEARCHES = 200
TEMPLATES = "Template"  # in the class of a choice that is written for the purpose; the others are calls of a library


def install(probe: Probe) -> None:
    probe.recorder.when(SEARCHES, Tuning(probe).watch)


class Tuning:
    """Hears of each operator that is looked at, and of each search when it has ended."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.searches: dict[str, int] = {}  # number by operator
        self.uses: Counter[str] = Counter()
        self.began_ns = 0  # the look that is going on
        self.ended: dict[str, object] = {}  # a search in it that was told

    def watch(self, module: Any) -> None:
        with self.probe.guard():
            kind = module.AlgorithmSelectorCache
            kind.__call__ = around(self.probe, kind.__call__, self.look, self.close)
            # a static method; called after a search, and where one was found in a cache only for who debugs
            kind.log_results = staticmethod(around(self.probe, kind.log_results, self.end, lambda _: None))

    def look(self, cache: Any, name: str, choices: object, input_nodes: Sequence[Any], *_: Any, **__: Any) -> None:
        """Count an operator of a graph; many may share one search."""
        self.began_ns, self.ended = time.monotonic_ns(), {}
        operator = operator_of(name, input_nodes)
        self.uses[operator] += 1
        if operator in self.searches:
            self.recorder.fact({f"tuned_uses:{self.searches[operator]}": {"uses": self.uses[operator]}})

    def close(self, _: None) -> None:
        """Tell of a search once more, with all that the look took: its kernels are written and compiled in it as well."""
        for name, about in self.ended.items():
            assert isinstance(about, dict)
            self.recorder.fact({name: about | {"ns": time.monotonic_ns() - self.began_ns}})
        self.ended = {}

    def end(
        self,
        name: str,
        input_nodes: Sequence[Any],
        timings: Mapping[Any, float],
        elapsed_s: float,
        precompile_s: float = 0.0,
        *_: Any,
        **__: Any,
    ) -> None:
        operator = operator_of(name, input_nodes)
        if operator in self.searches or len(self.searches) >= MOST_SEARCHES or not timings:
            return
        number = self.searches[operator] = len(self.searches)
        best = min(timings, key=timings.__getitem__)
        librarys = [ms for choice, ms in timings.items() if TEMPLATES not in type(choice).__name__]
        self.ended = {
            f"tuned:{number}": {
                "operator": operator,
                "choices": len(timings),
                "ns": round(1e9 * (elapsed_s + precompile_s)),
                "best": str(getattr(best, "name", best)),
                "best_ms": float(timings[best]),
                "usual_ms": float(librarys[0]) if librarys else None,  # what runs where nothing is searched
                "uses": self.uses[operator],
                "phase": Phase(self.recorder.accounting.here() // ACTIVITIES).name,
            }
        }
        self.recorder.fact(self.ended)


def operator_of(name: str, input_nodes: Sequence[Any]) -> str:
    """Return the operator and the sizes of its inputs, as ``bmm [4, 32, 64] [4, 64, 64]``, with the strides of each."""
    return " ".join([name, *(f"{list(map(str, n.get_size()))}{list(map(str, n.get_stride()))}" for n in input_nodes)])
