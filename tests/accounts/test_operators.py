"""Host and device time by operator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstall.accounts.operators import Operator, operators, parents
from unstall.model.events import Events
from unstall.model.run import Rank, Run
from unstall.model.steps import Steps
from unstall.model.trace import NONE, Call, Calls, Trace, Work
from unstall.model.wire import Device

OP, RUNTIME, FRAME = Call.OPERATOR, Call.RUNTIME, Call.FRAME


def calls(*given):
    """Return the calls of (start, end, thread, kind, name), and the names."""
    rows = sorted(given, key=lambda row: (row[0], -row[1]))
    names = ("", *sorted({row[4] for row in rows}))
    start, end, thread, kind = (np.array([row[n] for row in rows], np.int64) for n in range(4))
    name = np.array([names.index(row[4]) for row in rows], np.int32)
    unknown = np.full(start.size, NONE, np.int64)
    zeros = np.zeros(start.size, np.int32)
    return Calls(start, end, thread.astype(np.int32), kind.astype(np.uint8), name, unknown, zeros), names


def a_run(table, names, work=()):
    start, end, launch = (np.array([piece[n] for piece in work], np.int64) for n in range(3))
    zeros = np.zeros(start.size, np.int64)
    kind = np.full(start.size, Device.COMPUTE, np.uint8)
    pieces = Work(start, end, zeros, zeros, kind, zeros.astype(np.int32), zeros, launch.astype(np.int32), zeros)
    last = int(table.end_ns.max())
    return Run((Rank(0, 1, 0, last, 0, last, Events.empty(), trace=Trace(table, pieces, names)),))


def steady(*bounds):
    start, end = (np.array([[bound[n]] for bound in bounds], np.int64) for n in range(2))
    return Steps(start, end, np.ones(len(bounds), np.bool_), np.ones(len(bounds), np.int32))


def test_time_belongs_to_the_innermost_operator_and_work_to_the_one_that_launched_it():
    table, names = calls((0, 100, 0, OP, "linear"), (10, 90, 0, OP, "addmm"), (20, 30, 0, RUNTIME, "cudaLaunchKernel"))
    found = operators(a_run(table, names, [(40, 240, 2)]), steady((0, 1000)))
    assert found == (Operator("addmm", 1, 80, 80, 10, 200, 1), Operator("linear", 1, 100, 20, 0, 0, 0))


def test_an_operator_that_calls_itself_is_counted_once_in_its_total():
    table, names = calls((0, 100, 0, OP, "to"), (10, 60, 0, OP, "to"), (20, 30, 0, OP, "to"))
    assert operators(a_run(table, names), steady((0, 1000))) == (Operator("to", 3, 100, 100, 0, 0, 0),)


def test_only_calls_of_steady_steps_count():
    table, names = calls((0, 10, 0, OP, "mm"), (100, 130, 0, OP, "mm"), (200, 210, 0, OP, "mm"))
    (found,) = operators(a_run(table, names), steady((100, 200)))
    assert (found.count, found.ns) == (1, 30)


def test_threads_do_not_nest_in_each_other_and_frames_are_looked_through():
    table, names = calls((0, 100, 0, OP, "a"), (10, 20, 1, OP, "b"), (30, 90, 0, FRAME, "f"), (40, 50, 0, OP, "c"))
    assert {one.name: one.self_ns for one in operators(a_run(table, names), steady((0, 1000)))} == {
        "a": 90,
        "b": 10,
        "c": 10,
    }


def test_a_run_without_a_trace_has_no_operators():
    run = Run((Rank(0, 1, 0, 1, 0, 1, Events.empty()),))
    assert operators(run, steady((0, 1))) == ()


@st.composite
def nested(draw, begin=0, end=60, depth=0):
    """Draw calls that nest: (start, end) of each."""
    found, at = [], begin
    while at < end and len(found) < 12:
        start = draw(st.integers(at, end))
        stop = draw(st.integers(start, end))
        found.append((start, stop))
        if depth < 3 and draw(st.booleans()):
            found += draw(nested(start, stop, depth + 1))
        at = stop + draw(st.integers(0, 2))
    return found


def slow_parents(start, end):
    """The plain way: a stack of the calls that are open, closed before what begins when they end."""
    found, stack = [], []
    for n, (begin, _) in enumerate(zip(start, end)):
        while stack and (end[stack[-1]] < begin or (end[stack[-1]] == begin and start[stack[-1]] < begin)):
            stack.pop()
        found.append(stack[-1] if stack else NONE)
        stack.append(n)
    return found


@settings(deadline=None)
@given(nested())
def test_parents_are_those_of_a_stack(spans):
    spans = sorted({*spans}, key=lambda span: (span[0], -span[1]))
    table, _ = calls(*((start, end, 0, OP, "a") for start, end in spans))
    assert parents(table, np.arange(len(spans))).tolist() == slow_parents(*zip(*spans)) if spans else True


@pytest.mark.parametrize("kept", [(0, 2), (1, 2)])
def test_calls_that_do_not_count_are_looked_through(kept):
    table, _ = calls((0, 100, 0, OP, "a"), (10, 90, 0, OP, "b"), (20, 30, 0, OP, "c"))
    assert parents(table, np.array(kept)).tolist() == [NONE, 0]
