"""Which graphs of past backward passes are still alive, and whether a backward pass goes through an earlier one again.

The root of a graph is marked through its node's own metadata: a token there dies with the node, and nothing keeps the
graph alive. A few times all nodes of a graph are numbered in the same way, to know them when they are met again.
"""

from __future__ import annotations

import weakref
from typing import Any

from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch"
MOST_MARKS = 512  # one at each pass that this probe hears of (`backward.TELL_UNTIL`)
# Backward passes from look to look, at first and later; a look costs about 0.1 us a mark.
LOOK_EVERY, AT_FIRST, LATER = 32, 256, 128
RECENT = 8  # the last graphs may be alive for good reasons: a variable that is not overwritten yet
WALK_AT = (6, 12, 24, 48, 96)  # backward passes at which the graph is walked to see whether it holds an earlier one
MOST_NODES = 3000  # walked; about 1 us each
ROOT, WALKED = "unstall.root", "unstall.walked"
LEAVES = "AccumulateGrad"  # the one kind of node that lives as long as its parameter


def install(probe: Probe) -> None:
    probe.recorder.at_backward.append((probe, Graphs(probe).before))


class Token:
    """Lives as long as the node that holds it."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number


class Graphs:
    """Marks the roots of backward passes and counts which marks are still alive."""

    def __init__(self, probe: Probe) -> None:
        self.recorder = probe.recorder
        self.passes = 0
        self.marks: list[weakref.ref[Token]] = []
        self.numbers: list[int] = []
        self.told: dict[str, object] = {}

    def before(
        self, passes: int, outputs: Any, grads: object = None, keep: object = False, *args: object, **kwargs: object
    ) -> None:
        self.passes = passes
        if not self.told or self.passes == RECENT:  # the first may be a trial of something else
            self.tell({"graphs.backward_by": call_site(3)[0], "graphs.kept_by_request": bool(keep)})
        root = next((node for tensor in outputs if (node := getattr(tensor, "grad_fn", None)) is not None), None)
        if root is None:
            return
        if self.passes in WALK_AT:
            self.walk(root)
        self.mark(root)
        if self.passes % (LOOK_EVERY if self.passes <= AT_FIRST else LATER) == 0 or self.passes in WALK_AT:
            self.look()

    def mark(self, root: Any) -> None:
        if len(self.marks) < MOST_MARKS and ROOT not in root.metadata:
            token = root.metadata[ROOT] = Token(self.passes)
            self.marks.append(weakref.ref(token))
            self.numbers.append(self.passes)

    def look(self) -> None:
        old = [mark for mark, number in zip(self.marks, self.numbers, strict=True) if number <= self.passes - RECENT]
        self.tell({"graphs.marked": len(old), "graphs.alive": sum(mark() is not None for mark in old)})

    def walk(self, root: Any) -> None:
        """Tell how many nodes the graph of *root* has, and how many of them an earlier walk has met."""
        seen, pending, met = {root}, [root], 0
        while pending and len(seen) < MOST_NODES:
            node = pending.pop()
            if WALKED in node.metadata:
                met += 1
            else:
                node.metadata[WALKED] = self.passes
            for below, _ in node.next_functions:
                if below is not None and below not in seen and LEAVES not in below.name():
                    seen.add(below)
                    pending.append(below)
        self.tell({f"graphs.walk:{self.passes}": {"nodes": len(seen), "met": met}})

    def tell(self, facts: dict[str, object]) -> None:
        new = {name: value for name, value in facts.items() if self.told.get(name) != value}
        if new:
            self.told.update(new)
            self.recorder.fact(new)
