"""The trace for Perfetto: whole, on one clock, slices nested."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from unstall.model.errors import UnstallError
from unstall.model.report import Track
from unstall.views import perfetto

BASE_NS = 1_700_000_000_000_000_000
US = 1_000


def track(rank, name, labels, *slices):
    start, end, label = np.array(slices, np.int64).reshape(-1, 3).T
    return Track(rank, name, BASE_NS + start * US, BASE_NS + end * US, label.astype(np.int32), labels)


def tracks(rank=0):
    return (
        track(rank, "steps", ("step", "warm-up step"), (0, 100, 1), (100, 200, 0), (200, 300, 0)),
        track(rank, "host", ("forward", "backward"), (0, 50, 0), (50, 100, 1), (100, 160, 0), (160, 300, 1)),
        track(rank, "host", ("launch",), (10, 20, 0), (60, 100, 0)),
        track(rank, "device", ("compute", "idle"), (0, 15, 1), (15, 300, 0)),
    )


def nests(events):
    """Return whether the slices of each thread lie in one another or apart."""
    threads = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in threads.values():
        open_until = []
        for start, end in sorted(slices, key=lambda one: (one[0], -one[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            if open_until and end > open_until[-1]:
                return False
            open_until.append(end)
    return True


@pytest.fixture
def report(samples):
    return replace(samples["starved"], tracks=tracks())


def written(report, tmp_path, originals=(), base_ns=0, name="out.json"):
    perfetto.save(report, originals, base_ns, tmp_path / name)
    data = (tmp_path / name).read_bytes()
    return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)["traceEvents"]


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_it_is_json_and_its_slices_nest(report, tmp_path, name):
    events = written(report, tmp_path, name=name)
    assert nests(events)
    assert {"process_name", "thread_name"} <= {event["name"] for event in events}
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_originals_stand_before_ours_as_they_are(report, tmp_path):
    original = b'[{"ph":"X","name":"a","ts":0.001,"dur":2,"pid":1,"tid":1},\n {"ph":"i","name":"b","ts":1}]'
    events = written(report, tmp_path, [original, b"[]", b" [ ] ", b'[{"ph":"M","name":"c"}]'])
    assert [event["name"] for event in events[:3]] == ["a", "b", "c"]
    assert original.strip(b"[]") in (tmp_path / "out.json").read_bytes()
    assert nests(events)


def test_times_are_on_the_clock_of_the_originals_to_the_nanosecond(report, tmp_path):
    report = replace(report, tracks=(track(0, "device", ("compute",), (0, 1, 0)),))
    report.tracks[0].start_ns[0] += 1
    written(report, tmp_path, base_ns=BASE_NS)
    assert '"ts": 0.001, "dur": 0.999' in (tmp_path / "out.json").read_text()
    written(report, tmp_path)
    assert '"ts": 1700000000000000.001, "dur": 0.999' in (tmp_path / "out.json").read_text()


def test_a_finding_lies_on_every_steady_step_and_one_of_the_run_on_the_whole(report, tmp_path):
    events = written(report, tmp_path)
    starved = [event for event in events if event["name"].startswith("data/starved-loader: A batch costs 168 ms")]
    assert [round(event["ts"] - BASE_NS / US) for event in starved] == [100, 200]
    assert starved[0]["args"]["where"] == "train.py:41"
    assert starved[0]["args"]["a batch"] == "12.4 MB"
    saving = [event for event in events if event["name"].startswith("io/checkpoint-in-loop")]
    assert [event["dur"] for event in saving] == [300.0]


def test_ranks_are_processes_of_their_own(samples, tmp_path):
    report = replace(samples["traces"], tracks=tracks(0) + tracks(1))
    events = written(report, tmp_path)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert sorted(names.values()) == ["unstall, rank 0", "unstall, rank 1"]
    assert nests(events)
    threads = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert len(threads) == 8


def test_many_steps_in_a_row_are_one_slice_of_a_finding(report, tmp_path):
    many = [(n, n + 1, 0) for n in range(perfetto.MOST_SLICES + 1)]
    report = replace(report, tracks=(track(0, "steps", ("step", "warm-up step"), *many),))
    events = written(report, tmp_path)
    assert sum(event["name"].startswith("data/starved-loader") for event in events) == 1


def test_a_report_without_tracks_is_a_trace_all_the_same(samples):
    assert json.loads(perfetto.render(samples["starved"]))["traceEvents"]


def test_a_file_that_cannot_be_written_is_named(report, tmp_path):
    with pytest.raises(UnstallError, match="could not be written"):
        perfetto.save(report, (), 0, tmp_path / "nowhere" / "out.json")
