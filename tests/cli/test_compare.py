"""`unstall compare`: what it reads, what it writes, and what it says of what it cannot read."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from unstall.causes.compiler.lost_fusion import LostFusion
from unstall.cli import main
from unstall.model.finding import Finding, Line, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Phase
from unstall.model.report import Share, StepTimes
from unstall.testing.contract import train
from unstall.views import view

LOADER = Line("train.py", 41, "main", "loader = DataLoader(d)")
STARVED = Finding(
    "data/starved-loader", "It waits.", LOADER, Scope.STEADY, (Stake(Phase.FETCH, Activity.LOAD, 600),), Weight.OVERLAP,
    Basis.MEASURED, (), spent_ns=600,
)  # fmt: skip


@pytest.fixture
def written(tmp_path, make_report):
    """Return the path of a report in JSON, of a step of so many ms."""

    def write(name: str, ms: int, *findings: Finding) -> str:
        times = StepTimes(ms * 1_000_000, ms * 1_000_000, ms * 1_000_000)
        parts = (Share("forward", ms * 1_000_000, 1.0),)
        made = replace(make_report(), steps=9, steady_steps=6, step_ns=times, step_parts=parts, findings=findings)
        path = tmp_path / f"{name}.json"
        path.write_text(view("json").render(made, width=0, colour=False, verbose=False))
        return str(path)

    return write


def test_two_reports_are_compared_on_the_page_and_in_json(written, tmp_path, capsys):
    made = tmp_path / "made.json"
    assert main(["compare", written("a", 30, STARVED), written("b", 45), "--json", str(made)]) == 0
    assert "data/starved-loader" in capsys.readouterr().out
    record = json.loads(made.read_text())
    assert record["format"] == "unstall-compare/1" and record["paired"] is False
    assert record["step_ratio"] == 1.5 and record["step_rows"] == [
        {"name": "forward", "a": 30_000_000, "b": 45_000_000}
    ]
    assert [one["cause"] for one in record["gone"]] == ["data/starved-loader"] and record["appeared"] == []


def test_what_cannot_be_read_is_said_as_in_diagnose(written, tmp_path, capsys):
    good, other = written("good", 30), tmp_path / "other"
    other.mkdir()
    (tmp_path / "text.py").write_text("print()")
    (tmp_path / "fix.json").write_text('{"format": "unstall-fix/1"}')
    for bad, said in (
        (tmp_path / "none", "there is no such file or folder"),
        (other, "holds no .json"),
        (tmp_path / "text.py", "is not JSON"),
        (tmp_path / "fix.json", "its format is unstall-fix/1"),
    ):
        assert main(["compare", good, str(bad)]) == 2
        assert main(["compare", str(bad), good]) == 2
        assert said in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_said_before_the_work(tmp_path, capsys):
    assert main(["compare", "none", "none", "--json", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err


@pytest.mark.slow
def test_two_recordings_tell_which_operator_stopped_fusing_and_a_recording_is_its_own_report(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    planted = LostFusion.planted[0]
    fused, hidden = (train(text, tmp_path / name) for name, text in (("a", planted.after), ("b", planted.before)))
    made = tmp_path / "made.json"
    assert main(["compare", fused.recording, hidden.recording, "--json", str(made)]) == 0
    page = capsys.readouterr().out
    assert "script.bend is not fused in B" in page and "bend(x)" in page
    record = json.loads(made.read_text())
    assert {one["operator"] for one in record["operators"] if one["stopped"]} >= {"script.bend"}
    counts = {row["name"]: (row["a"], row["b"]) for row in record["fusion"]}
    assert counts["calls left to other code"][0] == 0 < counts["calls left to other code"][1]
    assert counts["kernels"][1] > counts["kernels"][0]
    assert "compiler/lost-fusion" in {one["cause"] for one in record["appeared"]}

    report = tmp_path / "report.json"
    report.write_text(view("json").render(fused, width=0, colour=False, verbose=False))
    assert main(["compare", fused.recording, str(report), "--json", str(made)]) == 0
    record = json.loads(made.read_text())
    assert record["step_ratio"] == 1.0 and not (record["step_rows"] or record["graphs"] or record["appeared"])
