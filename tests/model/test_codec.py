"""Edits, remedies and reports as JSON."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstall.model.codec import (
    NotAPlan,
    edit_from_json,
    edit_to_json,
    plan_from_json,
    plan_to_json,
    remedy_from_json,
    remedy_to_json,
    report_to_json,
)
from unstall.model.finding import (
    Abstained,
    Calibrated,
    Candidate,
    Command,
    Environment,
    Evidence,
    Finding,
    Line,
    Machine,
    Saving,
    Scope,
    Stake,
    Weight,
)
from unstall.model.ledger import Activity, Basis, Device, Ledger, Phase
from unstall.model.remedy import Knob, Remedy, RemoveCall, Safety, SetEnvironment, SetKeyword, Switch
from unstall.model.report import Job, RankSummary, Report, Share, StepTimes
from unstall.model.run import Facts, Sensor

COUNT = st.integers(-(2**53), 2**53)
SCALAR = st.none() | st.booleans() | COUNT | st.floats(allow_nan=False) | st.text()
EDIT = st.one_of(
    st.builds(SetKeyword, st.text(), COUNT, st.text(), st.text(), SCALAR, st.none() | COUNT),
    st.builds(RemoveCall, st.text(), COUNT, st.text()),
    st.builds(SetEnvironment, st.text(), st.text()),
)
REMEDY = st.builds(
    Remedy,
    st.text(),
    st.text(),
    st.sampled_from(Safety),
    st.lists(EDIT, max_size=3).map(tuple),
    st.lists(st.builds(Knob, st.text(), COUNT, COUNT, COUNT, st.text()), max_size=2).map(tuple),
    st.text(),
    st.none()
    | st.builds(
        Switch, st.text(), st.lists(st.text()).map(tuple), st.lists(SCALAR).map(tuple), st.floats(allow_nan=False)
    ),
)


def through_text(record):
    return json.loads(json.dumps(record))


@settings(deadline=None)  # the machine may be busy
@given(EDIT)
def test_an_edit_read_as_written_is_the_same(edit):
    read = edit_from_json(through_text(edit_to_json(edit)))
    assert read == edit and repr(read) == repr(edit)  # repr: True is not 1, 1.0 is not 1


@settings(deadline=None)  # the machine may be busy
@given(st.lists(REMEDY, max_size=3))
def test_a_plan_read_as_written_is_the_same(remedies):
    assert plan_from_json(through_text(plan_to_json(remedies))) == tuple(remedies)
    assert [remedy_from_json(remedy_to_json(remedy)) for remedy in remedies] == remedies


REMOVAL = {"kind": "remove-call", "file": "t.py", "line": 1, "call": "gc.collect"}


@pytest.mark.parametrize(
    "record, why",
    [
        ([], "JSON object"),
        ({**REMOVAL, "kind": "insert-call"}, "insert-call"),
        ({**REMOVAL, "line": "1"}, "line is expected to be int"),
        ({**REMOVAL, "line": True}, "line is expected to be int"),
        ({**REMOVAL, "column": 1}, "column"),
        ({"kind": "remove-call"}, "missing"),
        ({"kind": "set-keyword", "file": "", "line": 1, "call": "", "keyword": "", "value": []}, "value is expected"),
    ],
)
def test_a_foreign_edit_is_refused(record, why):
    with pytest.raises(NotAPlan, match=why):
        edit_from_json(record)


@pytest.mark.parametrize(
    "change, why",
    [
        ({"safety": "SAFE"}, "SAFE"),
        ({"edits": {}}, "list"),
        ({"knobs": [{"keyword": "n"}]}, "missing"),
        ({"id": None}, "id"),
        ({"switch": {"sets": "f", "reads": "g", "on": []}}, "list"),
        ({"switch": {"sets": "f", "reads": [], "on": [], "every_steps": "1"}}, "every_steps"),
    ],
)
def test_a_foreign_remedy_is_refused(change, why):
    with pytest.raises(NotAPlan, match=why):
        remedy_from_json({**remedy_to_json(Remedy("a#b", "Do", Safety.SAME_BITS)), **change})


def test_a_plan_of_another_version_is_refused():
    with pytest.raises(NotAPlan, match="unstall-plan/2"):
        plan_from_json({"format": "unstall-plan/2", "remedies": []})


def test_a_plan_is_read_without_numpy():
    read = "import sys; from unstall.model.codec import plan_from_json; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", read], check=True)


def ledger(entries, walls):
    """Make a ledger of (step, rank, phase, activity, basis, ns)."""
    step, rank, phase, activity, basis, ns = (list(column) for column in zip(*entries, strict=True))
    small = [np.array(column, np.uint8) for column in (rank, phase, activity)]
    device = np.full(len(ns), Device.NONE, np.uint8)
    wall = np.array(walls, np.int64)
    return Ledger(np.array(step, np.int32), *small, device, np.array(basis, np.uint8), np.array(ns, np.int64), wall)


ENTRIES = [
    (-1, 0, Phase.STARTUP, Activity.UNKNOWN, Basis.RESIDUAL, 50),
    (0, 0, Phase.FETCH, Activity.LOAD, Basis.MEASURED, 30),
    (1, 0, Phase.FETCH, Activity.LOAD, Basis.MEASURED, 20),
    (1, 0, Phase.FETCH, Activity.LOAD, Basis.SAMPLED, 0),
    (0, 1, Phase.FORWARD, Activity.COMPUTE, Basis.SAMPLED, 70),
]

TIMES = StepTimes(9, 10, 12)
PARTS = (Share("fetch", 6, 0.6, (Share("loading", 6, 0.6),)), Share("backward", 4, 0.4))


def finding(scope=Scope.STEADY, where=None, saving=None, spent_ns=40):
    return Finding(
        cause="data/starved-loader",
        title="The loop waits",
        where=where or Line("train.py", 41, "main", "loader = DataLoader(ds)"),
        scope=scope,
        stakes=(Stake(Phase.FETCH, Activity.LOAD, 40),),
        weight=Weight.OVERLAP,
        basis=Basis.MEASURED,
        evidence=(Evidence("a batch costs", 25.0, "ns", "rank 0: events FETCH[2]"),),
        saving=saving,
        spent_ns=spent_ns,
        share=0.4,
        also=("host/hot-line",),
    )


def report(
    *findings, remedies=(), steps=10, steady=4, step_ns=TIMES, entries=ENTRIES, walls=(100, 70), step_parts=PARTS
):
    return Report(
        command=("python", "train.py"), exit_code=0, stopped_by_us=False, stop_reason="", wall_ns=100,
        rank_wall_ns=walls, steps=steps, steady_steps=steady, warmup_steps=2, step_ns=step_ns,
        step_parts=step_parts, outside=(), bound_by="bound by data",
        unknown_share=0.1, edges_ns=3, overhead_share=0.003, overhead_how="calls x cost", findings=findings,
        remedies=remedies, candidates=(Candidate("kernels/x", "t", Machine("2 cores"), "unproved"),),
        abstained=(Abstained("compiler/y", "not recorded"),), warnings=("w",),
        ranks=tuple(RankSummary(n, 10, 9, 1) for n in range(len(walls))), observed=(Sensor.STEPS,),
        missing={Sensor.DEVICE: "none here"}, facts=Facts({"torch": "2.13.0"}), job=Job(), projection=None,
        ledger=ledger(entries, walls) if entries else None,
    )  # fmt: skip


def test_the_ledger_of_each_rank_adds_up_to_its_wall():
    written = report_to_json(report())
    by_rank = [sum(e["ns"] for e in written["ledger"] if e["rank"] == rank) for rank in (0, 1)]
    assert by_rank == written["run"]["rank_wall_ns"] == [100, 70]
    assert written["ledger"][1] == {
        "rank": 0, "phase": "FETCH", "activity": "LOAD", "device": "NONE", "basis": "MEASURED", "ns": 50, "share": 0.5,
    }  # fmt: skip
    assert len(written["ledger"]) == 3


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(st.integers(-1, 9), st.just(0), st.sampled_from(Phase), st.sampled_from(Activity),
                          st.sampled_from(Basis), st.integers(0, 2**60)), min_size=1, max_size=9))  # fmt: skip
def test_summing_over_steps_loses_no_nanosecond(entries):
    wall = sum(entry[-1] for entry in entries)
    written = report_to_json(report(entries=entries, walls=(wall,)))["ledger"]
    assert sum(entry["ns"] for entry in written) == wall
    keys = [tuple(entry[key] for key in ("phase", "activity", "device", "basis")) for entry in written]
    assert len(set(keys)) == len(keys)


def test_a_report_has_every_promised_key():
    remedy = Remedy("a#b", "Load in workers", Safety.SAME_DISTRIBUTION, (RemoveCall("t.py", 1, "f"),))
    written = through_text(report_to_json(report(finding(saving=Saving(2, 5)), remedies=((remedy,),))))
    assert {
        "format", "command", "exit_code", "stopped_by_us", "run", "overhead", "ledger", "findings", "candidates",
        "abstained", "warnings",
    } <= set(written)  # fmt: skip
    assert written["format"] == "unstall-report/1"
    assert written["run"]["step_ns"] == {"p10": 9, "median": 10, "p90": 12}
    assert (written["run"]["ranks"], written["run"]["steps"], written["run"]["steady_steps"]) == (2, 10, 4)
    found = written["findings"][0]
    assert (found["cause"], found["layer"], found["basis"], found["scope"]) == (
        "data/starved-loader", "data", "MEASURED", "STEADY",
    )  # fmt: skip
    assert (found["spent_ns"], found["per_step_ns"], found["share"]) == (40, 40 // (4 * 2), 0.4)
    assert found["where"]["kind"] == "line" and found["where"]["line"] == 41
    assert found["evidence"][0] == {
        "what": "a batch costs",
        "value": 25.0,
        "unit": "ns",
        "source": "rank 0: events FETCH[2]",
    }
    assert found["remedies"][0]["safety"] == "SAME_DISTRIBUTION"
    assert found["remedies"][0]["edits"] == [{"kind": "remove-call", "file": "t.py", "line": 1, "call": "f"}]
    assert written["candidates"][0]["where"] == {"kind": "machine", "what": "2 cores"}
    assert written["abstained"] == [{"cause": "compiler/y", "because": "not recorded"}]
    assert written["missing"] == {"DEVICE": "none here"} and written["observed"] == ["STEPS"]


@pytest.mark.parametrize(
    "where, kind",
    [(Environment("OMP_NUM_THREADS"), "environment"), (Command("python t.py"), "command"), (Machine("m"), "machine")],
)
def test_a_place_says_its_kind(where, kind):
    assert report_to_json(report(finding(where=where)))["findings"][0]["where"]["kind"] == kind


def saving_of(found, **options):
    return report_to_json(report(found, **options))["findings"][0]["saving"]


def test_the_speedup_of_a_steady_saving_is_of_the_mean_step():
    saving = saving_of(finding(saving=Saving(2, 5)))
    assert (saving["speedup_low"], saving["speedup_high"]) == (10 / 8, 2.0)
    assert (saving["per_step_ns_low"], saving["per_step_ns_high"], saving["run_ns_high"]) == (2, 5, 20)
    assert saving["basis"] == "arithmetic"


def test_a_saving_says_what_its_bounds_rest_on_and_what_they_were():
    assert saving_of(finding(saving=Saving(2, 5)))["calibrated"] is None
    moved = Saving(1, 6, "arithmetic", Calibrated(0.9, 23, "data", 2, 5))
    saving = saving_of(finding(saving=moved))
    assert (saving["per_step_ns_low"], saving["per_step_ns_high"], saving["basis"]) == (1, 6, "arithmetic")
    said = {"coverage": 0.9, "of": 23, "family": "data"}
    assert saving["calibrated"] == {**said, "claimed_per_step_ns_low": 2, "claimed_per_step_ns_high": 5}
    once = saving_of(finding(Scope.STARTUP, saving=Saving(10, 60, "arithmetic", Calibrated(0.9, 23, "data", 20, 50))))
    assert once["calibrated"]["claimed_per_step_ns_high"] == 50 // 10


def test_the_speedup_of_any_other_saving_is_of_the_run():
    saving = saving_of(finding(Scope.STARTUP, saving=Saving(20, 50)))
    assert (saving["speedup_low"], saving["speedup_high"]) == (100 / 80, 2.0)
    assert (saving["per_step_ns_low"], saving["run_ns_high"]) == (2, 50)


def test_nothing_is_divided_by_zero():
    assert saving_of(finding(saving=Saving(0, 10)))["speedup_low"] == 1.0
    assert saving_of(finding(saving=Saving(0, 10)))["speedup_high"] is None
    assert saving_of(finding(saving=Saving(1, 1)), step_parts=())["speedup_high"] is None
    written = report_to_json(
        report(finding(Scope.STARTUP, saving=Saving(1, 1)), steps=0, steady=0, step_ns=None, entries=())
    )
    assert written["findings"][0]["per_step_ns"] == 0 and written["ledger"] == [] and written["run"]["step_ns"] is None
