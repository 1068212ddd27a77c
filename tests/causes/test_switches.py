"""A remedy that says how it is switched in a running training says it of a setting that is there, and comes back."""

from dataclasses import replace

import pytest

from unstall import causes
from unstall.model.case import Fires, Given
from unstall.model.finding import Line
from unstall.model.ledger import Phase
from unstall.model.remedy import AddCall
from unstall.model.tables import Collections
from unstall.pipeline import account
from unstall.probes.trial.switching import Setting
from unstall.testing.contract import With, said_of
from unstall.testing.timeline import draw
from unstall.trials.screening import arms_of

CAUSES = {cause.id: cause for cause in causes.load()}
SWITCHED = [
    remedy
    for cause in CAUSES.values()
    for case in cause.cases
    if isinstance(case, Fires)
    for remedies in said_of(cause, case).remedies
    for remedy in remedies
    if remedy.switch is not None
]
OF_THE_PROCESS = [remedy for remedy in SWITCHED if not remedy.switch.site]


def remedy_at(cause_id, code, given=None):
    """Return the first remedy of a drawn fault whose line has *code*, with *given* in the place of the case's own."""
    cause = CAUSES[cause_id]
    case = next(case for case in cause.cases if isinstance(case, Fires))
    run = draw(case.timeline, case.given)
    ledger, tables, _ = account(run)
    evidence = With(tables, (given or case.given).tables)
    finding = next(iter(cause.find(run, ledger, evidence)))
    return next(iter(cause.remedies(replace(finding, where=Line("train.py", 5, "main", code)), run, evidence)))


@pytest.mark.parametrize("remedy", OF_THE_PROCESS, ids=lambda remedy: remedy.id)
def test_every_switch_of_a_drawn_fault_sets_and_comes_back(remedy):
    setting, arms = Setting(remedy.switch.sets, remedy.switch.reads), arms_of(remedy)
    before = setting.present()
    try:
        setting.set(arms[0].arguments)
        assert setting.present() == arms[0].arguments
    finally:
        setting.set(before)
    assert setting.present() == before and remedy.edits


def test_a_loaders_workers_are_switched_at_the_call_that_the_edit_changes():
    (remedy,) = [remedy for remedy in SWITCHED if remedy.switch.site]
    (edit,) = remedy.edits
    assert remedy.switch.site == f"{edit.file}:{edit.line}" and remedy.switch.sets == edit.keyword == "num_workers"
    values = [arm.value for arm in arms_of(remedy)]
    assert remedy.knobs[0].predicted in values and values == sorted(set(values)) and len(values) <= 5


def test_anomaly_detection_that_a_statement_turned_on_is_switched():
    remedy = remedy_at("host/anomaly-detection", "torch.autograd.set_detect_anomaly(True)")
    assert remedy.edits and remedy.switch is not None
    setting = Setting(remedy.switch.sets, remedy.switch.reads)
    assert len(setting.present()) == len(remedy.switch.on) == 2
    setting.set(setting.present())


def test_anomaly_detection_in_a_context_is_not_switched_from_outside():
    remedy = remedy_at("host/anomaly-detection", "with torch.autograd.detect_anomaly():")
    assert remedy.edits and remedy.switch is None


def test_what_no_edit_carries_out_is_not_switched():
    remedy = remedy_at("host/anomaly-detection", "set_up(anomaly=True)")
    assert not remedy.edits and remedy.switch is None


def test_a_block_is_to_hold_several_of_the_collections_that_thresholds_avoid():
    """Three full collections in three steady steps: one a step; thirty steps for each where they are rare."""
    cause = CAUSES["host/collecting-garbage"]
    by_itself = Collections(Line("train.py", 17, code="rows.append(row)"), False, 3, 12_000_000, 2, Phase.BETWEEN)
    picture = next(case for case in cause.cases if isinstance(case, Fires)).timeline
    run = draw(picture, Given({"parameters:0": {"tensors": 4, "site": "/p/train.py:9:main"}}))
    ledger, tables, _ = account(run)
    for steps, expected in ((3, 1.0), (90, 30.0)):
        evidence = With(tables, {"collections": (by_itself,), "steady_steps": steps})
        finding = next(iter(cause.find(run, ledger, With(tables, {"collections": (by_itself,)}))))
        seldom = list(cause.remedies(finding, run, evidence))[1]
        assert isinstance(seldom.edits[0], AddCall) and seldom.switch is not None
        assert seldom.switch.on == seldom.edits[0].arguments and seldom.switch.every_steps == expected
