"""The account over time, for a viewer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from made import MS, B, D, F, outside, rank, row, rows, run

from unstall.accounts.segment import segment
from unstall.accounts.tracks import _cut, _innermost, device, tracks
from unstall.model.trace import Work
from unstall.model.wire import Device

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 3)), max_size=12)


def columns(found):
    start, length, label = np.array(sorted(found), np.int64).reshape(-1, 3).T
    return start, start + length, label


def said(track):
    return [
        (int(start), int(end), track.labels[label])
        for start, end, label in zip(track.start_ns, track.end_ns, track.label.tolist())
    ]


def work(*pieces):
    start, end, kind = np.array(sorted(pieces), np.int64).reshape(-1, 3).T
    zeros = np.zeros(start.size, np.int64)
    small = zeros.astype(np.int32)
    return Work(start, end, zeros, zeros, kind.astype(np.uint8), small, zeros, small, zeros)


def test_a_live_recording_gives_steps_and_the_phases_of_the_host():
    recorded = run(rank(rows([row({D: 2 * MS, F: 3 * MS, B: MS}), row({D: MS, F: MS, B: MS}), outside({F: MS})])))
    steps, phases, *_ = tracks(recorded, segment(recorded).steps)
    assert [(start // MS, end // MS) for start, end, _ in said(steps)] == [(0, 6), (6, 9)]
    assert [name for *_, name in said(phases)][:4] == ["fetch", "forward", "backward", "fetch"]


def test_a_kernel_hides_a_collective_and_this_a_copy():
    pieces = work((10, 30, Device.COLLECTIVE), (20, 40, Device.COMPUTE), (5, 45, Device.COPY))
    assert said(device(0, pieces, 0, 50)) == [
        (0, 5, "idle"), (5, 10, "copy"), (10, 20, "collective"), (20, 40, "compute"), (40, 45, "copy"), (45, 50, "idle"),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.sampled_from((1, 2, 3))), max_size=12))
def test_each_moment_of_the_device_is_said_once_and_as_a_plain_look_says_it(found):
    start, end, kind = columns(found)
    track = device(0, work(*zip(start, end, kind)), 0, 60)
    moments = {at: name for begin, stop, name in said(track) for at in range(begin, stop)}
    for at in range(60):
        going = {int(k) for s, e, k in zip(start, end, kind) if s <= at < e}
        order = (Device.COMPUTE, Device.COLLECTIVE, Device.COPY)
        wanted = next((kind.name.lower() for kind in order if kind in going), "idle")
        assert moments[at] == wanted


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
