"""A file that is cut, damaged or no trace: what can be read is read, or a message; never a traceback, never all memory."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unstall.model.errors import UnstallError
from unstall.model.run import Run
from unstall.readers import _events, _kept, join
from unstall.readers.kineto import read_trace

from traced import kernel, span, trace, write  # isort: skip

TEXT = json.dumps(trace(steps=3, rank=0, world=1), indent=1).encode()
PACKED = gzip.compress(TEXT, 6, mtime=0)


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv(_kept.OFF, "1")


def read(tmp_path, data, name="trace.json"):
    return read_trace(write(tmp_path / name, data))


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_a_text_cut_short_is_read_up_to_the_cut(tmp_path, part):
    whole = read(tmp_path, TEXT).trace
    cut = TEXT[: int(len(TEXT) * part)]
    rank = read(tmp_path, cut)
    got = rank.trace
    assert 0 < got.calls.start_ns.size < whole.calls.start_ns.size
    assert len(cut) - 600 < got.cut_at <= len(cut)  # no event of it is longer
    assert TEXT[got.cut_at - 1 : got.cut_at] == b"}"
    assert "ends in the middle" in rank.facts.known["trace.trouble"]
    run = join.read([tmp_path / "trace.json"])
    assert f"at byte {got.cut_at} of its text" in run.coverage.trouble[0]


@pytest.mark.parametrize("part", [0.5, 0.9, 0.999])
def test_gzip_cut_short_is_read_up_to_the_cut(tmp_path, part):
    made = write(tmp_path / "whole.json.gz", trace(steps=400)).read_bytes()
    whole = read_trace(tmp_path / "whole.json.gz").trace
    rank = read(tmp_path, made[: int(len(made) * part)], "cut.json")
    assert part - 0.2 < rank.trace.calls.start_ns.size / whole.calls.start_ns.size < 1 or part > 0.99
    assert "gzip stream ends in the middle" in rank.facts.known["trace.trouble"]
    assert rank.trace.cut_at is not None


def test_gzip_with_a_wrong_sum_says_so(tmp_path):
    damaged = bytearray(PACKED)
    damaged[-6] ^= 0xFF
    (tmp_path / "sum.json.gz").write_bytes(damaged)
    rank = read_trace(tmp_path / "sum.json.gz")
    assert "damaged" in rank.facts.known["trace.trouble"]
    assert rank.trace.calls.start_ns.size == read(tmp_path, TEXT).trace.calls.start_ns.size


def test_gzip_in_several_members_is_one_text(tmp_path):
    half = len(TEXT) // 2
    (tmp_path / "two.gz").write_bytes(gzip.compress(TEXT[:half]) + gzip.compress(TEXT[half:]) + b"\0" * 100)
    assert read_trace(tmp_path / "two.gz").trace.cut_at is None


def test_a_damaged_event_is_passed_over_and_told(tmp_path):
    at = TEXT.index(b'"aten::mm"')
    damaged = TEXT[:at] + b"\x01#!" + TEXT[at + 3 :]
    rank = read(tmp_path, damaged)
    assert rank.trace.cut_at is None
    assert rank.facts.known["trace.unreadable"] == 1
    assert TEXT.rindex(b"{", 0, at) == rank.facts.known["trace.unreadable_at"]
    assert rank.trace.calls.start_ns.size == read(tmp_path, TEXT).trace.calls.start_ns.size - 1
    write(tmp_path / "trace.json", damaged)
    assert "1 damaged event passed over" in join.read([tmp_path / "trace.json"]).coverage.trouble[0]


@pytest.mark.parametrize("value", ["nan", "-inf", "NaN", "Infinity", "inf"])
def test_numbers_that_are_none_cost_nothing_where_they_are_not_needed(tmp_path, value):
    text = TEXT.replace(b'"bytes": 4096', f'"bytes": 4096, "memory bandwidth (GB/s)": {value}'.encode())
    assert text != TEXT
    rank = read(tmp_path, text)
    assert rank.trace.cut_at is None and "trace.unreadable" not in rank.facts.known
    assert rank.trace.calls.start_ns.size == read(tmp_path, TEXT).trace.calls.start_ns.size


@pytest.mark.parametrize("ts", ['"soon"', "null", "[1]", "1e400", "-1e400", "9" * 30, "9" * 5000, "1e-999999999"])
def test_a_time_that_is_none_leaves_its_event_out(tmp_path, ts):
    good, odd = span("cpu_op", "aten::mm", 7, 1), span("cpu_op", "odd", 111, 1)
    text = json.dumps([good, odd, good]).replace("111", ts)
    rank = read(tmp_path, text)
    left = rank.facts.known.get("trace.dropped", 0) + rank.facts.known.get("trace.unreadable", 0)
    assert left + rank.trace.calls.start_ns.size == 3
    assert rank.trace.names[rank.trace.calls.name[-1]] == "aten::mm" or ts.startswith("1e-")


def test_negative_durations_are_left_out_and_counted(tmp_path):
    made = [span("cpu_op", "aten::mm", 7, 1), span("cpu_op", "odd", 8, -1), kernel("k", 9, -0.001, 3)]
    write(tmp_path / "trace.json", made)
    run = join.read([tmp_path / "trace.json"])
    assert run.ranks[0].trace.calls.start_ns.size == 1
    assert run.ranks[0].facts.known["trace.dropped"] == 2
    assert "2 events with a negative or impossible time" in run.coverage.trouble[0]


def test_deep_nesting_is_passed_over(tmp_path):
    deep = b"[" * 200_000 + b"]" * 200_000
    text = TEXT.replace(b'"Python id": 1', b'"Python id": ' + deep, 1)
    assert text != TEXT
    rank = read(tmp_path, text)
    assert rank.trace.calls.start_ns.size >= read(tmp_path, TEXT).trace.calls.start_ns.size - 1
    with pytest.raises(UnstallError):
        read(tmp_path, b"[" * 200_000)
    with pytest.raises(UnstallError):
        read(tmp_path, b'{"a":' * 200_000)


def test_an_event_longer_than_any_is_refused_with_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(_events, "PIECE", 10_000)
    monkeypatch.setattr(_events, "LARGEST", 50_000)
    made = [span("cpu_op", "aten::mm", 7, 1), span("cpu_op", "x" * 200_000, 8, 1), span("cpu_op", "aten::mm", 9, 1)]
    with pytest.raises(UnstallError, match=r"the event at byte 1[0-9]* is longer than"):
        read(tmp_path, made)


def test_a_long_event_within_the_bound_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(_events, "PIECE", 10_000)
    made = [span("cpu_op", "aten::mm", 7, 1), span("cpu_op", "x" * 200_000, 8, 1), span("cpu_op", "aten::mm", 9, 1)]
    assert read(tmp_path, made).trace.calls.start_ns.size == 3


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"  \n", "it is empty"),
        (PACKED[:5], "it is empty"),
        (b"hello", "it is not JSON"),
        (b"\x89PNG\r\n", "it is not JSON"),
        (b"{}", 'no "traceEvents"'),
        (b'{"schema": "1.0.1", "pid": 1, "nodes": []}', "an execution trace"),
        (b"[[-1, 1, 512, 7], [-1, 1, 512, 7]]", "memory timeline"),
        (b"[]", "no calls and no device work"),
        (b'{"traceEvents": []}', "no calls and no device work"),
        (b'{"traceEvents": [', "it ends in the middle, at byte 17"),
        (b'[{"a": 1}, 7]', "events that cannot be read, at byte 11"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path, data, why):
    (tmp_path / "file.json").write_bytes(data)
    with pytest.raises(UnstallError, match=r"file\.json") as raised:
        read_trace(tmp_path / "file.json")
    assert why in str(raised.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(UnstallError, match=r"gone\.json cannot be read: No such file"):
        read_trace(tmp_path / "gone.json")
    with pytest.raises(UnstallError, match="cannot be read: Is a directory"):
        read_trace(tmp_path)


def test_a_little_gzip_that_holds_much_is_read_in_little_memory(tmp_path):
    import tracemalloc

    (tmp_path / "bomb.json").write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (100 << 20), 1))
    tracemalloc.start()
    try:
        with pytest.raises(UnstallError):
            read_trace(tmp_path / "bomb.json")
        assert tracemalloc.get_traced_memory()[1] < 6 * _events.LARGEST
    finally:
        tracemalloc.stop()


def changed(data: bytes, edits) -> bytes:
    made = bytearray(data)
    for what, place, value in edits:
        at = int(place * len(made))
        if what == "cut":
            del made[at:]
        elif what == "flip" and at < len(made):
            made[at] ^= value or 1
        elif what == "insert":
            made[at:at] = bytes([value]) * (1 + value % 7)
        elif what == "drop":
            del made[at : at + value]
        elif what == "repeat":
            made[at:at] = made[at : at + value]
    return bytes(made)


EDITS = st.lists(
    st.tuples(st.sampled_from(["cut", "flip", "insert", "drop", "repeat"]), st.floats(0, 1), st.integers(0, 255)),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("data", [TEXT, PACKED], ids=["json", "gzip"])
@pytest.mark.parametrize("piece", [900, 8 << 20])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_only_a_run_or_a_message_comes_out_of_a_damaged_file(tmp_path, monkeypatch, data, piece, edits):
    monkeypatch.setattr(_events, "PIECE", piece)
    (tmp_path / "fuzzed.json").write_bytes(changed(data, edits))
    try:
        run = join.read([tmp_path / "fuzzed.json"])
    except UnstallError as error:
        assert "fuzzed.json" in str(error)
    else:
        assert isinstance(run, Run) and run.ranks[0].trace is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
FIELD = st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"])
ARGUMENT = st.sampled_from(
    ["correlation", "stream", "device", "bytes", "Input type", "Input Dims", "Call stack", "dtype"]
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=st.dictionaries(FIELD, JSON, max_size=3), arguments=st.dictionaries(ARGUMENT, JSON, max_size=3), top=JSON)
def test_fields_of_any_type_are_let_pass_or_counted(tmp_path, fields, arguments, top):
    good = span("cpu_op", "aten::mm", 1, 2)
    odd = [
        {**kernel("k", 3, 1, 1), **fields},
        {**kernel("k", 3, 1, 1), "args": arguments},
        {**span("cpu_op", "o", 3, 1), "args": arguments},
    ]
    around = {"distributedInfo": top, "deviceProperties": [top], "baseTimeNanoseconds": top, "with_stack": top}
    (tmp_path / "odd.json").write_text(json.dumps({**around, "traceEvents": [good, *odd], "record_shapes": top}))
    rank = join.read([tmp_path / "odd.json"]).ranks[0]
    assert "aten::mm" in rank.trace.names


def test_a_long_tail_is_no_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(_events, "PIECE", 2_000)
    monkeypatch.setattr(_events, "LARGEST", 8_000)
    rank = read(tmp_path, {**trace(steps=2), "notes": "x" * 30_000})
    assert rank.trace.cut_at is None and rank.trace.calls.start_ns.size == 16


def test_many_damaged_events_take_no_longer_each(tmp_path):
    import time

    def spent(count):
        text = json.dumps([span("cpu_op", "aten::mm", at, 1) for at in range(count)]).replace('"pid":', '"pid"')
        start = time.process_time()
        with pytest.raises(UnstallError, match="cannot be read, at byte 1 "):
            read(tmp_path, text)
        return time.process_time() - start

    spent(100)
    assert spent(24_000) < 40 * spent(2_000)  # 12 times as many; 144 times where each takes longer than the last
