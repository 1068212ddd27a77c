"""Reports read back from JSON, as far as they are compared."""

from __future__ import annotations

import json

import pytest

from unstall.model.errors import NotARecording
from unstall.model.fusion import Graph
from unstall.readers import reported

REPORT = {
    "format": "unstall-report/1", "command": ["train.py"],
    "run": {
        "steady_steps": 90, "ranks": 1, "step_ns": {"p10": 8, "median": 10, "p90": 12}, "machine_load": "idle",
        "step_parts": [
            {"name": "forward", "ns": 10, "share": 0.8, "parts": [
                {"name": "compute", "ns": 5, "share": 0.4, "parts": []},
                {"name": "starved of CPU", "ns": 2, "share": 0.2, "parts": []},
            ]},
        ],
        "outside": [{"name": "start-up", "ns": 70, "share": 0.5, "parts": []}],
    },
    "findings": [
        {"cause": "data/starved-loader", "title": "Waits.", "fault": True, "per_step_ns": 7,
         "where": {"kind": "line", "file": "train.py", "line": 41, "code": "loader = DataLoader(d)"}},
        {"cause": "host/hot-line", "title": "Works.", "fault": False, "per_step_ns": 7, "where": {"kind": "machine", "what": "m"}},
    ],
    "candidates": [
        {"cause": "compiler/debug-backend", "title": "Set.", "because": "b",
         "where": {"kind": "environment", "variable": "TORCH_COMPILE_DEBUG"}},
    ],
    "facts": {"torch": "2.13.0"},
    "graphs": [
        {"file": "train.py", "function": "Net.forward", "kind": "forward", "kernels": 1, "externs": 2, "nodes": None,
         "moved": 3, "least": 2, "patterns": [["mul", 1]], "libraries": [],
         "apart": [{"operator": "mine.f", "line": None, "calls": 1, "taken": 2, "given": 3}]},
    ],
}  # fmt: skip


def test_what_is_compared_is_read_and_information_is_left_out():
    side = reported.side_of(REPORT, "a.json")
    assert [(e.name, e.ns) for e in side.entries] == [
        ("forward · compute", 5),
        ("forward · starved of CPU", 2),
        ("forward", 3),
    ]
    assert side.starved == 0.2 and side.free_ns == 8 and side.outside[0].ns == 70
    fault, candidate = side.told
    assert (fault.cause, fault.place, fault.code, fault.a_step_ns) == (
        "data/starved-loader", "train.py:41", "loader = DataLoader(d)", 7,
    )  # fmt: skip
    assert (candidate.place, candidate.fault, candidate.a_step_ns) == ("TORCH_COMPILE_DEBUG", False, None)
    (graph,) = side.graphs
    assert (
        isinstance(graph, Graph)
        and graph.nodes is None
        and graph.patterns == (("mul", 1),)
        and graph.apart[0].nbytes == 5
    )


def test_a_report_without_graphs_or_steps_is_read_as_one_that_tells_none():
    old = {name: value for name, value in REPORT.items() if name != "graphs"}
    side = reported.side_of({**old, "run": {**REPORT["run"], "step_ns": None, "step_parts": []}}, "a.json")
    assert side.graphs is None and side.step_ns is None and side.entries == ()


def test_of_a_trace_no_graphs_are_told_and_of_a_run_that_compiled_nothing_none_are():
    assert reported.side_of({**REPORT, "graphs": [], "trace": {"files": []}}, "a.json").graphs is None
    assert reported.side_of({**REPORT, "graphs": [], "trace": None}, "a.json").graphs == ()


@pytest.mark.parametrize(
    "damaged",
    [
        {**REPORT, "run": None},
        {**REPORT, "run": {**REPORT["run"], "steady_steps": "many"}},
        {**REPORT, "graphs": [{"file": "train.py"}]},
        {**REPORT, "findings": {"cause": "x"}},
        {name: value for name, value in REPORT.items() if name != "facts"},
    ],
)
def test_a_damaged_report_is_said_to_be_one_without_a_traceback(damaged):
    with pytest.raises(NotARecording, match=r"a\.json: the report is damaged"):
        reported.side_of(damaged, "a.json")


def test_only_what_unstall_wrote_is_taken_for_a_report(tmp_path):
    file = tmp_path / "some.json"
    for text, ours in (
        (json.dumps(REPORT, indent=2), True),
        ('{"format": "unstall-fix/1"}', True),
        ('{"traceEvents": [], "note": "unstall-report/1"}', False),
        ("[]", False),
        ("", False),
    ):
        file.write_text(text)
        assert reported.is_report(file) is ours
    assert not reported.is_report(tmp_path) and not reported.is_report(tmp_path / "none.json")


def test_another_kind_or_version_and_a_cut_file_are_refused_with_what_to_do(tmp_path):
    file = tmp_path / "some.json"
    for text in ('{"format": "unstall-fix/1"}', '{"format": "unstall-report/9"}', json.dumps(REPORT)[:-20], "[]"):
        file.write_text(text)
        with pytest.raises(NotARecording, match="--json"):
            reported.read(file)
    file.write_text(json.dumps(REPORT))
    assert reported.read(file) == REPORT
