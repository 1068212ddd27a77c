"""The live accounting: what happens on the training thread, noted as it happens.

A note is a code and a time, ends of rows among them, and `model/exclusive.py` makes time by cell of them. That is left
to the reader where it can be (`take`): between two steps the caches are the tensors', where a call of Python code costs
2 us and not the 0.1 us of a tight loop.

A collection of garbage may begin wherever Python allocates, and from 3.12 on after any call, the clock's too. It is
noted whole, when it has ended, and a time that was read before it and noted after it is not taken for the present.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from unstall.model.exclusive import BASE, CLOSED, CUT, OUTSIDE, PHASE_OF, UNKNOWN, WITHIN, Row, Spent, applied
from unstall.model.wire import ACTIVITIES, Activity, Phase

GC = int(Activity.GC)
MOST_EVENTS = 16_384  # numbers, two an event, not settled: an evaluation between two steps


class Accounting:
    """Time by cell, row by row.

    Attributes:
        events: code, time, code, time ... noted and neither settled nor taken; plain numbers, as pairs would have the
            collector of garbage come more often. Added to in one go by the methods here, and in no other way.
        depth: how much is open, the base counted.
        base: cell of time that nothing encloses.
        at: when the last thing was opened, ns.
        settled: time by cell, as far as it is settled or taken.
    """

    __slots__ = ("at", "base", "clock", "depth", "events", "settled")

    def __init__(
        self, origin_ns: int, clock: Callable[[], int] = time.monotonic_ns, phase: int = Phase.STARTUP
    ) -> None:
        self.clock = clock
        self.at = origin_ns
        self.base = phase * ACTIVITIES + UNKNOWN
        self.settled = Spent(origin_ns, self.base)
        self.depth = 1
        self.events: list[int] = []

    def enter_phase(self, phase: int, activity: int = UNKNOWN) -> int:
        """Open *phase*, and *activity* in it; return the depth to `leave` to."""
        if len(self.events) > MOST_EVENTS:
            self.settle()
        self.at = now = self.clock()
        self.events += (phase * ACTIVITIES + activity, now)
        depth = self.depth
        self.depth = depth + 1
        return depth

    def enter_activity(self, activity: int) -> int:
        """Open *activity* in the current phase; return the depth to `leave` to."""
        return self.enter_phase(0, WITHIN + activity)

    def leave(self, depth: int) -> int:
        """Close everything opened at *depth* or deeper; return the time now.

        What was opened inside and never closed (an error flew past it) is closed as well.
        """
        now = self.clock()
        if depth < self.depth:
            self.depth = depth
            self.events += (-depth, now)
        return now

    def leave_all(self, base: int) -> None:
        """Close everything, and let the cell *base* be the base from now on."""
        self.depth, self.base = 1, base
        self.events += (OUTSIDE + base, self.clock())

    def collected(self, start_ns: int, end_ns: int) -> None:
        """Note a collection of garbage that has ended."""
        self.events += (WITHIN + GC, start_ns, CLOSED, end_ns)

    def set_base(self, phase: int) -> None:
        """Let time that nothing encloses count as *phase* from now on."""
        entry = phase * ACTIVITIES + UNKNOWN
        if self.base != entry:
            self.base = entry
            self.events += (BASE + entry, self.clock())

    def add(self, cell: int, ns: int) -> None:
        """Move *ns* that passed unseen into *cell*; the clock is moved on by as much."""
        self.settle()
        self.settled.spent[cell] += ns
        self.settled.last += ns

    def cut(self, depth: int = 0) -> int:
        """End a row; return the time now. Where a collection of garbage runs over it, the row ends after that.

        Args:
            depth: what was opened at it or deeper is closed before; 0 closes nothing.
        """
        now = self.clock()
        if 0 < depth < self.depth:
            self.depth = depth
            self.events += (-depth, now, CUT, now)
        else:
            self.events += (CUT, now)
        return now

    def here(self) -> int:
        """Return the cell that the time of the training thread goes to now; for that thread alone."""
        self.settle()
        return self.settled.stack[-1]

    def top(self) -> int:
        """Return the cell that time goes to now. Any thread may ask."""
        stack = self.settled.stack.copy()
        for code in self.events[::2]:
            if code != CUT:
                applied(code, stack)
        return stack[-1]

    def settle(self) -> None:
        """Work through what was noted."""
        count = len(self.events)  # more may come in between, from a collection
        noted = self.events[:count]
        self.settled.settle(zip(noted[::2], noted[1::2]))
        del self.events[:count]

    def rows(self) -> list[Row]:
        """Return the rows that were cut, settled, and forget them."""
        self.settle()
        rows, self.settled.rows = self.settled.rows, []
        return rows

    def take(self) -> tuple[int, int, list[int]] | None:
        """Return what was noted, for the reader to settle, and take it as settled here.

        Returns:
            When it begins, ns; the base there; and code, ns, code, ns ... up to a cut. None where more than rows from
            base to base was noted, or some of it is settled: then it is to be settled here.
        """
        settled, events = self.settled, self.events
        count = len(events)
        if self.depth != 1 or len(settled.stack) != 1 or settled.spent or settled.rows:
            return None
        if not count or events[count - 2] != CUT:
            return None
        noted = events[:count]
        del events[:count]
        begun, base = settled.last, settled.stack[0]
        settled.last = last = max(begun, max(noted[1::2]))
        settled.stack, settled.marks = [self.base], [PHASE_OF[self.base], last]
        return begun, base, noted
