"""A window of the profiler brings the device into the account of a live run, and stays out of its statistics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made import MS, OPT, B, F, rank, row, rows, run

from unstall.accounts.segment import segment
from unstall.accounts.windows import windows_of
from unstall.model.ledger import Activity, Device, Phase
from unstall.model.run import Rank, Run
from unstall.model.trace import NONE, Call, Calls, Trace, Work
from unstall.model.wire import PROFILED
from unstall.pipeline import account

STEP = {F: 4 * MS, B: 4 * MS, OPT: 2 * MS}
LONG = {F: 6 * MS, B: 4 * MS, OPT: 2 * MS}  # a step of the window: the profiler dilates its forward
STEADY, SEEN = 6, 3


def traced_rank(number: int = 0) -> Rank:
    """Return a rank with six steps of 10 ms and a window of three of 12 ms after the second.

    In the window the forward launches for 6 ms; the device works in the backward's 4 ms and copies in 1 ms of the
    optimizer's 2.
    """
    table = rows([row(STEP)] * 2 + [row(LONG, flags=PROFILED)] * SEEN + [row(STEP)] * (STEADY - 2))
    begin = [int(at) for at in table.start_ns[2 : 2 + SEEN]]
    calls = [(at, at + 6 * MS, "aten::linear", Call.OPERATOR) for at in begin]
    calls += [(at, at + 6 * MS, "cudaLaunchKernel", Call.RUNTIME) for at in begin]
    calls += [(at + 6 * MS, at + 10 * MS, "autograd::engine::evaluate_function: X", Call.OPERATOR) for at in begin]
    calls += [(at + 10 * MS, at + 12 * MS, "Optimizer.step#SGD.step", Call.ANNOTATION) for at in begin]
    calls.sort(key=lambda one: (one[0], -one[1]))
    work = [(at + 6 * MS, at + 10 * MS, Device.COMPUTE, "gemm") for at in begin]
    work += [(at + 10 * MS, at + 11 * MS, Device.COPY, "Memcpy DtoH (Device -> Pageable)") for at in begin]
    work.sort()
    names = ("", *sorted({one[2] for one in calls} | {one[3] for one in work}))
    i64, i32 = np.int64, np.int32
    of_calls = Calls(
        np.array([one[0] for one in calls], i64), np.array([one[1] for one in calls], i64), np.zeros(len(calls), i32),
        np.array([one[3] for one in calls], np.uint8), np.array([names.index(one[2]) for one in calls], i32),
        np.full(len(calls), NONE, i64), np.zeros(len(calls), i32),
    )  # fmt: skip
    zeros = np.zeros(len(work), i64)
    of_work = Work(
        np.array([one[0] for one in work], i64), np.array([one[1] for one in work], i64), zeros, zeros,
        np.array([one[2] for one in work], np.uint8), np.array([names.index(one[3]) for one in work], i32),
        np.full(len(work), NONE, i64), np.full(len(work), NONE, i32), np.full(len(work), 4096, i64),
    )  # fmt: skip
    return replace(rank(table, number), trace=Trace(of_calls, of_work, names))


@pytest.fixture
def recorded() -> Run:
    return run(traced_rank())


def spent(ledger, steps, **wanted) -> dict[Device, int]:
    inside = ledger.rows(steps=steps.steady, **wanted)
    return {
        d: int(ledger.ns[inside & (ledger.device == d)].sum()) for d in Device if (ledger.device[inside] == d).any()
    }


def test_the_windows_steps_are_not_in_the_statistics(recorded):
    segments = segment(recorded, warmup=0)
    seen = windows_of(recorded, segments)
    assert segments.steps.steady_count == STEADY
    assert seen is not None and seen.steps.count == SEEN
    assert seen.dilation == 1.2


def test_each_phase_is_divided_by_what_the_device_did_in_it(recorded):
    ledger, _, segments = account(recorded, 0)
    assert ledger.ns.sum() == recorded.ranks[0].end_ns - recorded.ranks[0].start_ns  # exact, as before
    steps = segments.steps
    assert spent(ledger, steps, phase=Phase.BACKWARD) == {Device.COMPUTE: STEADY * 4 * MS}
    assert spent(ledger, steps, phase=Phase.FORWARD) == {Device.IDLE: STEADY * 4 * MS}
    assert spent(ledger, steps, phase=Phase.OPTIMIZER) == {Device.COPY: STEADY * MS, Device.IDLE: STEADY * MS}
    assert spent(ledger, steps, phase=Phase.FORWARD, activity=Activity.LAUNCH) == {Device.IDLE: STEADY * 4 * MS}
    assert set(spent(ledger, steps)) == {Device.COMPUTE, Device.COPY, Device.IDLE}


def test_what_the_window_shows_is_brought_to_the_length_of_the_steady_steps(recorded):
    _, tables, _ = account(recorded, 0)
    used = tables.device
    assert used is not None
    scale = STEADY * 10 / (SEEN * 12)
    assert used.compute_ns == round(SEEN * 4 * MS * scale)
    assert used.idle_ns + used.busy_ns == pytest.approx(tables.steady_ns, abs=4)  # ns, of rounding four sums
    assert used.dilation == 1.2
    (copies,) = used.copies
    assert (copies.count, copies.nbytes) == (round(SEEN * scale), round(SEEN * 4096 * scale))
    assert sum(one.ns for one in used.idling) == pytest.approx(used.idle_ns, abs=len(used.idling))


def test_a_run_without_a_window_is_accounted_as_before(recorded):
    bare = run(replace(recorded.ranks[0], trace=None))
    ledger, tables, segments = account(bare, 0)
    assert windows_of(bare, segments) is None and tables.device is None
    assert set(np.unique(ledger.device)) == {Device.NONE}


def test_a_window_that_one_rank_lacks_is_left_out(recorded):
    both = run(recorded.ranks[0], replace(traced_rank(1), trace=None))
    assert windows_of(both, segment(both, 0)) is None


def test_a_window_with_one_whole_step_shows_nothing_of_what_is_usual(recorded):
    one = recorded.ranks[0]
    assert one.trace is not None
    late = one.trace.calls.start_ns >= one.rows.start_ns[4]
    calls = Calls(*(getattr(one.trace.calls, name)[late] for name in Calls.__slots__))
    cut = run(replace(one, trace=replace(one.trace, calls=calls)))
    assert windows_of(cut, segment(cut, 0)) is None
