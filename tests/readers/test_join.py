"""Several ranks' traces make one run on one clock, or are refused with the names of the files."""

from __future__ import annotations

import pytest

from unstall.model.errors import UnstallError
from unstall.model.run import Sensor
from unstall.readers import _kept, join

from traced import BASE_NS, kernel, span, trace, write  # isort: skip


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv(_kept.OFF, "1")


def job(folder, ranks, world=None, name="trace_{}.json.gz", **options):
    for rank in ranks:
        write(folder / name.format(rank), trace(rank=rank, world=world or len(ranks), **options))
    return folder


def nameless(**options):
    made = trace(**options)
    made.pop("distributedInfo", None)
    return made


def test_a_folder_is_one_run_in_the_order_of_the_ranks(tmp_path):
    run = join.read([job(tmp_path, [1, 0, 2])])
    assert [rank.rank for rank in run.ranks] == [0, 1, 2]
    assert run.missing_ranks == ()
    assert {Sensor.DEVICE, Sensor.STEPS, Sensor.COLLECTIVES} == run.coverage.observed
    assert Sensor.SAMPLES in run.coverage.missing


def test_files_globs_and_folders_name_the_same_run_once(tmp_path):
    job(tmp_path, [0, 1])
    for given in ([tmp_path / "trace_0.json.gz", str(tmp_path / "trace_1.json.gz")], [f"{tmp_path}/trace_?.json.gz"]):
        assert [rank.rank for rank in join.read(given).ranks] == [0, 1]
    assert len(join.read([tmp_path, tmp_path / "trace_0.json.gz", f"{tmp_path}/*"]).ranks) == 2


def test_missing_ranks_are_listed(tmp_path):
    assert join.read([job(tmp_path, [0, 3], world=6)]).missing_ranks == (1, 2, 4, 5)


@pytest.mark.parametrize("name", ["rank-{}.Jul_15.pt.trace.json", "host_rank_{}.json", "worker{}.123.pt.trace.json.gz"])
def test_the_files_name_tells_the_rank_where_the_file_does_not(tmp_path, name):
    for rank in (2, 5):
        write(tmp_path / name.format(rank), nameless())
    assert [rank.rank for rank in join.read([tmp_path]).ranks] == [2, 5]


def test_one_trace_that_names_no_rank_is_rank_0(tmp_path):
    assert join.read([write(tmp_path / "rank-7.json", nameless())]).ranks[0].rank == 0


def test_two_that_name_no_rank_are_refused(tmp_path):
    for name in ("a.json", "b.json"):
        write(tmp_path / name, nameless())
    with pytest.raises(UnstallError, match=r"a\.json.*b\.json do not say which rank"):
        join.read([tmp_path])


def test_two_of_one_rank_are_refused_with_both_names(tmp_path):
    write(tmp_path / "old.json", trace(rank=1, world=2))
    write(tmp_path / "new.json", trace(rank=1, world=2))
    with pytest.raises(UnstallError, match=r"new\.json and .*old\.json are both of rank 1"):
        join.read([tmp_path])


def refused(tmp_path, one, other):
    write(tmp_path / "one.json", {"distributedInfo": {"rank": 0, "world_size": 2}, **one})
    write(tmp_path / "other.json", {"distributedInfo": {"rank": 1, "world_size": 2}, **other})
    with pytest.raises(UnstallError, match=r"one\.json.*other\.json|other\.json.*one\.json") as raised:
        join.read([tmp_path])
    return str(raised.value)


def test_jobs_of_two_sizes_are_refused(tmp_path):
    other = trace(rank=1, world=4)
    assert "a job of 2 processes, the other of 4" in refused(tmp_path, trace(rank=0, world=2), other)


def test_traces_an_hour_apart_are_refused(tmp_path):
    made = trace(steps=1)
    made["traceEvents"].append(span("cpu_op", "long", 5000, 2e10))
    assert "begin 2.0 hours apart" in refused(tmp_path, made, trace(base_ns=BASE_NS + 7200 * 10**9))


def test_traces_that_do_not_overlap_are_refused(tmp_path):
    assert "s after the other has ended" in refused(tmp_path, trace(), trace(base_ns=BASE_NS + 60 * 10**9))


def test_traces_that_almost_do_not_overlap_are_one_run(tmp_path):
    for rank in (0, 1):
        write(tmp_path / f"{rank}.json", trace(rank=rank, world=2, base_ns=BASE_NS + rank * 2_900_000))
    assert len(join.read([tmp_path]).ranks) == 2


def test_clocks_of_two_kinds_are_refused(tmp_path):
    assert "their clocks differ" in refused(tmp_path, trace(), trace(base_ns=0))


def test_clocks_that_count_from_anywhere_are_not_compared(tmp_path):
    for rank in (0, 1):
        write(tmp_path / f"{rank}.json", trace(rank=rank, world=2, base_ns=0, at=5000.0 + rank * 1e6))
    assert "from an unknown moment" in join.read([tmp_path]).facts.known["clock"]


def test_a_folder_may_hold_what_is_no_trace(tmp_path):
    job(tmp_path, [0, 1])
    write(tmp_path / "config.json", {"lr": 0.1})
    run = join.read([tmp_path])
    assert len(run.ranks) == 2 and run.facts.known["traces.passed_over"] == ["config.json"]
    with pytest.raises(UnstallError, match=r"config\.json is not a profiler's trace"):
        join.read([tmp_path / "config.json", tmp_path / "trace_0.json.gz"])


def test_a_trace_without_a_device_says_what_to_record(tmp_path):
    run = join.read([write(tmp_path / "cpu.json", [span("cpu_op", "aten::mm", 1, 2)])])
    assert run.coverage.missing[Sensor.DEVICE].startswith("no device activity in the trace; record again")
    assert run.coverage.missing[Sensor.STEPS].startswith("no step is named")
    assert not run.coverage.observed


def test_a_collective_on_the_host_is_one(tmp_path):
    run = join.read([write(tmp_path / "cpu.json", [span("user_annotation", "gloo:all_reduce", 1, 2)])])
    assert Sensor.COLLECTIVES in run.coverage.observed


def test_a_rank_without_a_device_is_named(tmp_path):
    write(tmp_path / "0.json", {**trace(rank=0, world=2), "traceEvents": [span("cpu_op", "aten::mm", 5001, 99)]})
    write(tmp_path / "1.json", trace(rank=1, world=2))
    assert join.read([tmp_path]).coverage.missing[Sensor.DEVICE].endswith("(rank 0)")


@pytest.mark.parametrize("given", ["gone.json", "gone*.json", "."])
def test_what_is_not_there_is_named(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnstallError, match=r"gone|holds no \.json"):
        join.read([given])
    with pytest.raises(UnstallError, match="no trace was given"):
        join.read([])


def test_processes_side_by_side_read_the_same(tmp_path, monkeypatch):
    job(tmp_path, [0, 1])
    write(tmp_path / "config.json", {"lr": 0.1})
    alone = join.read([tmp_path])
    monkeypatch.setattr(join, "SMALL", 0)
    monkeypatch.setattr(join, "_usable_cores", lambda: 2)
    side_by_side = join.read([tmp_path])
    for one, other in zip(alone.ranks, side_by_side.ranks):
        assert one.facts == other.facts and one.trace.names == other.trace.names
        assert one.trace.calls.start_ns.tolist() == other.trace.calls.start_ns.tolist()
        assert one.trace.work.launch.tolist() == other.trace.work.launch.tolist()
    assert side_by_side.facts.known["traces.passed_over"] == ["config.json"]


def test_a_device_that_only_one_piece_of_work_used_is_not_the_ranks(tmp_path):
    made = trace(steps=2)
    made["deviceProperties"].append({"id": 1, "name": "Slow GPU"})
    made["traceEvents"].append({**kernel("k", 5100, 1, 5), "args": {"device": 1, "stream": 7, "correlation": 5}})
    run = join.read([write(tmp_path / "t.json", made)])
    assert run.facts.known["gpu.name"] == "Fast GPU" and run.facts.known["gpu.count"] == 2
