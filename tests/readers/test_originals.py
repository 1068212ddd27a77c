"""The events of traces as they stand in their files."""

from __future__ import annotations

import gzip
import json

import pytest
from small_trace import BEGIN_US, HOST, Made, ranks

from unstall.model.errors import UnstallError
from unstall.readers import originals as module
from unstall.readers.originals import originals


def events_of(*paths):
    _, pieces = originals(paths, range(len(paths)))
    return [event for piece in pieces for event in json.loads(piece)]


def truth(path):
    record = json.loads(path.read_text())
    return record if isinstance(record, list) else record["traceEvents"]


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(module, "PIECE", 700)


def test_one_trace_is_passed_through(tmp_path, small_pieces):
    path = Made(steps=9).write(tmp_path / "trace.json")
    assert events_of(path) == truth(path)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert events_of(packed) == truth(path)


def test_a_bare_list_is_a_trace_too(tmp_path, small_pieces):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(truth(Made().write(path)), indent=1))
    assert events_of(path) == truth(path)


def test_every_digit_of_a_time_is_kept(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1700000000000000.001, "dur": 0.010, "pid": 1}]}')
    _, pieces = originals([path], [0])
    assert b'"ts": 1700000000000000.001, "dur": 0.010' in b"".join(pieces)


@pytest.mark.parametrize("left", [0.2, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_short_gives_what_is_whole(tmp_path, small_pieces, left):
    path = Made(steps=9).write(tmp_path / "trace.json")
    whole, text = truth(path), path.read_bytes()
    path.write_bytes(text[: int(left * len(text))])
    got = events_of(path)
    assert got == whole[: len(got)]
    assert len(got) >= left * len(whole) - 6  # what precedes and follows the events is text too


def test_an_event_that_is_no_json_is_left_out(tmp_path, small_pieces):
    path = Made(steps=9).write(tmp_path / "trace.json")
    whole = truth(path)
    path.write_text(path.read_text().replace('"bytes": 4096', '"bytes": NaN', 1))
    assert len(events_of(path)) == len(whole) - 1


def test_lists_of_objects_within_an_event_do_not_end_the_trace(tmp_path, small_pieces):
    made = Made(steps=9)
    made.call("cpu_op", "odd", 0, 1, shapes=[{"a": 1}, {"b": [{"c": 2}]}])
    made.call("cpu_op", "last", 5, 1, shapes=[{"a": 1}, {"b": [{"c": 2}]}])
    path = made.write(tmp_path / "trace.json")
    assert events_of(path) == truth(path)


def test_processes_and_flows_of_ranks_are_told_apart(tmp_path, small_pieces):
    paths = ranks(tmp_path, 2, 0, 1)
    events = events_of(*paths)
    assert len(events) == sum(len(truth(path)) for path in paths)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert sorted(names.values()) == ["rank 0: python"] * 2 + ["rank 1: python"] * 2
    assert len(names) == 4
    assert HOST in names
    flows = [event["id"] for event in events if event["ph"] == "s"]
    assert len(set(flows)) == len(flows)
    assert set(flows) == {event["id"] for event in events if event["ph"] == "f"}


def test_clocks_that_count_from_different_moments_are_brought_together(tmp_path):
    paths = ranks(tmp_path, 2, 0, 1)
    for number, path in enumerate(paths):
        record = json.loads(path.read_text())
        record["baseTimeNanoseconds"] = 1000 + 2500 * number
        path.write_text(json.dumps(record))
    base_ns, pieces = originals(paths, (0, 1))
    assert base_ns == 1000
    first, second = (json.loads(piece) for piece in pieces)
    assert [event["ts"] for event in first[:3]] == [BEGIN_US] * 3
    assert [event["ts"] for event in second[:3]] == [BEGIN_US + 2.5] * 3


def test_what_is_no_trace_has_no_events_and_what_is_not_there_is_named(tmp_path):
    (tmp_path / "other.json").write_text('{"nodes": []}')
    assert events_of(tmp_path / "other.json") == []
    with pytest.raises(UnstallError, match="cannot be read"):
        originals([tmp_path / "nowhere.json"], [0])
