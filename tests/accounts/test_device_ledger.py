"""The ledger of host and device: laws that hold for any calls and any work."""

from dataclasses import replace

import numpy as np
from device_drawn import FRAME, OPERATOR, RANGE, RUNTIME, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

from unstall.model.trace import Work
from unstall.model.wire import Activity, Device, Phase
from unstall.pipeline import account

END = 60
NAMES = {
    OPERATOR: ["aten::mm", "autograd::engine::evaluate_function: MmBackward0", "gloo:all_reduce"],
    RUNTIME: ["cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync"],
    RANGE: [
        "Optimizer.step#SGD.step",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "ProfilerStep#1",
    ],
    FRAME: ["train.py(41): main", "nn.Module: Linear_0", "torch/nn/functional.py(7): relu"],
}
WORK = ["kernel", "nccl all-reduce", "Memcpy HtoD", "Memcpy DtoH"]
spans = st.tuples(st.integers(0, END), st.integers(0, 20)).map(lambda p: (p[0], min(END, p[0] + p[1])))


@st.composite
def calls(draw):
    kind = draw(st.sampled_from(list(NAMES)))
    name, (start, end) = draw(st.sampled_from(NAMES[kind])), draw(spans)
    launches = draw(st.sampled_from([None, None, *WORK])) if kind == RUNTIME else None
    return kind, name, start, end, draw(st.integers(0, 1)), launches


works = st.tuples(st.sampled_from(WORK), spans, st.integers(0, 1)).map(lambda w: (w[0], *w[1], w[2]))
runs = st.builds(
    lambda called, work, cut: trace_of(called, work, ((5, cut), (cut, 55)), END),
    st.lists(calls(), max_size=12),
    st.lists(works, min_size=1, max_size=8),
    st.integers(6, 54),
)


def entries(ledger):
    columns = (ledger.step, ledger.phase, ledger.activity, ledger.device, ledger.basis, ledger.ns)
    return sorted(zip(*(column.tolist() for column in columns)))


def shifted(run, by):
    rank = run.ranks[0]
    moved = {
        name: replace(table, start_ns=table.start_ns + by, end_ns=table.end_ns + by)
        for name, table in (("calls", rank.trace.calls), ("work", rank.trace.work))
    }
    events = replace(rank.events, start_ns=rank.events.start_ns + by, end_ns=rank.events.end_ns + by)
    times = {name: getattr(rank, name) + by for name in ("start_ns", "end_ns", "seen_start_ns", "seen_end_ns")}
    return replace(run, ranks=(replace(rank, **times, events=events, trace=replace(rank.trace, **moved)),))


def cut(work, n, at):
    """Return *work* with piece *n* made two that touch *at* a moment within it."""
    columns = {name: np.append(getattr(work, name), getattr(work, name)[n]) for name in work.__dataclass_fields__}
    columns["end_ns"][n] = columns["start_ns"][-1] = at
    order = np.argsort(columns["start_ns"], kind="stable")
    return Work(**{name: column[order] for name, column in columns.items()})


def states(run):
    """Return what the device does at each moment, looked up piece by piece."""
    work, found = run.ranks[0].trace.work, []
    for at in range(END):
        kinds = set(work.kind[(work.start_ns <= at) & (work.end_ns > at)].tolist())
        shown = (kind for kind in (Device.COMPUTE, Device.COLLECTIVE, Device.COPY) if kind in kinds)
        found.append(next(shown, Device.IDLE))
    return found


@given(runs)
def test_the_ledger_balances_and_idle_time_and_the_path_add_up(run):
    tables = account(run)[1]  # a ledger that does not balance is not constructed
    use = tables.device
    assert use.busy_ns + use.idle_ns == tables.steady_ns == 50
    assert sum(row.ns for row in use.idling) == use.idle_ns
    assert sum(part.ns for part in use.critical) == tables.steady_ns
    assert all(kernel.critical_ns <= kernel.ns for kernel in use.kernels)


@given(runs)
def test_the_device_is_what_a_look_at_each_moment_finds(run):
    ledger, _, _ = account(run)
    for device in Device:
        assert ledger.ns[ledger.device == device].sum() == states(run).count(device)


@given(runs, st.integers(-(10**18), 10**18))
@settings(max_examples=40)
def test_a_shift_of_the_clock_changes_nothing(run, by):
    ledger, tables, _ = account(run)
    moved, moved_tables, _ = account(shifted(run, by))
    assert entries(moved) == entries(ledger)
    assert moved_tables.device == tables.device


@given(runs, st.data())
@settings(max_examples=40)
def test_a_kernel_that_is_cut_in_two_keeps_the_device_as_busy(run, data):
    rank = run.ranks[0]
    long = np.flatnonzero(rank.trace.work.end_ns - rank.trace.work.start_ns > 1)
    if not long.size:
        return
    n = data.draw(st.sampled_from(long.tolist()))
    at = data.draw(st.integers(int(rank.trace.work.start_ns[n]) + 1, int(rank.trace.work.end_ns[n]) - 1))
    in_two = replace(run, ranks=(replace(rank, trace=replace(rank.trace, work=cut(rank.trace.work, n, at))),))
    (ledger, tables, _), (other, other_tables, _) = account(run), account(in_two)
    busy = lambda of: {device: of.ns[of.device == device].sum() for device in Device}  # noqa: E731
    assert busy(other) == busy(ledger)
    assert sum(row.ns for row in other_tables.device.idling) == sum(row.ns for row in tables.device.idling)


def test_a_trace_without_device_work_has_no_device():
    ledger, tables, _ = account(trace_of([(OPERATOR, "aten::mm", 0, 500)]))
    assert tables.device is None
    assert set(ledger.device.tolist()) == {Device.NONE}
    assert ledger.total_ns(phase=Phase.FORWARD, activity=Activity.COMPUTE) == 500


def test_what_several_ranks_wait_in_a_collective_is_what_it_takes_beyond_the_shortest():
    runs = [
        trace_of([], [("kernel", 0, 100, 7), ("nccl all-reduce", start, 400, 8)], end=1000) for start in (100, 250, 310)
    ]
    ranks = tuple(replace(run.ranks[0], rank=n) for n, run in enumerate(runs))
    use = account(replace(runs[0], ranks=ranks))[1].device
    (collective,) = use.collectives
    assert (collective.count, collective.waited_ns) == (3, 210 + 60)
