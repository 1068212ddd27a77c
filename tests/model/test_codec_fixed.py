"""What a fix arrived at as JSON, and its proofs back."""

import json
from dataclasses import replace

import pytest
from fixes import EVERYTHING, FIXES, KEPT, NOT_TRIED

from unstall.model.codec import NotAPlan
from unstall.model.codec_fixed import (
    NotAProof,
    fixed_to_json,
    proof_from_json,
    proof_to_json,
    ratio_from_json,
    untried_from_json,
)
from unstall.model.trial import Bound, Outlook, Ratio, Screening, Tried, Verdict

KEYS = [
    "format", "command", "interrupted", "noise", "measure", "total", "hours", "proofs", "kept", "untried", "patch",
    "patch_file", "apply_with", "exports", "applied", "spent_ns", "trials", "discarded", "notes", "folder", "bounds", "first",
    "last",
]  # fmt: skip


@pytest.mark.parametrize("proof", EVERYTHING.proofs, ids=lambda proof: proof.verdict.name)
def test_a_proof_comes_back_as_it_was_through_text(proof):
    assert proof_from_json(json.loads(json.dumps(proof_to_json(proof)))) == proof


def test_a_screening_comes_back_with_its_proof():
    tried = (Tried(1, 0.99), Tried(2, 1.01))
    screening = Screening(Outlook.FUTILE, Ratio(1.01, 1.0, 1.015, 8), 24, 7, tried, "")
    proof = replace(KEPT, verdict=Verdict.NO_EFFECT, ratio=None, screening=screening)
    assert proof_from_json(json.loads(json.dumps(proof_to_json(proof)))) == proof


@pytest.mark.parametrize("name", FIXES)
def test_every_fix_is_written_with_the_keys_of_its_format(name):
    record = json.loads(json.dumps(fixed_to_json(FIXES[name]), allow_nan=False))
    assert list(record) == KEYS
    assert record["format"] == "unstall-fix/1"
    assert record["first"]["format"] == "unstall-report/1"
    assert (record["last"] is None) == (not FIXES[name].kept)


def test_a_bound_that_cannot_be_told_is_written_as_null_with_its_reason():
    told, untold = (
        Bound("input", "a batch is given again", Ratio(2.0, 1.9, 2.1, 4)),
        Bound("checkpoint", "none", because="why"),
    )
    first, second = fixed_to_json(replace(EVERYTHING, bounds=(told, untold)))["bounds"]
    assert ratio_from_json(first["alone"]) == told.alone and first["others_removed"] is None
    assert (second["layer"], second["alone"], second["because"]) == ("checkpoint", None, "why")


def test_what_was_left_untried_comes_back():
    assert untried_from_json(fixed_to_json(EVERYTHING)["untried"][0]) == NOT_TRIED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("verdict", "faster"),  # the value, where the name is written
        ("measure", None),
        ("ratio", {"value": 2.0, "low": 3.0, "high": 4.0, "pairs": 3}),
        ("ratio", {"value": float("nan"), "low": 3.0, "high": 4.0, "pairs": 3}),
        ("ratio", {"value": 3.0, "low": 3.0, "high": 4.0, "pairs": True}),
        ("ratio", 3.0),
        ("tried", "234"),
        ("tried", [{"value": 2.5, "ratio": 1.0}]),
        ("equality", {"how": "BITS", "held": 1, "because": ""}),
        ("equality", None),  # FASTER needs one that held
        ("ratio", None),  # and pairs
        ("screening", {"outlook": "FUTILE", "ratio": None, "blocks": 0, "seed": 0, "tried": [], "because": ""}),
        ("screening", "futile"),
        ("pays_after", 2.5),
        ("predicted_low", "2"),
        ("cause", 3),
    ],
)
def test_a_damaged_proof_is_refused(name, value):
    with pytest.raises(NotAProof):
        proof_from_json({**proof_to_json(KEPT), name: value})


@pytest.mark.parametrize("name", list(proof_to_json(KEPT)))
def test_a_proof_that_lacks_a_field_is_refused_and_one_with_more_is_not(name):
    record = proof_to_json(KEPT)
    assert proof_from_json({**record, "later": 1}) == KEPT
    del record[name]
    with pytest.raises(NotAProof, match=name):
        proof_from_json(record)


def test_a_proof_of_a_remedy_that_is_none_is_refused():
    with pytest.raises(NotAPlan):
        proof_from_json({**proof_to_json(KEPT), "remedy": {}})
    with pytest.raises(NotAProof):
        proof_from_json([])


def test_no_ratio_is_written_as_null_and_is_no_ratio_again():
    undone = replace(KEPT, ratio=None, verdict=Verdict.NO_EFFECT)
    assert ratio_from_json(proof_to_json(undone)["ratio"]) is None
