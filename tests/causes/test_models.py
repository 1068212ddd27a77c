"""A model is compiled by an edit only where the recording tells for sure which line of the user's makes it."""

from dataclasses import replace

import pytest

from unstall.causes.compiler.compiled_but_unused import CompiledButUnused
from unstall.causes.compiler.not_compiled import NotCompiled
from unstall.causes.kernels.launch_bound import LaunchBound
from unstall.model.case import Fires
from unstall.model.finding import Line
from unstall.model.remedy import CallMethod, Safety, WrapCall
from unstall.model.run import Place
from unstall.testing.contract import found_in, said_of

OWN = {"site": "train.py:9:main", "library": "", "maker": "", "class": "Net", "plain": False}
PLAIN = {**OWN, "class": "torch.nn.modules.container.Sequential", "plain": True}
LOADED = {**OWN, "library": "/lib/site-packages/zoo/nets.py:3:net", "maker": "zoo.nets.net", "class": "zoo.nets.Net"}
REDUCE = (("mode", "reduce-overhead"),)
CODES = {9: "model = Net(3).to(device)", 20: "torch.compile(model)"}


def edits_of(cause, models, code=CODES[9], facts=None, **tables):
    """Return the edits of the first remedy of a drawn case in which *models* were made by the line of *code*."""

    def place(text):
        found = Place.parse(text)
        return found and Line(
            found.file, found.line, found.function, code if found.line == 9 else CODES.get(found.line, "")
        )

    case = next(case for case in cause.cases if isinstance(case, Fires))
    known = {**case.given.facts, **{f"model:{n}": model for n, model in enumerate(models)}, **(facts or {})}
    given = replace(case.given, facts=known, tables={**case.given.tables, "place": place, **tables})
    remedies = said_of(cause, replace(case, given=given)).remedies[0]
    (remedy,) = [remedy for remedy in remedies if remedy.id.endswith(("#use", "#graphs"))]
    assert remedy.safety is Safety.SAME_MATH
    return remedy.edits


@pytest.mark.parametrize(
    "model, code, edit",
    [
        (OWN, "model = Net(3)", CallMethod("train.py", 9, "Net", "compile", REDUCE)),
        (OWN, "self.model: nn.Module = nets.Net(", CallMethod("train.py", 9, "Net", "compile", REDUCE)),
        (PLAIN, "return nn.Sequential(", WrapCall("train.py", 9, PLAIN["class"], "torch.compile", REDUCE)),
        (LOADED, "model = net(3)", CallMethod("train.py", 9, "zoo.nets.net", "compile", REDUCE, "")),
    ],
)
def test_the_model_is_compiled_where_it_is_made(model, code, edit):
    assert edits_of(LaunchBound(), [model], code, compiles=()) == (edit,)


@pytest.mark.parametrize(
    "models, code",
    [
        ([], "model = Net(3)"),
        ([OWN, OWN], "model = Net(3)"),
        ([OWN], "return Net(3)"),
        ([OWN], "model = DDP(Net(3))"),
        ([OWN], "model = Nets(3)"),
        ([OWN], ""),
        ([OWN], "same = model == Net(3)"),
        ([{**LOADED, "maker": "?"}], "model = net(3)"),
        ([{**OWN, "site": "/lib/site-packages/a/b.py:9:f"}], "model = Net(3)"),
    ],
)
def test_it_is_left_to_the_user_where_that_is_not_sure(models, code):
    assert edits_of(LaunchBound(), models, code, compiles=()) == ()


SETTINGS = {"site": "train.py:20:main", "target": "/lib/site-packages/torch/nn/modules/container.py:240", "name": "forward",
            "model": True, "step": 0, "off": False}  # fmt: skip


@pytest.mark.parametrize(
    "settings, given",
    [
        ({}, ()),
        ({"mode": "default", "dynamic": "False"}, (("mode", "default"), ("dynamic", False))),
        ({"options": "{'max_autotune': True}"}, None),
    ],
)
def test_what_was_thrown_away_is_asked_for_where_the_model_is_made(settings, given):
    facts = {"compile:0": {**SETTINGS, "settings": settings}}
    edits = edits_of(CompiledButUnused(), [PLAIN], "model = nn.Sequential(", facts, lines=())
    wrapped = None if given is None else WrapCall("train.py", 9, PLAIN["class"], "torch.compile", given)
    assert edits == (() if wrapped is None else (wrapped,))


@pytest.mark.parametrize(
    "model, code, edits",
    [
        (OWN, "model = Net(3)", (CallMethod("train.py", 9, "Net", "compile"),)),
        (OWN, "return Net(3)", ()),
    ],
)
def test_a_candidate_carries_the_compilation_that_fix_tries_where_the_line_is_known(model, code, edits):
    case = next(case for case in NotCompiled.cases if isinstance(case, Fires))
    tables = {**case.given.tables, "place": lambda text: Line("train.py", 9, "", code)}
    given = replace(case.given, facts={**case.given.facts, "model:0": model}, tables=tables)
    (candidate,) = found_in(NotCompiled(), replace(case, given=given))
    assert tuple(edit for remedy in candidate.remedies for edit in remedy.edits) == edits
