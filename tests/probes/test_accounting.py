"""The live accounting: every nanosecond is entered once, whatever happens in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unstall.model.exclusive import Spent
from unstall.model.wire import Activity, Phase, cell
from unstall.probes._accounting import MOST_EVENTS, Accounting


class Clock:
    """A clock that moves by hand.

    Attributes:
        collections: by call of the clock, ns of a collection that begins before the call returns (Python 3.12).
    """

    def __init__(self, collections: dict[int, int] | None = None) -> None:
        self.now, self.calls, self.collections = 0, 0, collections or {}
        self.accounting: Accounting | None = None

    def __call__(self) -> int:
        self.calls += 1
        now = self.now
        if (length := self.collections.pop(self.calls, None)) is not None and self.accounting is not None:
            self.now += length
            self.accounting.collected(now, self.now)
        return now


def accounting(clock: Clock) -> Accounting:
    clock.accounting = made = Accounting(0, clock)
    return made


def taken(live: Accounting) -> tuple[int, dict[int, int], list[int]]:
    """Cut a row here and return it: (when it ended, ns by cell, marks)."""
    live.cut()
    return live.rows().pop()


def spent(cells: dict[int, int]) -> dict[int, int]:
    return {number: ns for number, ns in cells.items() if ns}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("phase"), st.sampled_from(list(Phase))),
        st.tuples(st.just("activity"), st.sampled_from([Activity.LOAD, Activity.SYNC, Activity.IO])),
        st.tuples(st.just("leave"), st.integers(1, 6)),
        st.tuples(st.just("all"), st.sampled_from([Phase.BETWEEN, Phase.FORWARD])),
        st.tuples(st.just("base"), st.sampled_from([Phase.BETWEEN, Phase.FORWARD, Phase.EVALUATE])),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("pass"), st.integers(1, 1000)),
    ),
    max_size=60,
)


def happen(live: Accounting, clock: Clock, name: str, value: int) -> None:
    if name == "phase":
        live.enter_phase(value)
    elif name == "activity":
        live.enter_activity(value)
    elif name == "leave":
        live.leave(value)
    elif name == "base":
        live.set_base(value)
    elif name == "all":
        live.leave_all(cell(value, Activity.UNKNOWN))
        assert live.top() == cell(value, Activity.UNKNOWN)
    elif name == "pass":
        clock.now += value


@given(STEPS, st.dictionaries(st.integers(1, 60), st.integers(1, 10_000)))
def test_rows_add_up_to_the_time_that_passed_though_collections_come_in_between(ops, collections):
    clock = Clock(dict(collections))
    live = accounting(clock)
    start, rows = 0, []
    for name, value in [*ops, ("take", 0)]:
        happen(live, clock, name, value)
        if name == "take":
            now, cells, marks = taken(live)
            rows.append((start, now, cells, marks))
            start = now
    for began, ended, cells, marks in rows:
        assert sum(cells.values()) == ended - began
        assert all(ns >= 0 for ns in cells.values())
        times = marks[1::2]
        assert times == sorted(times) and times[0] == began and times[-1] <= ended


@given(STEPS, st.dictionaries(st.integers(1, 60), st.integers(1, 10_000)))
def test_what_is_left_to_the_reader_comes_to_the_same_rows(ops, collections):
    rows: list[list[object]] = [[], []]
    for way, left in enumerate((False, True)):
        clock = Clock(dict(collections))
        live = accounting(clock)
        for name, value in [*ops, ("take", 0), ("all", Phase.BETWEEN), ("pass", 3), ("take", 0)]:
            happen(live, clock, name, value)
            if name != "take":
                continue
            live.cut()
            if left and (noted := live.take()) is not None:
                begun, base, numbers = noted
                reader = Spent(begun, base)
                reader.settle(zip(numbers[::2], numbers[1::2], strict=True))
            else:
                live.settle()
                reader = live.settled
            rows[way] += [(end, spent(cells), marks) for end, cells, marks in reader.rows]
            reader.rows = []
    assert rows[0] == rows[1]


def test_nothing_is_left_to_the_reader_while_something_is_open():
    live = accounting(Clock())
    depth = live.enter_phase(Phase.FORWARD)
    live.cut()
    assert live.take() is None
    live.leave(depth)
    assert live.take() is None  # the row under way would be lost
    live.cut()
    assert live.take() is not None


def test_time_of_a_collection_inside_a_clock_call_is_garbage_and_not_the_phase_around_it():
    clock = Clock({2: 700})  # the second call is the one of leave()
    live = accounting(clock)
    depth = live.enter_phase(Phase.FORWARD)
    clock.now += 100
    live.leave(depth)
    _, cells, _ = taken(live)
    assert spent(cells) == {
        cell(Phase.FORWARD, Activity.UNKNOWN): 100,
        cell(Phase.FORWARD, Activity.GC): 700,
    }


def test_what_an_error_left_open_is_closed_by_the_one_around_it():
    clock = Clock()
    live = accounting(clock)
    outer = live.enter_phase(Phase.FORWARD)
    live.enter_activity(Activity.SYNC)
    clock.now += 5
    live.leave(outer)
    clock.now += 3
    _, cells, _ = taken(live)
    assert spent(cells) == {
        cell(Phase.FORWARD, Activity.SYNC): 5,
        cell(Phase.STARTUP, Activity.UNKNOWN): 3,
    }


def test_what_is_noted_is_settled_before_it_grows_without_bound():
    clock = Clock()
    live = accounting(clock)
    for _ in range(2 * MOST_EVENTS):  # an evaluation between two steps
        depth = live.enter_phase(Phase.EVALUATE)
        clock.now += 2
        live.leave(depth)
    assert len(live.events) <= MOST_EVENTS + 4
    _, cells, _ = taken(live)
    assert spent(cells) == {cell(Phase.EVALUATE, Activity.UNKNOWN): 4 * MOST_EVENTS}


def test_another_thread_may_ask_what_time_goes_to_now():
    live = accounting(Clock())
    live.enter_phase(Phase.BACKWARD)
    inner = live.enter_activity(Activity.SYNC)
    assert live.top() == cell(Phase.BACKWARD, Activity.SYNC)
    live.leave(inner)
    assert live.top() == cell(Phase.BACKWARD, Activity.UNKNOWN)


def test_rows_cut_one_after_another_are_settled_together_as_they_would_be_each_alone():
    def live_through(each: bool) -> list[tuple[int, dict[int, int], list[int]]]:
        clock = Clock()
        live = accounting(clock)
        for ns in (3, 5, 7):
            depth = live.enter_phase(Phase.FORWARD)
            clock.now += ns
            live.leave(depth)
            live.leave_all(cell(Phase.BETWEEN, Activity.UNKNOWN))
            clock.now += 1
            live.cut()
            if each:
                live.settle()
        return [(end, spent(cells), marks) for end, cells, marks in live.rows()]

    together = live_through(each=False)
    assert together == live_through(each=True)
    assert [end for end, _, _ in together] == [4, 10, 18]


def test_what_time_goes_to_is_told_whatever_was_cut_before():
    live = accounting(Clock())
    live.enter_phase(Phase.BACKWARD)
    live.cut()
    assert live.top() == live.here() == cell(Phase.BACKWARD, Activity.UNKNOWN)
