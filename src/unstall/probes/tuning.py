"""What Inductor's search for the fastest matrix kernel takes, and what it finds: each operator is timed in several ways.

Only what happens while a graph is compiled is wrapped. Triton's own search, which runs when a kernel is first called on a
GPU, is not seen.
"""

from __future__ import annotations

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

    def watch(self, module: Any) -> None:
        with self.probe.guard():
            kind = module.AlgorithmSelectorCache
            kind.__call__ = around(self.probe, kind.__call__, self.look, lambda _: None)
            # a static method; called after a search, and where one was found in a cache only for who debugs
            kind.log_results = staticmethod(around(self.probe, kind.log_results, self.end, lambda _: None))

    def look(self, cache: Any, name: str, choices: object, input_nodes: Sequence[Any], *_: Any, **__: Any) -> None:
        """Count an operator of a graph; many may share one search."""
        operator = operator_of(name, input_nodes)
        self.uses[operator] += 1
        if operator in self.searches:
            self.recorder.fact({f"tuned_uses:{self.searches[operator]}": {"uses": self.uses[operator]}})

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
        self.recorder.fact(
            {
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
        )


def operator_of(name: str, input_nodes: Sequence[Any]) -> str:
    """Return the operator and the sizes of its inputs, as ``bmm [4, 32, 64] [4, 64, 64]``, with the strides of each."""
    return " ".join([name, *(f"{list(map(str, n.get_size()))}{list(map(str, n.get_stride()))}" for n in input_nodes)])
