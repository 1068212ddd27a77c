"""The account over time, for a viewer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from made import MS, B, D, F, outside, rank, row, rows, run

from unstall.accounts.device import States
from unstall.accounts.host import Host
from unstall.accounts.segment import segment
from unstall.accounts.tracks import _cut, _innermost, tracks
from unstall.model.events import Events
from unstall.model.run import Rank, Run
from unstall.model.wire import Activity, Device, Phase

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 3)), max_size=12)


def columns(found):
    start, length, label = np.array(sorted(found), np.int64).reshape(-1, 3).T
    return start, start + length, label


def said(track):
    return [
        (int(start), int(end), track.labels[label])
        for start, end, label in zip(track.start_ns, track.end_ns, track.label.tolist())
    ]


def test_a_trace_gives_what_the_host_and_the_device_did_and_activities_end_with_their_phase():
    empty = np.zeros(0, np.int64)
    calls = np.full(3, -1, np.int32)
    host = Host(
        np.array([0, 10, 20, 30]), np.array([Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD], np.uint8),
        np.array([Activity.PYTHON, Activity.LAUNCH, Activity.LAUNCH], np.uint8), np.zeros(3, np.uint8), calls, calls,
    )  # fmt: skip
    state = np.array([Device.IDLE, Device.COMPUTE], np.uint8)
    states = States(host, None, np.array([0, 12, 30]), state, empty, empty, np.zeros(0, np.bool_))
    recorded = Run((Rank(0, 1, 0, 30, 0, 30, Events.empty()),))
    steps, phases, activities, device = tracks(recorded, segment(recorded).steps, (states,))
    assert said(steps) == []
    assert said(phases) == [(0, 20, "forward"), (20, 30, "backward")]
    assert said(activities) == [(0, 10, "python"), (10, 20, "launch"), (20, 30, "launch")]
    assert said(device) == [(0, 12, "idle"), (12, 30, "compute")]


def test_a_live_recording_gives_steps_and_the_phases_of_the_host():
    recorded = run(rank(rows([row({D: 2 * MS, F: 3 * MS, B: MS}), row({D: MS, F: MS, B: MS}), outside({F: MS})])))
    steps, phases, *_ = tracks(recorded, segment(recorded).steps, ())
    assert [(start // MS, end // MS) for start, end, _ in said(steps)] == [(0, 6), (6, 9)]
    assert [name for *_, name in said(phases)][:4] == ["fetch", "forward", "backward", "fetch"]


@given(spans)
def test_the_innermost_span_has_the_moment_and_no_two_have_one(found):
    start, end, _ = _innermost(*columns(found))
    assert (end > start).all()
    assert (start[1:] >= end[:-1]).all()


@given(spans, st.lists(st.integers(0, 60), unique=True))
def test_cutting_changes_no_moment_and_leaves_no_edge_inside(found, edges):
    before = _innermost(*columns(found))
    after = _cut(*before, np.array(sorted(edges), np.int64))

    def moments(slices):
        return {
            at: label for start, end, label in zip(*(column.tolist() for column in slices)) for at in range(start, end)
        }

    assert moments(before) == moments(after)
    assert not any(start < edge < end for start, end, _ in zip(*after) for edge in edges)
