"""Pairs are made in turns, disturbed ones are set aside, and ratios are read off the steps that both arms made."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from unstall.model.remedy import SetKeyword
from unstall.model.trial import Captured, Measure, Trial
from unstall.pipeline.pairs import Pairs
from unstall.pipeline.trial import Ask

EDIT = SetKeyword("train.py", 3, "torch.utils.data.DataLoader", "num_workers", 2, 5)
MS = 1_000_000


def trial(step_ms, start_ms=1000, steps=60, warm=5, disturbed=""):
    lengths = np.full(steps, step_ms * MS)
    lengths[:warm] *= 6
    return Trial(start_ms * MS + np.cumsum(lengths), 0, True, Captured(np.zeros(0)), disturbed=disturbed)


@dataclass
class Planned:
    """A bench that hands out trials as planned, of the base and of the remedy, and notes what it was asked for."""

    base: list[Trial]
    remedy: list[Trial]
    asks: list[Ask] = field(default_factory=list)

    def make(self, ask):
        self.asks.append(ask)
        return (self.remedy if ask.edits else self.base).pop(0)


def pairs_of(base, remedy, **more: Any):
    planned = Planned(list(base), list(remedy))
    pairs = Pairs(planned, (), (EDIT,), Ask(seed=3), **{"measure": Measure.STEP, "reseed": False, **more})
    for _ in range(len(base)):
        pairs.make()
    return pairs, planned


def test_of_each_two_pairs_one_begins_with_the_remedy_and_which_is_drawn():
    _, planned = pairs_of([trial(10)] * 40, [trial(5)] * 40)
    with_it = [bool(ask.edits) for ask in planned.asks]
    fours = [tuple(with_it[at : at + 4]) for at in range(0, len(with_it), 4)]
    base_first, remedy_first = (False, True, True, False), (True, False, False, True)
    assert set(fours) == {base_first, remedy_first}


def test_both_arms_of_a_pair_have_one_seed_and_pairs_differ_in_it_only_where_asked():
    _, same = pairs_of([trial(10)] * 3, [trial(5)] * 3)
    assert {ask.seed for ask in same.asks} == {3}
    _, own = pairs_of([trial(10)] * 3, [trial(5)] * 3, reseed=True)
    assert [ask.seed for ask in own.asks] == [3, 3, 4, 4, 5, 5]


def test_the_ratio_leaves_the_warm_up_out():
    pairs, _ = pairs_of([trial(10)] * 3, [trial(5, warm=12)] * 3)
    assert pairs.window() == (12, 60)
    ratio = pairs.ratio()
    assert ratio is not None and ratio.value == pytest.approx(2.0)


def test_the_start_is_a_measure_of_its_own():
    pairs, _ = pairs_of([trial(10, start_ms=4000)] * 2, [trial(10, start_ms=1000)] * 2)
    start, step = pairs.ratio(Measure.START), pairs.ratio(Measure.STEP)
    assert start is not None and step is not None
    assert start.value == pytest.approx((4000 + 5 * 60) / (1000 + 5 * 60))
    assert step.value == pytest.approx(1.0)


def test_steps_are_compared_only_as_far_as_both_arms_made_them():
    pairs, _ = pairs_of([trial(10, steps=60)] * 2, [trial(5, steps=40)] * 2)
    assert pairs.window() == (5, 40)


def test_a_disturbed_pair_is_not_counted():
    busy = trial(90, disturbed="other programs kept 1.5 of 2 cores busy")
    pairs, _ = pairs_of([trial(10), busy, trial(10)], [trial(5), trial(5), trial(5)])
    assert len(pairs.logs()) == 2 and pairs.discarded == 2
    ratio = pairs.ratio()
    assert ratio is not None and ratio.value == pytest.approx(2.0)


def test_on_a_machine_that_is_always_busy_all_pairs_count_and_that_is_said():
    busy = [trial(10, disturbed="other programs kept 1.5 of 2 cores busy")] * 5
    pairs, _ = pairs_of(busy, [trial(5)] * 5)
    assert pairs.shared and len(pairs.logs()) == 5
    assert "other programs kept 1.5 of 2 cores busy" in pairs.about_load()


def test_a_run_whose_steps_change_to_the_end_has_nothing_to_compare():
    rising = Trial(np.cumsum(np.repeat([10, 14, 19, 27, 38, 52], 10) * MS), 0, True, Captured(np.zeros(0)))
    pairs, _ = pairs_of([rising] * 3, [rising] * 3)
    assert pairs.window() is None and pairs.logs() == [] and pairs.ratio() is None


def test_too_few_steps_are_not_compared():
    pairs, _ = pairs_of([trial(10, steps=5, warm=1)] * 3, [trial(5, steps=5, warm=1)] * 3)
    assert pairs.logs() == []
