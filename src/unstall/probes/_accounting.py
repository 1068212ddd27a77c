"""The live accounting: an exclusive-time stack on the training thread.

Every nanosecond between two calls goes to the cell on top of the stack, so the cells add up to
the time that passed by construction.  About 0.5 us an enter and leave.

A collection of garbage may begin wherever Python allocates, and from 3.12 on after any call, the clock's too; its probe
then enters and leaves in the middle of a method here.  So between reading ``last`` and writing it nothing is
allocated or called, and a time read before such a collection is not taken for the present.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from unstall.model.wire import ACTIVITIES, Activity, Phase

UNKNOWN = int(Activity.UNKNOWN)
MOST_MARKS = 8192  # of one row; a row that reached it changed its phase more often, and its marks tell a part only


class Accounting:
    """Time by cell since the last `take`.

    Attributes:
        spent: ns by cell, as `wire.cell` numbers them; cells without time are left out.
        stack: open cells, the innermost last; ``stack[0]`` is the base, the phase of time that nothing encloses.
        marks: (phase, ns it began) in order, since the last `take`.
    """

    __slots__ = ("clock", "last", "marks", "spent", "stack")

    def __init__(
        self, origin_ns: int, clock: Callable[[], int] = time.monotonic_ns, phase: int = Phase.STARTUP
    ) -> None:
        self.clock = clock
        self.last = origin_ns
        self.spent: defaultdict[int, int] = defaultdict(int)
        self.stack = [phase * ACTIVITIES + UNKNOWN]
        self.marks: list[tuple[int, int]] = [(int(phase), origin_ns)]

    def enter_phase(self, phase: int) -> int:
        """Open *phase*; return the depth to `leave` to."""
        now, stack = self.clock(), self.stack
        if now < self.last:
            now = self.last
        self.spent[stack[-1]] += now - self.last
        self.last = now
        stack.append(phase * ACTIVITIES + UNKNOWN)
        if len(self.marks) < MOST_MARKS:
            self.marks.append((phase, now))
        return len(stack) - 1

    def enter_activity(self, activity: int) -> int:
        """Open *activity* in the current phase; return the depth to `leave` to."""
        now, stack = self.clock(), self.stack
        if now < self.last:
            now = self.last
        top = stack[-1]
        self.spent[top] += now - self.last
        self.last = now
        stack.append(top // ACTIVITIES * ACTIVITIES + activity)
        return len(stack) - 1

    def leave(self, depth: int) -> int:
        """Close everything opened at *depth* or deeper; return the time now.

        What was opened inside and never closed (an error flew past it) is closed as well.
        """
        now, stack = self.clock(), self.stack
        if now < self.last:
            now = self.last
        if depth < len(stack):
            top = stack[-1]
            self.spent[top] += now - self.last
            self.last = now
            del stack[depth:]
            phase = stack[-1] // ACTIVITIES
            if phase != self.marks[-1][0] and len(self.marks) < MOST_MARKS:
                self.marks.append((phase, now))
        return now

    def set_base(self, phase: int) -> None:
        """Let time that nothing encloses count as *phase* from now on."""
        entry = phase * ACTIVITIES + UNKNOWN
        stack = self.stack
        if stack[0] == entry:
            return
        if len(stack) == 1:
            now = self.clock()
            if now < self.last:
                now = self.last
            self.spent[stack[0]] += now - self.last
            self.last = now
            if len(self.marks) < MOST_MARKS:
                self.marks.append((phase, now))
        stack[0] = entry

    def add(self, cell: int, ns: int) -> None:
        """Move *ns* that passed unseen into *cell*; the clock is moved on by as much."""
        self.spent[cell] += ns
        self.last += ns

    def take(self) -> tuple[int, list[tuple[int, int]], list[tuple[int, int]]]:
        """Return (now, [(cell, ns)] that are not zero, marks) and begin anew."""
        fresh: defaultdict[int, int] = defaultdict(int)
        spent = self.spent
        now = self.clock()
        if now < self.last:
            now = self.last
        spent[self.stack[-1]] += now - self.last
        self.last = now
        self.spent = fresh
        marks, self.marks = self.marks, [(self.stack[-1] // ACTIVITIES, now)]
        return now, sorted(entry for entry in spent.items() if entry[1]), marks
