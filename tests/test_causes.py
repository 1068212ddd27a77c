"""The contract of a cause, the part that needs no training. It walks the causes: nobody edits it for a new one."""

import inspect
import json
import re
import sys
from pathlib import Path

import pytest

from unstall import causes
from unstall.accounts.holdings import held
from unstall.causes._cause import HEADINGS, Cause
from unstall.model.case import Fires, Silent
from unstall.model.codec import plan_from_json, plan_to_json
from unstall.model.finding import Candidate, Finding, Machine, Scope
from unstall.model.run import Sensor
from unstall.pipeline import account
from unstall.testing.contract import abstains, found_in, marked_lines, said_of, without_marks
from unstall.testing.timeline import draw

CAUSES = causes.load()
LAYERS = {"data", "host", "compiler", "kernels", "memory", "io", "distributed"}
UNITS = {"ns", "ns a step", "share", "bytes", "bytes a step", "count", "x"}

each_cause = pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)


def cases_of(kind):
    found = [(cause, case) for cause in CAUSES for case in cause.cases if isinstance(case, kind)]
    ids = [f"{cause.id}-{list(cause.cases).index(case)}" for cause, case in found]
    return pytest.mark.parametrize(("cause", "case"), found, ids=ids)


def test_ids_are_unique():
    assert len({cause.id for cause in CAUSES}) == len(CAUSES)


@each_cause
def test_the_id_is_the_path_and_the_file_holds_one_cause(cause):
    module = sys.modules[type(cause).__module__]
    path = Path(module.__file__)
    assert cause.id == f"{path.parent.name}/{path.stem.replace('_', '-')}"
    assert cause.id.partition("/")[0] in LAYERS
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Cause)]
    assert [kind for kind in kinds if kind.__module__ == module.__name__] == [type(cause)]


@each_cause
def test_the_page_has_every_heading_with_words_under_it(cause):
    parts = re.split(r"^## (.+)$", cause.page, flags=re.MULTILINE)
    assert re.fullmatch(r"[A-Z`].*\.", parts[0].strip(), re.DOTALL), "the page opens with a sentence: what is wrong"
    assert tuple(parts[1::2]) == HEADINGS
    assert all(len(words.strip()) >= 20 for words in parts[2::2])


@each_cause
def test_needs_are_sensors(cause):
    assert isinstance(cause.needs, frozenset)
    assert all(isinstance(need, Sensor) for need in cause.needs)


@each_cause
def test_it_fires_somewhere_and_is_silent_nearby(cause):
    assert any(isinstance(case, Fires) for case in cause.cases)
    assert any(isinstance(case, Silent) for case in cause.cases)
    fires = [found for case in cause.cases if isinstance(case, Fires) for found in found_in(cause, case)]
    of_machine = all(isinstance(found.where, Machine) for found in fires)
    on_device = Sensor.DEVICE in cause.needs  # trainings are planted on a CPU
    assert cause.planted or of_machine or on_device, "a small real training shows that it is found outside of drawings"


@cases_of(Fires)
def test_it_asks_for_exactly_the_time_that_is_drawn(cause, case):
    said = found_in(cause, case)
    assert said
    first = next((one for one in said if isinstance(one, Finding)), said[0])
    assert getattr(first, "claim_ns", 0) == round(case.spent_ms * 1e6), "a candidate asks for no time"


@cases_of(Silent)
def test_it_keeps_silent(cause, case):
    assert not found_in(cause, case), case.why


@cases_of(Fires)
def test_what_it_says_can_be_read_and_checked(cause, case):
    for said in found_in(cause, case):
        assert said.cause == cause.id
        assert re.fullmatch(r"\S.*\.", said.title), "a title is one sentence on one line"
        if isinstance(said, Candidate):
            assert said.because
            continue
        assert re.search(r"\d", said.title), "a title states its number"
        assert said.evidence
        assert {evidence.unit for evidence in said.evidence} <= UNITS
        assert all(stake.ns >= 0 for stake in said.stakes)
        assert (said.spent_ns, said.share, said.also) == (0, 0.0, ()), "these are for _explain to allot"


@cases_of(Fires)
def test_it_asks_for_no_more_than_the_ledger_holds(cause, case):
    ledger, _, segments = account(draw(case.timeline, case.given))
    parts = case.given.tables.get("steady_parts")
    on_device = case.given.tables.get("device_parts") or held(ledger, segments.steps)[Scope.STEADY]
    for said in found_in(cause, case):
        for stake in getattr(said, "stakes", ()):
            entry = (stake.phase, stake.activity)
            there = parts[entry] if parts else ledger.total_ns(phase=stake.phase, activity=stake.activity)
            if stake.device is not None:
                there = on_device[stake.phase, stake.activity, stake.device]
            assert stake.ns <= there


@cases_of(Fires)
def test_its_remedies_are_data(cause, case):
    remedies = [remedy for of_finding in said_of(cause, case).remedies for remedy in of_finding]
    assert plan_from_json(json.loads(json.dumps(plan_to_json(remedies)))) == tuple(remedies)
    for remedy in remedies:
        assert remedy.id.startswith(f"{cause.id}#")
        assert remedy.edits or remedy.why, "advice says what to change by hand"
        assert not remedy.edits or {knob.keyword for knob in remedy.knobs} <= set(map(named, remedy.edits))
        assert all(knob.low <= knob.predicted <= knob.high for knob in remedy.knobs)


def named(edit):
    return getattr(edit, "keyword", getattr(edit, "variable", None))


@each_cause
def test_it_abstains_where_anything_it_needs_was_not_observed(cause):
    for case in cause.cases:
        assert all(abstains(cause, case, frozenset({need})) for need in cause.needs)


@each_cause
def test_its_planted_scripts_are_marked_and_differ(cause):
    for planted in cause.planted:
        compile(planted.before, "before.py", "exec")
        compile(planted.after, "after.py", "exec")
        assert not marked_lines(planted.after)
        assert without_marks(planted.before) != planted.after
        assert cause.id not in planted.also
        assert planted.before.endswith("\n") and planted.after.endswith("\n")


def test_a_rule_may_not_look_at_other_causes():
    for cause in CAUSES:
        source = inspect.getsource(sys.modules[type(cause).__module__])
        imported = re.findall(r"from unstall\.causes(?:\.(\w+))?\.(\w+) import", source)
        layer = type(cause).__module__.split(".")[-2]
        assert all(name.startswith("_") and folder in ("", layer) for folder, name in imported), cause.id
