"""The live accounting: an exclusive-time stack on the training thread.

Every nanosecond between two events goes to the cell on top of the stack, so the cells add up to the time that passed by
construction.  What happens is only noted as it happens, the ends of rows among it, and the stack is worked through for
many steps at once (`settle`): between two steps the caches are the tensors', where a call of Python code costs 2 us and
not the 0.1 us of a tight loop.

A collection of garbage may begin wherever Python allocates, and from 3.12 on after any call, the clock's too. It is
noted whole, when it has ended, and a time that was read before it and noted after it is not taken for the present.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from unstall.model.wire import ACTIVITIES, Activity, Phase

UNKNOWN = int(Activity.UNKNOWN)
GC = int(Activity.GC)
MOST_MARKS = 16_384  # numbers, two a mark, of one row; beyond, its marks tell a part only
MOST_EVENTS = 8192  # noted and not settled: an evaluation between two steps

# What an event's code says: a cell from 0 on is opened; a negative number is the depth to leave to; beyond these:
WITHIN = 1 << 10  # + activity: opened in the current phase
BASE = 1 << 11  # + cell: the phase of time that nothing encloses
CLOSED = 1 << 12  # what was opened last is closed
CUT = CLOSED + 1  # a row ends
OUTSIDE = 1 << 13  # + cell: everything is closed, and the cell is the base
PHASE_OF = tuple(number // ACTIVITIES for number in range(WITHIN))  # by cell


class Accounting:
    """Time by cell, row by row.

    Attributes:
        events: (code, time) noted since the last `settle`; append to it in no other way than the methods here do.
        depth: how much is open, the base counted.
        base: cell of time that nothing encloses.
        at: when the last thing was opened, ns.
        rows: the rows that were cut and are settled: when it ended, `spent`, `marks`. Who writes them empties it.
        spent: ns by cell, as `wire.cell` numbers them, of the row under way, as far as it is settled.
        stack: open cells, the innermost last, as far as it is settled; ``stack[0]`` is the base.
        marks: phase, ns it began, phase, ns it began ... in order, of the row under way, as far as it is settled.
    """

    __slots__ = ("at", "base", "clock", "depth", "events", "last", "marks", "rows", "spent", "stack")

    def __init__(
        self, origin_ns: int, clock: Callable[[], int] = time.monotonic_ns, phase: int = Phase.STARTUP
    ) -> None:
        self.clock = clock
        self.last = self.at = origin_ns
        self.spent: defaultdict[int, int] = defaultdict(int)
        self.base = phase * ACTIVITIES + UNKNOWN
        self.stack = [self.base]
        self.depth = 1
        self.marks = [int(phase), origin_ns]
        self.events: list[tuple[int, int]] = []
        self.rows: list[tuple[int, dict[int, int], list[int]]] = []

    def enter_phase(self, phase: int, activity: int = UNKNOWN) -> int:
        """Open *phase*, and *activity* in it; return the depth to `leave` to."""
        if len(self.events) > MOST_EVENTS:
            self.settle()
        self.at = now = self.clock()
        self.events.append((phase * ACTIVITIES + activity, now))
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
            self.events.append((-depth, now))
        return now

    def leave_all(self, base: int) -> None:
        """Close everything, and let the cell *base* be the base from now on."""
        self.depth, self.base = 1, base
        self.events.append((OUTSIDE + base, self.clock()))

    def collected(self, start_ns: int, end_ns: int) -> None:
        """Note a collection of garbage that has ended."""
        self.events += ((WITHIN + GC, start_ns), (CLOSED, end_ns))

    def set_base(self, phase: int) -> None:
        """Let time that nothing encloses count as *phase* from now on."""
        entry = phase * ACTIVITIES + UNKNOWN
        if self.base != entry:
            self.base = entry
            self.events.append((BASE + entry, self.clock()))

    def add(self, cell: int, ns: int) -> None:
        """Move *ns* that passed unseen into *cell*; the clock is moved on by as much."""
        self.settle()
        self.spent[cell] += ns
        self.last += ns

    def cut(self) -> int:
        """End a row; return the time now. Where a collection of garbage runs over it, the row ends after that."""
        now = self.clock()
        self.events.append((CUT, now))
        return now

    def here(self) -> int:
        """Return the cell that the time of the training thread goes to now; for that thread alone."""
        self.settle()
        return self.stack[-1]

    def top(self) -> int:
        """Return the cell that time goes to now. Any thread may ask."""
        stack = self.stack.copy()
        for code, _ in self.events.copy():
            if code != CUT:
                _apply(code, stack)
        return stack[-1]

    def settle(self) -> None:
        """Work through what was noted."""
        events = self.events
        count = len(events)
        stack, spent, last, marks = self.stack, self.spent, self.last, self.marks
        top, phase, phase_of = stack[-1], marks[-2], PHASE_OF
        for code, at in events[:count]:
            if at > last:
                spent[top] += at - last
                last = at
            # what each step has is done here, as `_apply` would do it; a call costs as much as the rest
            if code < 0:
                del stack[-code:]
                top = stack[-1]
            elif code < WITHIN:
                stack.append(code)
                top = code
            elif code >= OUTSIDE:
                top = code - OUTSIDE
                stack[:] = (top,)
            elif code == CUT:
                self.rows.append((last, spent, marks))
                spent, marks = defaultdict(int), [phase, last]
                continue
            elif BASE <= code < CLOSED:
                stack[0] = code - BASE
                top = stack[-1]
            else:
                top = _apply(code, stack)
            if phase_of[top] != phase:
                phase = phase_of[top]
                marks += (phase, last)
        del marks[MOST_MARKS:]
        self.last, self.spent, self.marks = last, spent, marks
        del events[:count]


def _apply(code: int, stack: list[int]) -> int:
    """Do to *stack* what an event says; return what is on top of it then."""
    if code < 0:
        del stack[-code:]
    elif code < WITHIN:
        stack.append(code)
    elif code < BASE:
        stack.append(stack[-1] // ACTIVITIES * ACTIVITIES + code - WITHIN)
    elif code < CLOSED:
        stack[0] = code - BASE
    elif code >= OUTSIDE:
        stack[:] = (code - OUTSIDE,)
    elif len(stack) > 1:
        stack.pop()
    return stack[-1]
