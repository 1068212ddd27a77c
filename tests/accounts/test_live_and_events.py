"""The live accounting and the events of the same run make the same ledger, and both balance."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unstall.accounts.assign import ACTIVITY_OF, PHASE_OF
from unstall.accounts.device import ledger_of, states_of
from unstall.accounts.enter import enter
from unstall.accounts.segment import segment
from unstall.model.events import Events
from unstall.model.ledger import Ledger
from unstall.model.run import Coverage, Facts, Rank, Rows, Run, Sensor
from unstall.model.wire import ACTIVITIES, ENDS_OUTSIDE, PHASES, Kind, Phase
from unstall.probes._accounting import Accounting

START = 1_000
# A phase of its own for the base is what the recorder sets, and a fetch outside any phase is one by its kind.
PHASE_KINDS = sorted(set(PHASE_OF) - {Kind.BETWEEN, Kind.STARTUP})
ACTIVITY_KINDS = sorted(set(ACTIVITY_OF) - {Kind.LOAD, Kind.WAIT_DATA})
moves = st.tuples(st.sampled_from([*PHASE_KINDS, *ACTIVITY_KINDS, "pop", "pop", "step"]), st.integers(1, 10_000))
streams = st.tuples(
    st.lists(moves, max_size=8),
    st.lists(st.lists(moves, max_size=14), min_size=1, max_size=5),
    st.lists(moves, max_size=8),
)


class Recorded:
    """Feeds one stream of pushes and pops to the live accounting, and lists it as events."""

    def __init__(self) -> None:
        self.now = START
        self.live = Accounting(START, lambda: self.now)
        self.open: list[tuple[int, Kind, int]] = []
        self.events: list[tuple[int, int, Kind]] = []
        self.rows: list[tuple[int, int, list[tuple[int, int]], int]] = []
        self.row_start = START

    def feed(self, stream: list[tuple[object, int]]) -> None:
        for move, ns in stream:
            self.now += ns
            if move == "pop":
                self.pop()
            elif move in PHASE_OF:
                self.open.append((self.live.enter_phase(PHASE_OF[Kind(move)]), Kind(move), self.now))
            elif move in ACTIVITY_OF:
                self.open.append((self.live.enter_activity(ACTIVITY_OF[Kind(move)]), Kind(move), self.now))

    def pop(self) -> None:
        if self.open:
            depth, kind, start = self.open.pop()
            self.live.leave(depth)
            self.events.append((start, self.now, kind))

    def pop_all(self) -> None:
        while self.open:
            self.now += 1
            self.pop()

    def close(self, steps: int) -> None:
        self.live.cut()
        now, cells, _ = self.live.rows().pop()
        if steps:
            self.events.append((self.row_start, now, Kind.STEP))
        self.rows.append((self.row_start, now, sorted(cells.items()), steps))
        self.row_start = now


def record(stream: tuple[list, list[list], list]) -> tuple[Run, Run]:
    """Return the run of *stream* as the live accounting has it, and as events."""
    before, steps, after = stream
    recorded = Recorded()
    recorded.feed(before)
    recorded.pop_all()
    recorded.now += 1
    recorded.close(0)
    recorded.live.set_base(Phase.BETWEEN)
    for step in steps:
        recorded.feed(step)
        recorded.now += 1
        recorded.close(1)
    recorded.feed(after)
    recorded.pop_all()
    recorded.now += 1
    recorded.close(0)
    return as_rows(recorded), as_events(recorded)


def as_rows(recorded: Recorded) -> Run:
    count = len(recorded.rows)
    spent = np.zeros((count, PHASES * ACTIVITIES), np.int64)
    for n, (_, _, cells, _) in enumerate(recorded.rows):
        for number, ns in cells:
            spent[n, number] = ns
    start, end, steps = (np.array([r[i] for r in recorded.rows], np.int64) for i in (0, 1, 3))
    none = np.zeros(0, np.int64)
    table = Rows(
        np.cumsum(steps) - steps, steps.astype(np.int32), np.where(steps > 0, 0, ENDS_OUTSIDE).astype(np.uint16),
        np.zeros(count, np.uint16), start, end, np.zeros(count, np.int64), spent.reshape(count, PHASES, ACTIVITIES),
        none.astype(np.int32), none.astype(np.uint8), none, none,
    )  # fmt: skip
    return one_rank(recorded, Events.empty(), table)


def as_events(recorded: Recorded) -> Run:
    return one_rank(recorded, events(recorded.events), None)


def events(spans: list[tuple[int, int, Kind]]) -> Events:
    table = sorted(spans, key=lambda span: (span[0], -span[1]))
    start, end, kind = (np.array([span[i] for span in table], np.int64) for i in range(3))
    zeros = np.zeros(len(table), np.int32)
    return Events(start, end, kind.astype(np.uint8), zeros, zeros, zeros - 1, zeros.astype(np.int64))


def one_rank(recorded: Recorded, listed: Events, table: Rows | None) -> Run:
    return Run(
        (Rank(0, 1, START, recorded.now, START, recorded.now, listed, table),), Facts(), Coverage(frozenset(Sensor))
    )


def entries(ledger: Ledger) -> Counter[tuple[int, int, int]]:
    found: Counter[tuple[int, int, int]] = Counter()
    for step, phase, activity, ns in zip(ledger.step, ledger.phase, ledger.activity, ledger.ns, strict=True):
        found[int(step), int(phase), int(activity)] += int(ns)
    return +found


def of_rows(run: Run) -> Ledger:
    return enter(run, replace(segment(run), teaches=(False,)), [None])


def of_events(run: Run) -> Ledger:
    return ledger_of(run, states_of(run, segment(run).steps))


@given(streams)
def test_live_accounting_and_events_agree_to_the_nanosecond(stream: tuple[list, list[list], list]) -> None:
    live, listed = record(stream)
    assert entries(of_rows(live)) == entries(of_events(listed))


@given(streams)
def test_both_add_up_to_the_wall(stream: tuple[list, list[list], list]) -> None:
    for run, ledger in zip(record(stream), (of_rows(record(stream)[0]), of_events(record(stream)[1])), strict=True):
        assert int(ledger.ns.sum()) == run.ranks[0].end_ns - run.ranks[0].start_ns == int(ledger.wall_R[0])


@given(streams, st.integers(-500, 10**18))
def test_shifting_the_clock_changes_nothing(stream: tuple[list, list[list], list], by: int) -> None:
    rank = record(stream)[1].ranks[0]
    moved = replace(rank.events, start_ns=rank.events.start_ns + by, end_ns=rank.events.end_ns + by)
    times = {name: getattr(rank, name) + by for name in ("start_ns", "end_ns", "seen_start_ns", "seen_end_ns")}
    shifted = Run((replace(rank, events=moved, **times),), Facts(), Coverage(frozenset(Sensor)))
    assert entries(of_events(shifted)) == entries(of_events(record(stream)[1]))


@given(streams, st.data())
def test_cutting_a_span_in_two_changes_nothing(stream: tuple[list, list[list], list], data: st.DataObject) -> None:
    run = record(stream)[1]
    spans = [
        (int(start), int(end), Kind(int(kind)))
        for start, end, kind in zip(
            run.ranks[0].events.start_ns, run.ranks[0].events.end_ns, run.ranks[0].events.kind, strict=True
        )
    ]
    leaves = [
        s for s in spans if s[2] != Kind.STEP and not any(s[0] <= o[0] and o[1] <= s[1] for o in spans if o is not s)
    ]
    if leaves:
        start, end, kind = data.draw(st.sampled_from(leaves))
        at = data.draw(st.integers(start, end))
        spans.remove((start, end, kind))
        cut = replace(run.ranks[0], events=events([*spans, (start, at, kind), (at, end, kind)]))
        assert entries(of_events(replace(run, ranks=(cut,)))) == entries(of_events(run))


def test_an_error_that_flies_past_closes_what_it_left_open() -> None:
    recorded = Recorded()
    depth = recorded.live.enter_phase(Phase.FORWARD)
    recorded.now += 5
    recorded.live.enter_activity(ACTIVITY_OF[Kind.IO])
    recorded.now += 7
    recorded.live.leave(depth)
    recorded.now += 11
    recorded.live.cut()
    _, cells, marks = recorded.live.rows().pop()
    assert sum(cells.values()) == 23
    assert marks[::2] == [Phase.STARTUP, Phase.FORWARD, Phase.STARTUP]
