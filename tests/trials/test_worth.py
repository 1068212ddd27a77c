"""Which remedies are tried: of faults by what they claim, then of candidates, of which nothing is claimed."""

from dataclasses import replace

from fixes import FUSED, WORKERS, a_report

from unstall.model.finding import Calibrated, Candidate, Finding, Line, Saving, Scope, Weight
from unstall.model.ledger import Basis
from unstall.model.remedy import CallMethod, Remedy, Safety
from unstall.model.report import Share
from unstall.model.trial import Measure
from unstall.trials.worth import Asked, worth_trying

MS = 1_000_000
LINE = Line("train.py", 9, "", "net = Net()")
COMPILE = Remedy(
    "compiler/not-compiled#compile",
    "compile the model",
    Safety.SAME_MATH,
    (CallMethod("train.py", 9, "Net", "compile"),),
)
CANDIDATE = Candidate("compiler/not-compiled", "Nothing is compiled.", LINE, "measure", (COMPILE,))
FINDING = Finding(
    "kernels/launch-bound", "t", LINE, Scope.STEADY, (), Weight.ESTIMATED, Basis.SAMPLED, (), Saving(10 * MS, 20 * MS)
)
ALL = frozenset({Safety.SAME_BITS, Safety.SAME_MATH})


def report(candidate=CANDIDATE):
    parts = (Share("forward", 100 * MS, 1.0),)
    made = replace(a_report("", 100), step_parts=parts, findings=(FINDING,), remedies=((FUSED,),))
    return replace(made, candidates=(candidate,))


def test_what_a_candidate_carries_is_tried_after_what_claims_a_gain():
    worth, untried = worth_trying(report(), Asked(ALL))
    assert [one.remedy for one in worth] == [FUSED, COMPILE]
    assert (worth[1].where, worth[1].measure, worth[1].predicted_high) == ("train.py:9", Measure.STEP, None)
    assert untried == ()


def test_a_candidate_without_a_remedy_is_not_among_what_was_left_untried():
    worth, untried = worth_trying(report(replace(CANDIDATE, remedies=())), Asked(ALL))
    assert [one.remedy for one in worth] == [FUSED] and untried == ()


def test_what_a_candidate_carries_obeys_what_was_asked():
    for asked in (
        Asked(ALL, skip=("compiler/not-compiled",)),
        Asked(ALL, only=("kernels/launch-bound",)),
        Asked(ALL, done=(COMPILE.id,)),
    ):
        assert [one.remedy for one in worth_trying(report(), asked)[0]] == [FUSED]
    risky = replace(CANDIDATE, remedies=(replace(WORKERS, id="compiler/not-compiled#x"),))
    _, untried = worth_trying(report(risky), Asked(ALL))
    assert [one.because for one in untried] == ["it changes the training; --allow changes-training lets it be tried"]


def test_calibrated_bounds_are_predicted_and_neither_order_nor_worth_goes_by_them():
    little = replace(
        FINDING, cause="data/little", saving=Saving(0, 60 * MS, "arithmetic", Calibrated(0.9, 9, "data", 0, MS))
    )
    most = replace(FINDING, saving=Saving(0, 50 * MS, "arithmetic", Calibrated(0.9, 9, "all", 10 * MS, 20 * MS)))
    workers = replace(WORKERS, id="data/little#workers", safety=Safety.SAME_BITS)
    made = replace(report(), findings=(little, most), remedies=((workers,), (FUSED,)), candidates=())
    worth, untried = worth_trying(made, Asked(ALL))
    assert [(one.remedy, one.predicted_low, one.predicted_high) for one in worth] == [(FUSED, 1.0, 2.0)]
    assert [one.because for one in untried] == ["it would gain under 2%"]
    more = replace(little, saving=Saving(0, 60 * MS, "arithmetic", Calibrated(0.9, 9, "data", 0, 10 * MS)))
    worth, _ = worth_trying(replace(made, findings=(more, most)), Asked(ALL))
    assert [one.remedy for one in worth] == [FUSED, workers]
    assert worth[1].predicted_high > worth[0].predicted_high
