"""Claims beside what was measured: what a row says, which rows count, and what the calibration file holds of them."""

import json
import math

import numpy as np
import pytest

from unstall.accounts import calibration
from unstall.accounts.calibration import calibrated, known
from unstall.model.finding import Saving, Scope
from unstall.testing.journal import Journal
from unstall.testing.predicted import (
    Claim,
    Realised,
    calibration_of,
    from_row,
    held_by_others,
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
    assert realised(after=(55.0, 55.0)).score == pytest.approx((math.log(50 / 55), math.log(55 / 60)))
    assert realised(after=(55.0, 55.0)).outside == pytest.approx(math.log(55 / 60))
    assert realised(after=(72.0, 72.0)).outside == pytest.approx(math.log(72 / 60))
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
        [round(math.log(50 / 72), 4), round(math.log(72 / 60), 4)],
        [round(math.log(50 / 55), 4), round(math.log(55 / 60), 4)],
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
