"""Outcomes of planted and healthy trainings, and what is counted of them."""

import json

import pytest
from scipy.stats import binomtest

from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.testing.confusion import (
    NOTHING,
    Cell,
    Outcome,
    Told,
    from_row,
    matrix,
    starved_share,
    summary,
    to_row,
    trained,
    wilson,
)

A, B = "data/slow-collate", "data/row-by-row"


def outcome(planted=A, named=A, *, line=True, group="mild", blamed=(), error=""):
    key = f"{planted} {named}"
    return Outcome(key, group, planted, named, line, "train.py:3", blamed, {"load": 0.5, "mean_ms": 2.0}, error)


def test_a_fault_is_told_right_or_not_at_all_or_for_another_one():
    assert [outcome(named=named).told for named in (A, NOTHING, B)] == [Told.RIGHT, Told.SILENT, Told.WRONG]


def test_what_is_written_is_read_again():
    seen = outcome(blamed=("host/hot-line 5%",), error="exit code 1")
    assert from_row(json.loads(json.dumps(to_row(seen)))) == seen


@pytest.mark.parametrize(("right", "count"), [(0, 1), (1, 1), (0, 12), (12, 12), (29, 36), (102, 102)])
def test_the_bounds_are_wilsons(right, count):
    known = binomtest(right, count).proportion_ci(0.95, "wilson")
    assert wilson(right, count) == pytest.approx((known.low, known.high), abs=1e-4)  # z is 1.96 to three figures


def test_nothing_is_known_of_what_was_not_seen():
    assert wilson(0, 0) == (0.0, 1.0)


def test_the_matrix_has_a_line_for_each_planted_cause_and_none_for_the_healthy():
    lines = matrix([outcome(), outcome(), outcome(named=B), outcome(planted="", named=B)]).splitlines()
    assert len(lines) == 2
    assert lines[1].split() == [A, A, "2,", B, "1"]


def test_lines_are_counted_of_the_right_findings_only():
    text = summary([outcome(), outcome(line=False), outcome(named=B, line=True), outcome(named=NOTHING, line=False)])
    assert "first right 2/4" in text and "silent 1" in text
    assert "its line 1/2" in text


def test_a_training_that_failed_is_not_counted():
    assert summary([outcome(), outcome(named=NOTHING, error="exit code 1")]) == summary([outcome()])


def test_healthy_trainings_are_counted_apart_and_named_where_they_are_blamed():
    healthy = [outcome(planted="", named=NOTHING), outcome(planted="", named=B, blamed=(f"{B} 12%",))]
    text = summary([*healthy, outcome()])
    assert "nothing blamed 1/2" in text and "first right 1/1" in text
    assert f"{B} 12%" in text


def test_what_the_machine_gave_to_others_is_counted_in_the_steps_only():
    entries = [
        (-1, 0, Phase.STARTUP, Activity.STARVED, Basis.MEASURED, 50),
        (0, 0, Phase.FORWARD, Activity.STARVED, Basis.MEASURED, 30),
        (0, 0, Phase.FORWARD, Activity.COMPUTE, Basis.MEASURED, 30),
        (1, 0, Phase.BACKWARD, Activity.COMPUTE, Basis.MEASURED, 60),
    ]
    assert starved_share(Ledger.of(entries, [170])) == 0.25


SCRIPT = """\
import time
import torch

def waits(model, x):
    time.sleep(0.01)  # <- fault
    return model(x)

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    loss = waits(model, torch.ones(2, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_a_training_is_run_and_what_is_named_is_held_against_its_marks(tmp_path):
    found, report = trained(Cell("sleeps", "mild", SCRIPT, "host/hot-line", steps=30), tmp_path)
    assert found.error == ""
    assert report.steady_steps >= 30
    assert found.numbers["mean_ms"] >= 10  # it sleeps so long in each step
    assert (found.named, found.told, found.where) == ("host/hot-line", Told.RIGHT, "train.py:5")


def test_a_training_that_fails_says_so(tmp_path):
    found, _ = trained(Cell("fails", "mild", "raise SystemExit(3)", A), tmp_path)
    assert found.error == "exit code 3"
    assert found.named == NOTHING
