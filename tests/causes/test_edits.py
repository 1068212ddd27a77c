"""Which remedies of the causes are edits, and that they fall back to words where the place is not sure."""

from dataclasses import replace
from typing import get_args

import pytest

from unstall import causes
from unstall.model.case import Fires
from unstall.model.finding import Line
from unstall.model.remedy import (
    AddCall,
    CallFirst,
    Decorate,
    Members,
    Named,
    RemoveCall,
    RemoveSetting,
    Safety,
    SetAttribute,
    SetEnvironment,
    SetKeyword,
    SourceEdit,
)
from unstall.pipeline import account
from unstall.testing.contract import With, said_of
from unstall.testing.timeline import draw

CAUSES = {cause.id: cause for cause in causes.load()}
TRAINER = "/lib/python3.11/site-packages/transformers/trainer.py:1576:train"
KEY = "TrainingArguments.dataloader_num_workers"
MADE = {"key": "TrainingArguments", "class": "transformers.training_args.TrainingArguments", "library": ""}
PARSED = {**MADE, "library": "/lib/site-packages/transformers/hf_argparser.py:345:parse_args_into_dataclasses"}
OPTIMIZER = {"parameters:0": {"site": "train.py:20:main", "class": "AdamW", "devices": ["cpu"]}}


def remedies_of(cause, facts=None, number=0, change=lambda tables: tables):
    """Return the remedies of a cause's drawn case that fires, with more facts and other tables."""
    cases = [case for case in CAUSES[cause].cases if isinstance(case, Fires)]
    given = cases[number].given
    given = replace(given, facts={**given.facts, **(facts or {})}, tables=change(dict(given.tables)))
    return said_of(CAUSES[cause], replace(cases[number], given=given)).remedies[0]


def of_trainer(tables):
    (use,) = tables["loaders"]
    return {**tables, "loaders": (replace(use, site=Line("train.py", 40, "", "", TRAINER, KEY)),)}


def test_a_loader_of_a_framework_is_set_in_the_call_that_makes_its_configuration():
    remedy, *_ = remedies_of(
        "data/starved-loader", {"configured:0": {**MADE, "site": "train.py:9:main"}}, 0, of_trainer
    )
    (edit,) = remedy.edits
    assert isinstance(edit, SetKeyword)
    assert (edit.line, edit.call, edit.keyword) == (9, MADE["class"], "dataloader_num_workers")
    assert remedy.knobs[0].keyword == edit.keyword and remedy.title == f"{KEY}={edit.value}"


def test_where_a_parser_makes_the_configuration_the_remedy_says_which_flag_to_start_with():
    facts = {"configured:0": {**PARSED, "site": "train.py:9:main"}}
    remedy, *_ = remedies_of("data/starved-loader", facts, 0, of_trainer)
    assert remedy.edits == () and remedy.knobs == ()
    assert "start the command with --dataloader_num_workers " in remedy.why


def test_a_loader_of_the_users_own_is_set_at_its_line():
    remedy, *_ = remedies_of("data/starved-loader")
    assert remedy.edits[0].call == "torch.utils.data.DataLoader" and remedy.edits[0].position == 5


def test_a_checkpointed_block_is_called_itself():
    remedy, *_ = remedies_of("memory/needless-checkpointing")
    (edit,) = remedy.edits
    assert isinstance(edit, CallFirst) and edit.method == "" and "use_reentrant" in edit.dropped


def test_garbage_is_collected_less_often_where_nobody_asks_for_it():
    freeze, seldom = remedies_of("host/collecting-garbage", OPTIMIZER, 1)
    assert freeze.edits == ()
    assert [(edit.call, edit.arguments[0]) for edit in seldom.edits] == [("gc.set_threshold", 50_000)]
    asked, *_ = remedies_of("host/collecting-garbage", OPTIMIZER)
    assert [type(edit) for edit in asked.edits] == [RemoveCall]


@pytest.mark.parametrize(
    "cause, kind, name",
    [
        ("kernels/full-precision-matmul", AddCall, "torch.set_float32_matmul_precision"),
        ("data/costly-transport", AddCall, "torch.multiprocessing.set_sharing_strategy"),
    ],
)
def test_settings_stand_at_the_head_of_the_file_that_makes_the_optimizer(cause, kind, name):
    found = [edit for remedy in remedies_of(cause, OPTIMIZER) for edit in remedy.edits]
    assert [(type(edit), edit.file, edit.call) for edit in found] == [(kind, "train.py", name)]
    library = {"parameters:0": {"site": "/lib/python3.11/site-packages/a/b.py:20:main"}}
    assert not [edit for remedy in remedies_of(cause, library) for edit in remedy.edits]


@pytest.mark.parametrize(
    "key, kind, keyword, value",
    [
        ("TrainingArguments", "transformers.training_args.TrainingArguments", "bf16", True),
        ("Trainer", "lightning.pytorch.trainer.trainer.Trainer", "precision", "bf16-mixed"),
        ("Accelerator", "accelerate.accelerator.Accelerator", "mixed_precision", "bf16"),
    ],
)
def test_a_framework_computes_in_mixed_precision_by_its_configuration(key, kind, keyword, value):
    made = {"key": key, "class": kind, "site": "train.py:9:main", "library": ""}
    inner = {"key": "Accelerator", "class": "accelerate.Accelerator", "site": "train.py:30:main", "library": "/a.py:1"}
    found = remedies_of("kernels/full-precision-matmul", {"configured:0": inner, "configured:1": made})
    remedy = next(one for one in found if one.id.endswith("#autocast"))
    assert remedy.safety is Safety.CHANGES_TRAINING
    assert [(e.line, e.call, e.keyword, e.value) for e in remedy.edits] == [(9, kind, keyword, value)]


def test_a_loop_of_ones_own_is_told_what_to_wrap():
    remedy = next(one for one in remedies_of("kernels/full-precision-matmul") if one.id.endswith("#autocast"))
    assert remedy.edits == () and 'torch.autocast("cuda", dtype=torch.bfloat16)' in remedy.why


def test_the_forward_of_ones_own_model_is_computed_in_mixed_precision():
    own = {"site": "train.py:9:main", "forward": "net.py:5:forward"}
    (edit,) = autocast_of({"model:0": own}).edits
    half = Decorate("net.py", 5, "forward", "torch.autocast", ("cuda",), (("dtype", Named("torch.bfloat16")),))
    assert edit == half
    library = {**own, "forward": "/lib/python3.11/site-packages/a/b.py:20:forward"}
    for models in ({"model:0": own, "model:1": own}, {"model:0": {**own, "forward": ""}}, {"model:0": library}):
        assert autocast_of(models).edits == ()


def autocast_of(facts):
    found = remedies_of("kernels/full-precision-matmul", facts)
    return next(one for one in found if one.id.endswith("#autocast"))


@pytest.mark.parametrize(
    "code, attribute, path",
    [
        ("print('x', x.shape)", "reorderable_logging_functions", "builtins.print"),
        ("logger.info('x %s', x.shape)", "ignore_logger_methods", "logging.Logger.info"),
        ("self.log.warning('x')", "ignore_logger_methods", "logging.Logger.warning"),
    ],
)
def test_a_line_that_says_something_is_left_to_the_compiler(code, attribute, path):
    said = [one for one in breaking(code) if one.edits]
    assert [one.edits for one in said] == [
        (SetAttribute("train.py", f"torch._dynamo.config.{attribute}", Members((path,))),)
    ]


@pytest.mark.parametrize("code", ["self.print(x)", "x.log().info(3)", "fingerprint(x)", "blueprint.info(3)"])
def test_what_only_looks_like_it_is_not(code):
    assert not [one for one in breaking(code) if one.edits]


def breaking(code):
    """Return the remedies of a graph break at a line of *code*."""
    cause = CAUSES["compiler/graph-breaks"]
    case = next(case for case in cause.cases if isinstance(case, Fires))
    given = replace(case.given, facts={**case.given.facts, **OPTIMIZER})
    run = draw(case.timeline, given)
    ledger, tables, _ = account(run)
    evidence = With(tables, given.tables)
    finding = next(iter(cause.find(run, ledger, evidence)))
    where = Line("train.py", 12, "Net.forward", code)
    return list(
        cause.remedies(replace(finding, where=where, notes=("Dynamo does not know how to trace it",)), run, evidence)
    )


def test_fused_optimizers_are_those_that_the_user_made():
    def fused(facts):
        return [e for remedy in remedies_of("kernels/launch-bound", facts) for e in remedy.edits]

    made = {"class": "AdamW", "site": "train.py:20:main", "library": ""}
    assert [(edit.line, edit.call, edit.keyword) for edit in fused({"optimizer:0": made})] == [
        (20, "torch.optim.AdamW", "fused")
    ]
    for other in ({"class": "LBFGS"}, {"library": "/lib/site-packages/x.py:1:f"}, {"fused": True}):
        assert fused({"optimizer:0": {**made, **other}}) == []


def test_no_edit_names_a_file_of_a_library():
    kinds = get_args(SourceEdit)
    for cause in CAUSES.values():
        for case in [case for case in cause.cases if isinstance(case, Fires)]:
            for remedies in said_of(cause, case).remedies:
                edits = [edit for remedy in remedies for edit in remedy.edits]
                assert all(isinstance(edit, (*kinds, SetEnvironment)) for edit in edits)
                assert not [e for e in edits if isinstance(e, kinds) and "site-packages" in e.file]


@pytest.mark.parametrize(
    "cause, number, variable, value",
    [
        ("compiler/caches-off", 0, "TORCHINDUCTOR_FORCE_DISABLE_CACHES", '"1"'),
        ("compiler/caches-off", 0, "TORCHINDUCTOR_FX_GRAPH_CACHE", '"0"'),
        ("compiler/cold-cache", 0, "TORCHINDUCTOR_CACHE_DIR", "tempfile.mkdtemp()"),
        ("compiler/compiler-disabled", 0, "TORCH_COMPILE_DISABLE", '"1"'),
        ("compiler/debug-logging", 0, "TORCH_LOGS", '"+dynamo"'),
        ("compiler/unpaid-autotuning", 3, "TORCHINDUCTOR_MAX_AUTOTUNE", '"1"'),
        ("compiler/rebuilt-extension", 5, "TORCH_EXTENSIONS_DIR", "tempfile.mkdtemp()"),
    ],
)
def test_a_variable_that_the_script_sets_is_left_out_at_its_line(cause, number, variable, value):
    line = Line("train.py", 3, "<module>", f'os.environ["{variable}"] = {value}')

    def set_there(tables):
        return {**tables, "set_at": lambda name: line if name == variable else None}

    remedy, *_ = remedies_of(cause, {f"env.{name}": "" for name in ("TORCH_LOGS",)}, number, set_there)
    assert remedy.edits == (RemoveSetting("train.py", 3, f"os.environ.{variable}"),)
    whole = replace(line, code=f"os.environ.update({variable}={value})")
    remedy, *_ = remedies_of(
        cause,
        {f"env.{name}": "" for name in ("TORCH_LOGS",)},
        number,
        lambda tables: {**tables, "set_at": lambda name: whole if name == variable else None},
    )
    assert remedy.edits == ()
