"""The exclusive-time stack: what the training thread noted, worked through to time by cell.

Every nanosecond between two events goes to the cell on top of the stack, so the cells of a row add up to the time that
passed by construction. The training process notes events and mostly writes them as they are (`wire.Frame.EVENTS`); who
reads them settles them. Where only sums are kept it settles them itself. Both do it here.

This module is imported inside the training process: it needs the standard library only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from unstall.model.wire import ACTIVITIES, Activity

UNKNOWN = int(Activity.UNKNOWN)
MOST_MARKS = 16_384  # numbers, two a mark, of one row; beyond, its marks tell a part only

# What an event's code says: a cell from 0 on is opened; a negative number is the depth to leave to; beyond these:
WITHIN = 1 << 10  # + activity: opened in the current phase
BASE = 1 << 11  # + cell: the phase of time that nothing encloses
CLOSED = 1 << 12  # what was opened last is closed
CUT = CLOSED + 1  # a row ends
OUTSIDE = 1 << 13  # + cell: everything is closed, and the cell is the base
PHASE_OF = tuple(number // ACTIVITIES for number in range(WITHIN))  # by cell

Row = tuple[int, "dict[int, int]", "list[int]"]  # when it ended, `Spent.spent`, `Spent.marks`


class Spent:
    """Time by cell, row by row.

    Attributes:
        last: when what is settled ends, ns.
        rows: the rows that were cut: who takes them empties it.
        spent: ns by cell, as `wire.cell` numbers them, of the row under way.
        stack: open cells, the innermost last; ``stack[0]`` is the base.
        marks: phase, ns it began, phase, ns it began ... in order, of the row under way.
    """

    __slots__ = ("last", "marks", "rows", "spent", "stack")

    def __init__(self, origin_ns: int, base: int) -> None:
        self.last = origin_ns
        self.spent: defaultdict[int, int] = defaultdict(int)
        self.stack = [base]
        self.marks = [PHASE_OF[base], origin_ns]
        self.rows: list[Row] = []

    def settle(self, events: Iterable[tuple[int, int]]) -> None:
        """Work through *events*, (code, ns) in the order in which they were noted.

        Raises:
            IndexError: For a code that nothing writes, from a damaged file.
        """
        stack, spent, last, marks = self.stack, self.spent, self.last, self.marks
        top, phase, phase_of = stack[-1], marks[-2], PHASE_OF
        for code, at in events:
            if at > last:
                spent[top] += at - last
                last = at
            # what each step has is done here, as `applied` would do it; a call costs as much as the rest
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
                top = applied(code, stack)
            if phase_of[top] != phase:
                phase = phase_of[top]
                marks += (phase, last)
        del marks[MOST_MARKS:]
        self.last, self.spent, self.marks = last, spent, marks


def applied(code: int, stack: list[int]) -> int:
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
