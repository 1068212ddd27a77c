"""Claims beside what was measured: what a row says, which rows count, and what the calibration file holds of them."""

import json
import math

import numpy as np
import pytest

from unstall.accounts import calibration
from unstall.accounts.calibration import calibrated, known
from unstall.model.finding import Saving, Scope
from unstall.testing.claims import Claim
from unstall.testing.confusion import Outcome
from unstall.testing.journal import Journal
from unstall.testing.predicted import (
    Realised,
    by_cause,
    calibration_of,
    from_row,
    held_by_others,
    of_matrix,
    scores_of,
    table,
    to_row,
)

MS = 1_000_000


def realised(cause="data/a", low=40.0, high=50.0, before=(100.0, 100.0), after=(55.0, 55.0), load=0.5):
    return Realised(Claim(cause, Scope.STEADY, before[0], low, high), before, after, load, 2)


def drawn(rng, count, causes):
    """Return realised claims as a bench would gather them: the measured time scatters about what was said."""
    rows = []
    for n in range(count):
        whole, saved = float(rng.uniform(5, 80)), rng.uniform(0.1, 0.8)
        low, high = whole * saved * 0.9, whole * saved
        then = float((whole - (low + high) / 2) * np.exp(rng.normal(0, 0.25)))
        times = (whole, whole * float(rng.uniform(0.95, 1.1)))
        after = (then, then * times[1] / whole)
        rows.append(Realised(Claim(causes[n % len(causes)], Scope.STEADY, whole, low, high), times, after, 1.0, 2))
    return rows


def test_a_row_is_read_as_it_was_written(tmp_path):
    row = realised(before=(100.0, 104.5), after=(55.25, 50.0))
    Journal(tmp_path / "kept").add("a", to_row(row))
    assert from_row(Journal(tmp_path / "kept").rows["a"]) == row


def test_what_was_measured_is_told_on_the_scale_of_the_run_that_claims():
    assert realised(before=(100.0, 110.0), after=(50.0, 55.0)).measured_ms == pytest.approx(50)
    unit = 0.5 * 0.5 + 0.05  # of half that is said to be saved
    assert realised(after=(55.0, 55.0)).score == pytest.approx((-0.05 / unit, -0.05 / unit))
    assert realised(after=(55.0, 55.0)).outside == pytest.approx(-0.05)
    assert realised(after=(72.0, 72.0)).outside == pytest.approx(0.12)
    assert realised(after=(50.0, 50.0)).error == pytest.approx(0.1)


@pytest.mark.parametrize("arm", ["before", "after"])
def test_runs_of_one_training_that_differ_too_much_do_not_count(arm):
    assert realised(**{arm: (100.0, 114.0)}).is_sound
    loud = realised(**{arm: (100.0, 116.0)})
    assert not loud.is_sound
    assert not realised(**{arm: (100.0, 0.0)}).is_sound
    assert scores_of([loud]) == {}
    made = calibration_of([loud, realised()], {})
    assert (made["count"], made["left_out"]) == (1, 1)


def test_rows_from_a_crowded_machine_do_not_count_even_where_the_runs_agree():
    assert realised(load=3.0).is_sound
    crowded = realised(load=3.1)
    assert crowded.agrees and not crowded.is_sound
    said = table([crowded, realised(), realised(before=(100.0, 140.0))])
    assert "the load was over 1.5 a core: 1" in said and "differ by over 15%: 1" in said


def test_the_file_holds_the_scores_by_cause_and_what_they_were_measured_on():
    rows = [realised("io/b", load=2.0), realised("data/a", after=(72.0, 72.0), load=0.25), realised("data/a")]
    made = calibration_of(rows, {"torch": "2.13.0"})
    assert made["about"] == {"torch": "2.13.0"} and made["load"] == [0.25, 0.5, 2.0]
    assert list(made["scores"]) == ["data/a", "io/b"]
    assert made["scores"]["data/a"] == [
        [round(-0.22 / 0.3, 4), round(0.12 / 0.3, 4)],
        [round(-0.05 / 0.3, 4), round(-0.05 / 0.3, 4)],
    ]


def test_bounds_from_a_journal_hold_new_rows_as_often_as_is_said(tmp_path, monkeypatch):
    """The whole way: a journal's rows, the file made of them, and the savings of trainings that are not among them."""
    monkeypatch.setattr(calibration, "FILE", tmp_path / "calibration.json")
    rng, held, as_claimed, rounds = np.random.default_rng(7), 0, 0, 400
    for _ in range(rounds):
        *rows, new = drawn(rng, 31, ["data/a", "data/b", "data/c"])
        calibration.FILE.write_text(json.dumps(calibration_of(rows, {})))
        known.cache_clear()
        claim = new.claim
        saving = Saving(round(claim.low_ms * MS), round(claim.high_ms * MS))
        found = calibrated(saving, "data", round(claim.whole_ms * MS), known())
        left = claim.whole_ms * MS - found.high_ns, claim.whole_ms * MS - found.low_ns
        # a remedy that makes it slower is outside of any saving: the bounds end at the step itself
        held += left[0] <= min(new.measured_ms, claim.whole_ms) * MS <= left[1] + 1
        as_claimed += new.outside <= 0
    known.cache_clear()
    assert held / rounds >= 0.9 - 3 * math.sqrt(0.9 * 0.1 / rounds)
    assert as_claimed / rounds < 0.5


def test_a_row_is_judged_by_the_others_and_not_by_itself():
    others = [realised(after=(60.0 * (1 + n / 100), 60.0 * (1 + n / 100))) for n in range(24)]
    assert held_by_others(realised(after=(65.0, 65.0)), others)
    assert held_by_others(realised(after=(90.0, 90.0)), others) is False
    assert held_by_others(realised(), others[:18]) is None


def test_the_table_counts_by_family_and_names_each_cause():
    rows = [*drawn(np.random.default_rng(1), 12, ["data/a"]), realised("io/b", after=(55.0, 70.0))]
    said = table(rows)
    assert "data             12" in said and "all              12" in said
    assert "differ by over 15%: 1" in said
    assert any(line.startswith("io/b") and line.endswith("left out") for line in said.splitlines())


def cell(key, planted="", mean=100.0, **numbers):
    return Outcome(key, "clear", planted, planted or "nothing", True, "", (), {"load": 1.0, "mean_ms": mean, **numbers})


def test_a_cell_of_a_matrix_is_a_claim_beside_the_step_without_its_fault():
    told = cell("data/a clear", "data/a", share=0.5, low_ms=40.0, high_ms=50.0)
    (row,) = of_matrix([told, cell("data/a clear without", mean=55.0)], " without", 2)
    assert (row.measured_ms, row.claim.scope, row.claim.left_ms) == (pytest.approx(55), Scope.STEADY, (50.0, 60.0))
    assert row.told_error == pytest.approx(50 / 55 - 1)


def test_a_cell_without_its_counterpart_or_a_claim_says_nothing_of_predictions():
    told = cell("data/a clear", "data/a", share=0.5, low_ms=40.0, high_ms=50.0)
    silent = [cell("data/b mild", "data/b"), cell("data/b mild without")]
    failed = Outcome("data/a clear without", "without", "", "nothing", False, "", (), {"load": 1.0}, "exit code 1")
    assert of_matrix([told, failed, *silent], " without", 2) == []


def test_what_is_saved_once_is_held_against_the_time_before_the_steps():
    fault = {"share": 0.1, "low_ms": 400.0, "high_ms": 600.0, "point_ms": 500.0, "start_ms": 2000.0}
    told = cell("data/a clear", "data/a", scope=float(tuple(Scope).index(Scope.STARTUP)), **fault)
    (row,) = of_matrix([told, cell("data/a clear without", start_ms=1500.0)], " without", 2)
    assert row.claim.whole_ms == 2000 and row.measured_ms == pytest.approx(1500)
    assert row.told_error == pytest.approx(0)


def test_strengths_of_one_cause_do_not_judge_each_other():
    """All rows of one cause are far outside their bounds, and alike: only by themselves would they be held."""
    others = [realised(f"data/{n}", after=(55.0 + n / 10, 55.0 + n / 10)) for n in range(24)]
    said = by_cause([*others, *[realised("data/off", after=(90.0, 90.0))] * 40]).splitlines()
    assert next(line for line in said if line.startswith("data/off")).split()[-3:] == ["0/40", "0%", "(0-9)"]
    assert "too few" in by_cause(others[:19]) and "too few" not in by_cause(others[:20])


def test_scores_of_a_matrix_stand_beside_those_of_the_planted_trainings(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "FILE", tmp_path / "calibration.json")
    planted, beside = (
        calibration_of([realised("data/a")], {}),
        calibration_of([realised("data/a", after=(72.0, 72.0))], {}),
    )
    calibration.FILE.write_text(json.dumps({**planted, "matrix": beside}))
    known.cache_clear()
    assert known().by_cause["data/a"] == tuple(
        tuple(score) for part in (planted, beside) for score in part["scores"]["data/a"]
    )
    known.cache_clear()
