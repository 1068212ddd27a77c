"""`unstall diagnose` on profiler traces: the report, tables, Perfetto, and what is no trace."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys

import pytest
from small_trace import Made, ranks

from unstall.cli import main

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # any import of it fails
from unstall.cli import main
sys.exit(main({arguments!r}))
"""


@pytest.fixture
def trace(tmp_path):
    return Made(steps=5).write(tmp_path / "run.pt.trace.json.gz")


@pytest.fixture
def said(capsys):
    def say(*arguments):
        code = main(["diagnose", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, re.sub(r"\s+", " ", out), err

    return say


def test_a_trace_gets_the_report_of_a_run_and_says_what_it_covers(said, trace):
    code, out, err = said(trace)
    assert (code, err) == (0, "")
    assert "unstall · trace run.pt.trace.json.gz · 1 process, NVIDIA A100 · 5 steps in 5 ms" in out
    assert "covers a part of a run: 5 steps, as the profiler marks them (ProfilerStep#)" in out
    assert "step 1 ms (p10 1 ms, p90 1 ms):" in out
    assert "stack samples" in out.partition("not observed: ")[2]
    assert "recorder" not in out
    assert "cost of the profiler: not known" in out


def test_the_json_is_that_of_a_run_and_balances(said, trace, tmp_path):
    assert said(trace, "--json", tmp_path / "report.json")[0] == 0
    record = json.loads((tmp_path / "report.json").read_text())
    assert (record["format"], record["command"], record["exit_code"]) == ("unstall-report/1", [], 0)
    assert (record["run"]["steps"], record["run"]["ranks"]) == (5, 1)
    assert sum(entry["ns"] for entry in record["ledger"]) == record["run"]["rank_wall_ns"][0]
    assert record["trace"]["files"][0]["path"] == str(trace)
    assert "SAMPLES" in record["missing"]


def test_the_device_has_the_times_that_the_trace_states(said, tmp_path):
    path = Made(steps=6, collective=True).write(tmp_path / "trace.json")
    _, out, _ = said(path, "--json", tmp_path / "report.json")
    device = json.loads((tmp_path / "report.json").read_text())["device"]
    shares = {state["name"]: round(state["share"], 6) for state in device["states"]}
    assert shares == {"compute": 0.3, "collectives": 0.1, "copies": 0.02, "idle": 0.58}
    idle = device["states"][-1]
    assert sum(part["share"] for part in idle["parts"]) == pytest.approx(idle["share"])
    assert device["launches_per_step"] == 3
    assert sum(part["share"] for part in device["critical_path"]) == pytest.approx(1)
    assert "device busy" in out
    assert "42 % 420 µs compute 30 % · collectives 10 % · copies 2.0 %" in out
    assert "the step is bound by: " in out


def test_kernels_and_copies_have_the_times_that_the_trace_states(said, tmp_path):
    path = Made(steps=5, collective=True).write(tmp_path / "trace.json")
    found = {}
    for name in ("kernels", "collectives", "copies", "syncs"):
        said(path, "--table", name, "--to", tmp_path / f"{name}.csv")
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            found[name] = list(csv.DictReader(file))
    (gemm,) = [row for row in found["kernels"] if row["kernel"].startswith("void gemm")]
    count = int(gemm["count"])
    assert count >= 4
    assert (int(gemm["device_ns"]), gemm["operator"]) == (300_000 * count, "aten::linear")
    (reduce,) = found["collectives"]
    assert int(reduce["device_ns"]) == int(reduce["exposed_ns"]) == 100_000 * count
    (copy,) = found["copies"]
    assert (copy["copy"], int(copy["nbytes"])) == ("Memcpy HtoD (Pageable -> Device)", 4096 * count)
    (sync,) = found["syncs"]
    assert (sync["call"], sync["operator"], int(sync["count"])) == ("cudaStreamSynchronize", "aten::item", count)


@pytest.mark.parametrize("given", ["folder", "pattern", "files"])
def test_several_traces_are_the_ranks_of_one_job(said, tmp_path, given):
    paths = ranks(tmp_path, 4, 0, 2)
    (tmp_path / "notes.txt").write_text("not a trace")
    arguments = {"folder": [tmp_path], "pattern": [tmp_path / "*.json"], "files": paths}[given]
    code, out, _ = said(*arguments)
    assert code == 0
    assert f"2 traces of {tmp_path}" in out
    assert "2 of 4 ranks" in out
    assert "no trace of rank 1, 3" in out


def test_a_trace_that_is_cut_short_is_read_as_far_as_it_goes(said, tmp_path):
    path = Made(steps=8).write(tmp_path / "cut.json")
    path.write_text(path.read_text()[: path.stat().st_size // 2])
    code, out, _ = said(path)
    assert code == 0
    assert "device (the trace ends in the middle, and what the device did may stand in what is missing)" in out
    assert "device idle" not in out  # events stand by kind: kernels of the first step may come last
    assert re.search(r"cut.json: it ends in the middle, at byte \d+ of its text; what came before was read", out)


def test_the_time_of_a_step_without_the_profiler_tells_what_it_cost(said, trace, tmp_path):
    _, out, _ = said(trace, "--step-ms", "0.8", "--json", tmp_path / "report.json")
    assert "under the profiler a step took 1.25 times as long as without it" in out
    assert "profiler 20 % of the step" in out
    assert json.loads((tmp_path / "report.json").read_text())["overhead"]["share"] == pytest.approx(0.2)
    assert "times as long as without it" not in said(trace, "--step-ms", "0.99")[1]


def test_few_steps_are_said_to_be_few(said, tmp_path):
    assert "only 2 steady steps: shares are rough" in said(Made(steps=2).write(tmp_path / "few.json"))[1]


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("kernels", ["kernel", "device_ns", "critical_ns", "operator"]),
        ("operators", ["operator", "count", "self_ns", "device_ns"]),
        ("collectives", ["collective", "exposed_ns", "waited_ns"]),
        ("idle", ["why", "phase", "activity", "idle_ns"]),
        ("copies", ["copy", "exposed_ns", "host_ns", "nbytes"]),
        ("syncs", ["call", "operator", "host_ns", "idle_ns"]),
    ],
)
def test_a_table_goes_to_the_terminal_or_to_a_file(said, tmp_path, name, columns):
    path = Made(steps=5, collective=True).write(tmp_path / "trace.json")
    code, out, _ = said(path, "--table", name)
    assert code == 0
    assert out.startswith(f"{name} · ")
    assert "ProfilerStep#" not in out  # the table in place of the report
    file = tmp_path / f"{name}.csv"
    code, out, _ = said(path, "--table", name, "--to", file)
    with file.open(newline="") as opened:
        heading, *rows = csv.reader(opened)
    assert set(columns) <= set(heading)
    assert out == f"{name}: {len(rows)} rows in {file} "


def test_operators_have_the_times_that_the_trace_states(said, trace, tmp_path):
    said(trace, "--table", "operators", "--to", tmp_path / "o.csv")
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = {row["operator"]: row for row in csv.DictReader(file)}
    steps = int(rows["aten::addmm"]["count"])
    assert steps >= 4
    for name, own_us, runtime_us, device_us in (
        ("aten::linear", 30, 0, 0), ("aten::addmm", 120, 5, 300), ("aten::item", 200, 180, 0),
    ):  # fmt: skip
        row = rows[name]
        assert (int(row["self_ns"]), int(row["runtime_ns"])) == (own_us * 1000 * steps, runtime_us * 1000 * steps)
        assert int(row["device_ns"]) == device_us * 1000 * steps


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_the_trace_for_perfetto_holds_every_event_and_ours(said, tmp_path, packed):
    import gzip

    paths = ranks(tmp_path, 2, 0, 1)
    out = tmp_path / f"out.perfetto.json{packed}"
    code, _, err = said(*paths, "--perfetto", out)
    assert code == 0
    assert "ui.perfetto.dev" in err
    data = out.read_bytes()
    events = json.loads(gzip.decompress(data) if packed else data)["traceEvents"]
    originals = [event for path in paths for event in json.loads(path.read_text())["traceEvents"]]
    assert len(events) > len(originals)
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert names.count("ProfilerStep#1") == 2
    processes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {"unstall, rank 0", "unstall, rank 1", "rank 0: python", "rank 1: python"} <= processes
    threads = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"steps", "host", "device", "findings"} <= threads
    ours = [event for event in events if event.get("cat") == "unstall"]
    theirs = [event for event in events if event["ph"] == "X" and event.get("cat") != "unstall"]
    assert min(event["ts"] for event in ours) == min(event["ts"] for event in theirs)  # one clock
    device = {event["name"] for event in ours if event["name"] in ("compute", "collective", "copy", "idle")}
    assert device == {"compute", "collective", "copy", "idle"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("no JSON at all", "is not a profiler's trace"),
        ('{"nodes": [], "schema": "1"}', "is not a profiler's trace"),
        ('{"traceEvents": []}', "holds no calls and no device work"),
    ],
)
def test_what_is_no_trace_is_named_without_a_traceback(said, tmp_path, text, message):
    path = tmp_path / "odd.json"
    path.write_text(text)
    code, out, err = said(path)
    assert (code, out) == (2, "")
    assert err.startswith(f"unstall: {path}")
    assert message in err
    assert "Traceback" not in err


def test_paths_that_lead_nowhere_are_named(said, tmp_path):
    code, _, err = said(tmp_path / "nowhere.json")
    assert code == 2
    assert "nowhere.json: there is no such file or folder.\nGive the folder that `unstall run` named" in err
    assert "no file matches" in said(tmp_path / "*.json")[2]
    assert "holds no .json" in said(tmp_path)[2]


def test_a_recording_is_explained_by_itself(said, trace, tmp_path):
    folder = tmp_path / "recording"
    folder.mkdir()
    (folder / "recording.json").write_text("{}")
    code, _, err = said(folder, trace)
    assert code == 2
    assert f"{folder} is a recording, which is explained by itself: 2 paths were given." in err
    assert "was not written by unstall" in said(folder)[2]
    assert "made without a profiler" in said(folder, "--step-ms", "5")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "x.csv"], "add --table NAME"),
        (["--table", "nothing"], "'nothing' is not one of"),
        (["--table", "idle", "--to", "nowhere/x.csv"], "no such folder"),
        (["--table", "idle", "--to", "x.txt"], "CSV or Parquet"),
        (["--perfetto", "nowhere/x.json"], "no such folder"),
    ],
)
def test_a_slip_is_named_before_anything_is_read(said, arguments, message):
    code, out, err = said("trace.json", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_the_trace_is_not_overwritten(said, trace):
    before = trace.read_bytes()
    code, _, err = said(trace, "--perfetto", trace)
    assert code == 2
    assert "takes the name of another file" in err
    assert "lies in the folder that is read" in said(trace.parent, "--perfetto", trace.parent / "out.json")[2]
    assert trace.read_bytes() == before


def test_traces_are_read_where_torch_cannot_be_imported(trace, tmp_path):
    arguments = ["diagnose", str(trace), "--perfetto", str(tmp_path / "out.json"), "--json", str(tmp_path / "r.json")]
    code = WITHOUT_TORCH.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "5 steps" in done.stdout
