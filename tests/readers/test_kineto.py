"""A trace is read to the last nanosecond, and each piece of device work to the call that launched it."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest

from unstall.model.errors import UnstallError
from unstall.model.trace import NONE, Call
from unstall.model.wire import Device, Kind
from unstall.readers import _events, _kept
from unstall.readers.kineto import read_trace

from traced import BASE_NS, kernel, span, step, trace, write  # isort: skip


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv(_kept.OFF, "1")


def read(tmp_path, made, name="trace.json", indent=None):
    return read_trace(write(tmp_path / name, made, indent))


def rows(rank):
    """Return all that was read, as plain tuples."""
    calls, work, names = rank.trace.calls, rank.trace.work, rank.trace.names
    return (
        [
            (int(s), int(e), names[n], rank.trace.threads[t], int(c), int(k), names[d])
            for s, e, n, t, c, k, d in zip(
                calls.start_ns, calls.end_ns, calls.name, calls.thread, calls.call, calls.correlation, calls.detail
            )
        ],
        [
            (int(s), int(e), names[n], int(d), int(m), int(k), int(b))
            for s, e, n, d, m, k, b in zip(
                work.start_ns, work.end_ns, work.name, work.device, work.stream, work.kind, work.nbytes
            )
        ],
        [calls.start_ns[row] if row != NONE else None for row in work.launch],
    )


def test_calls_work_and_launches_are_those_of_the_file(tmp_path):
    rank = read(tmp_path, trace(steps=2))
    calls, work = rank.trace.calls, rank.trace.work
    assert np.bincount(calls.call).tolist() == [6, 6, 2, 2]
    assert np.bincount(work.kind).tolist() == [0, 2, 2, 2]
    names = rank.trace.names
    launched = [(names[work.name[row]][:6], names[calls.name[work.launch[row]]]) for row in range(3)]
    assert launched == [("Memcpy", "cudaMemcpyAsync"), ("void g", "cudaLaunchKernel"), ("ncclDe", "cudaLaunchKernel")]
    assert work.nbytes[:3].tolist() == [4096, NONE, 4000]
    assert work.stream[:3].tolist() == [7, 7, 20]
    assert calls.start_ns[0] == BASE_NS + 5_000_125 and rank.start_ns == BASE_NS + 5_000_125
    detail = names[calls.detail[calls.call == Call.OPERATOR][0]]
    assert json.loads(detail) == [["float", [64, 128]], ["float", [128, 8]]]


def test_the_thread_that_trains_is_not_the_autograd_engine(tmp_path):
    made = trace(steps=2)
    made["traceEvents"] = [e for e in made["traceEvents"] if not e["name"].startswith("ProfilerStep")]
    made["traceEvents"] += [span("cpu_op", "aten::mul", 5001 + i, 0.5, tid=11) for i in range(50)]
    rank = read(tmp_path, made)
    assert rank.trace.threads[rank.trace.main] == "10/10"


def test_facts_name_the_device_and_nobody(tmp_path):
    known = read(tmp_path, trace(rank=1, world=4)).facts.known
    assert known["gpu.name"] == "Fast GPU" and known["gpu.compute"] == "9.0"
    assert known["rank"] == 1 and known["world_size"] == 4 and known["backend"] == "nccl"
    assert known["cuda.runtime"] == 12040 and known["profiler.record_shapes"] is True
    assert known["trace.path"] == "trace.json"
    assert not [value for value in map(str, known.values()) if "secret" in value or "somebody" in value]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_every_way_to_write_a_trace_reads_alike(tmp_path, name, indent):
    made = trace(steps=4)
    wanted = rows(read(tmp_path, made))
    assert rows(read(tmp_path, made, name, indent)) == wanted
    last_first = {key: made[key] for key in reversed(made)}
    assert rows(read(tmp_path, last_first, name, indent)) == wanted
    names_first = {**made, "traceEvents": [dict(sorted(event.items())) for event in made["traceEvents"]]}
    assert rows(read(tmp_path, names_first, name, indent)) == wanted
    assert rows(read(tmp_path, b"\xef\xbb\xbf" + json.dumps(made).encode(), name)) == wanted


def test_a_bare_list_reads_like_an_object_that_has_no_base(tmp_path):
    made = trace(base_ns=0)
    assert rows(read(tmp_path, made["traceEvents"])) == rows(read(tmp_path, made))


@pytest.mark.parametrize("piece", [700, 2_000, 5_001])
def test_pieces_cut_nowhere_change_nothing(tmp_path, monkeypatch, piece):
    made = trace(steps=12)
    wanted = rows(read(tmp_path, made))
    monkeypatch.setattr(_events, "PIECE", piece)
    for indent in (None, 2):
        rank = read(tmp_path, made, indent=indent)
        assert rows(rank) == wanted
        assert rank.trace.cut_at is None


def test_names_that_look_like_the_end_of_an_event_are_read(tmp_path, monkeypatch):
    made = trace(steps=6)
    odd = ['f<{lambda()#1}, {"ph', "a}], b", '}]}, {"ph": "X"', "::{lambda(int)#2}]", "é}, {", "\\", '"']
    made["traceEvents"][4:4] = [kernel(name, 5000 + i, 1, 900 + i) for i, name in enumerate(odd)]
    for piece in (500, 1 << 20):
        monkeypatch.setattr(_events, "PIECE", piece)
        rank = read(tmp_path, made)
        assert rank.trace.work.start_ns.size == 18 + len(odd)
        assert set(odd) <= set(rank.trace.names)


@pytest.mark.parametrize(
    "ts", ["1712166678900123.457", "1712166678900123", "1712166678900123.05", "12.3", "8796093022207.999"]
)
@pytest.mark.parametrize("dur", ["0.001", "3", "999999.999", "0"])
def test_no_nanosecond_is_lost(tmp_path, ts, dur):
    text = json.dumps([span("cpu_op", "aten::mm", 111, 222)]).replace("222", dur).replace("111", ts)
    calls = read(tmp_path, text).trace.calls
    assert int(calls.start_ns[0]) == Decimal(ts) * 1000
    assert int(calls.end_ns[0]) == (Decimal(ts) + Decimal(dur)) * 1000


def test_typed_and_plain_decoding_agree(tmp_path, monkeypatch):
    made = trace(steps=5)
    wanted = rows(read(tmp_path, made))
    monkeypatch.setattr(_events.Events, "_typed", lambda self: None)
    assert rows(read(tmp_path, made)) == wanted


def test_odd_types_are_let_pass_where_they_are_not_needed(tmp_path):
    made = trace(steps=1)
    for event in made["traceEvents"]:
        event["pid"], event["tid"] = str(event["pid"]), f"stream {event['tid']}"
    made["traceEvents"] += [
        span("kernel", "odd", 5600, 1, 0, "stream 9", device="1", stream=None, correlation="0x10", grid={"x": [1]}),
        {**span("cpu_op", "bare", 5600, 1), "args": None},
        {**span("cpu_op", "list", 5600, 1), "args": [1, 2]},
        span("cpu_op", "shapes", 5600, 1, **{"Input type": "float", "Input Dims": 7, "Call stack": None}),
    ]
    rank = read(tmp_path, made)
    work = rank.trace.work
    assert (int(work.device[-1]), int(work.stream[-1]), int(work.correlation[-1])) == (1, 9, 16)
    assert {"bare", "list", "shapes"} <= set(rank.trace.names)
    assert "trace.unreadable" not in rank.facts.known


def test_a_call_stack_of_2021_is_kept_with_its_operator(tmp_path):
    stack = "train.py(41): main;train.py(12): forward"
    calls = read(tmp_path, [span("Operator", "aten::mm", 1, 2, **{"Call stack": stack, "Input dims": [[2, 2]]})]).trace
    assert calls.names[calls.calls.detail[0]] == stack


def test_sizes_that_were_not_recorded_leave_no_detail(tmp_path):
    made = [span("cpu_op", "aten::mm", 1, 2, **{"Input type": ["", "Scalar"], "Input Dims": [[], []]})]
    assert read(tmp_path, made).trace.calls.detail.tolist() == [0]


def test_categories_of_2020_mean_the_same(tmp_path):
    new = [span("cpu_op", "aten::mm", 1, 2), span("cuda_runtime", "cudaLaunchKernel", 2, 1, correlation=3)]
    new += [kernel("k", 5, 1, 3), kernel("Memset (Device)", 7, 1, 4, cat="gpu_memset")]
    new += [span("user_annotation", "Optimizer.step#SGD.step", 8, 1)]
    old = json.loads(json.dumps(new))
    for event, category in zip(old, ("Operator", "Runtime", "Kernel", "Memset", "Operator")):
        event["cat"] = category
    assert rows(read(tmp_path, old)) == rows(read(tmp_path, new))


def test_what_has_a_stream_and_is_no_work_is_not_work(tmp_path):
    known = read(tmp_path, trace(steps=2))
    assert known.facts.known["trace.left_out"] == {"cuda_sync": 2, "gpu_user_annotation": 2}


def test_kernels_of_a_replayed_graph_share_their_launch(tmp_path):
    made = [span("cuda_runtime", "cudaGraphLaunch", 1, 2, correlation=7)]
    made += [kernel(f"k{i}", 10 + i, 1, 7) for i in range(5)] + [kernel("lost", 20, 1, 99)]
    work = read(tmp_path, made).trace.work
    assert work.launch.tolist() == [0, 0, 0, 0, 0, NONE]


def test_of_calls_with_one_correlation_the_last_before_the_work_launched_it(tmp_path):
    made = [span("mtia_runtime", f"part {at}", at, 1, correlation=7) for at in (1, 3, 30)]
    work = read(tmp_path, [*made, kernel("k", 10, 1, 7), kernel("early", 0, 1, 7)]).trace.work
    assert work.launch.tolist() == [0, 1]


def test_steps_are_the_profilers_own(tmp_path):
    rank = read(tmp_path, trace(steps=3))
    steps = rank.events
    assert (
        steps.kind.tolist() == [Kind.STEP] * 3 and steps.lane.tolist() == [0] * 3 and steps.step.tolist() == [0, 1, 2]
    )
    assert [steps.name_of(row) for row in range(3)] == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert (steps.end_ns - steps.start_ns).tolist() == [999_500] * 3
    assert "steps.inferred" not in rank.facts.known


def unnamed(*events):
    return [span("cpu_op", "aten::mm", 0, 1), *events, kernel("k", 500, 1, 1)]


@pytest.mark.parametrize(
    ("events", "wanted", "how"),
    [
        (
            [("Optimizer.step#SGD.step", at) for at in (10, 110, 210)],
            [(15, 115), (115, 215)],
            "Optimizer.step#SGD.step",
        ),
        (
            [("enumerate(DataLoader)#_X.__next__", at) for at in (10, 110)],
            [(10, 110), (110, 501)],
            "batch of the loader",
        ),
        (
            [("forward", at) for at in (10, 110, 210)] + [("once", 300)],
            [(10, 110), (110, 210), (210, 215)],
            "'forward'",
        ),
        ([("forward", 10), ("forward", 110)], [(0, 501)], "the whole of it counts as one"),
    ],
)
def test_steps_are_inferred_where_none_is_named(tmp_path, events, wanted, how):
    rank = read(tmp_path, unnamed(*(span("user_annotation", name, at, 5) for name, at in events)))
    steps = rank.events
    assert [(s // 1000, e // 1000) for s, e in zip(steps.start_ns.tolist(), steps.end_ns.tolist())] == wanted
    assert how in rank.facts.known["steps.inferred"]
    assert rank.facts.known["steps.seen"] is (len(wanted) > 1)


def test_overlapping_steps_end_where_the_next_begins(tmp_path):
    made = [span("user_annotation", f"ProfilerStep#{i}", 100 * i, 150) for i in range(3)]
    steps = read(tmp_path, made).events
    assert steps.end_ns.tolist() == [100_000, 200_000, 350_000]


def test_copies_and_collectives_are_told_by_name_where_the_category_does_not(tmp_path):
    kinds = {
        "__amd_rocclr_copyBuffer": Device.COPY,
        "ncclKernel_SendRecv_RING": Device.COLLECTIVE,
        "void vllm::cross_device_reduce_1stage<half, 2>": Device.COLLECTIVE,
        "triton_poi_fused__all_reduce_add_1": Device.COMPUTE,
        "void at::native::reduce_kernel<512>": Device.COMPUTE,
    }
    work = read(tmp_path, [kernel(name, i, 1, i) for i, name in enumerate(kinds)]).trace.work
    assert work.kind.tolist() == list(kinds.values())


def test_marks_in_a_devices_queue_are_no_work(tmp_path):
    made = [
        span("mtia_ccp_events", name, i, 1, 9, 801, size=16)
        for i, name in enumerate(("event_wait", "dma_request", "fc"))
    ]
    work = read(tmp_path, made).trace.work
    assert work.kind.tolist() == [Device.COPY, Device.COMPUTE]
    assert work.nbytes[0] == 16 and work.device.tolist() == [9, 9]


def test_step_events_of_the_made_trace_are_sorted(tmp_path):
    made = trace(steps=3)
    made["traceEvents"].reverse()
    assert rows(read(tmp_path, made)) == rows(read(tmp_path, trace(steps=3)))


def test_a_trace_with_nothing_to_account_says_what_to_record(tmp_path):
    with pytest.raises(UnstallError, match=r"no calls and no device work \(only gpu_user_annotation\)"):
        read(tmp_path, [e for e in step(0) if e.get("cat") == "gpu_user_annotation"])
