"""Samples that come out the same are kept by an edit where a list can take the dataset's place, and by advice elsewhere."""

from dataclasses import replace

import pytest

from unstall.causes.data.repeated_preprocessing import RepeatedPreprocessing
from unstall.causes.data.slow_storage import SlowStorage
from unstall.causes.data.slow_transform import SlowTransform
from unstall.model.case import Fires
from unstall.model.finding import Line
from unstall.model.loading import Repeats
from unstall.model.remedy import ListItems, Safety
from unstall.model.tables import Cores
from unstall.testing.contract import said_of


def kept(facts=None, cores=None, **changes):
    cause = RepeatedPreprocessing()
    case = next(case for case in cause.cases if isinstance(case, Fires))
    (use,) = case.given.tables["loaders"]
    use = replace(use, **{"collate": "default_collate", "batch_size": 16, **changes})
    tables = {**case.given.tables, "loaders": (use,), "cores": cores or Cores(2.0, 1, 1.0, 1.0)}
    given = replace(case.given, facts=facts or {}, tables=tables)
    ((remedy,),) = said_of(cause, replace(case, given=given)).remedies
    assert remedy.safety is Safety.SAME_BITS
    return remedy


def test_the_call_that_makes_the_loader_is_handed_a_list():
    remedy = kept()
    assert remedy.edits == (ListItems("train.py", 30, "torch.utils.data.DataLoader", "dataset", 0),)
    assert "20.5 MB for all 1000" in remedy.title  # 20,000 bytes each, and 500 for what holds them
    assert "0.5 s before the first step" in remedy.why


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"collate": "Padder"}, "hand it a copy"),
        ({"batch_size": None}, "hand it a copy"),
        ({"made": 4}, "made anew (4 times)"),
        ({"context": "spawn", "workers": 2, "wait_ns": 16_000_000}, "not forked"),
        ({"site": Line("", 0, "", "", "/lib/site-packages/x/y.py:3:f")}, "made by a library"),
        ({"facts": {"loader:0": {"batched": True}}}, "__getitems__"),
        ({"cores": Cores(2.0, 2, 1.0, 1.0)}, "each process"),
        ({"facts": {"machine.memory_limit_bytes": 40_000_000}}, "make them once for all runs"),
        ({"length": 200_000}, "make them once for all runs"),
    ],
)
def test_elsewhere_it_says_what_to_do(changes, words):
    remedy = kept(**changes)
    assert remedy.edits == () and words in remedy.why


@pytest.mark.parametrize(
    "changes",
    [
        {"context": "fork", "workers": 2, "wait_ns": 16_000_000},
        {"facts": {"loader:0": {"batched": True}}, "dataset": "torch.utils.data.dataset.Subset"},
        {"facts": {"machine.memory_limit_bytes": 42_000_000}},
        {"repeats": Repeats(samples=12, same=12, once=20, nbytes=20_000)},
    ],
)
def test_what_is_nearly_so_is_kept_by_an_edit(changes):
    assert kept(**changes).edits


@pytest.mark.parametrize("cause, number", [(SlowTransform(), 0), (SlowStorage(), 1)])
@pytest.mark.parametrize("same, draws, kept", [(30, False, True), (29, False, False), (30, None, False)])
def test_other_causes_keep_samples_only_where_they_are_known_to_come_out_the_same(cause, number, same, draws, kept):
    case = next(case for case in cause.cases if isinstance(case, Fires))
    (use,) = case.given.tables["loaders"]
    repeats = Repeats(samples=30, same=same, once=2, nbytes=2_000)
    use = replace(use, collate="default_collate", batch_size=16, length=400, draws_random=draws, repeats=repeats)
    given = replace(case.given, tables={**case.given.tables, "loaders": (use,), "cores": Cores(8.0, 1, 1.0, 1.0)})
    (remedies,) = said_of(cause, replace(case, given=given)).remedies
    edits = [remedy.edits for remedy in remedies if remedy.id == f"{cause.id}#keep"]
    assert edits == ([(ListItems("train.py", 30, "torch.utils.data.DataLoader", "dataset", 0),)] if kept else [])
    assert not kept or remedies[number].edits
