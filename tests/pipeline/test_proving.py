"""What is said of a remedy follows from its trials: of a made-up bench, whose steps take as long as is planned."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from unstall.model.remedy import Knob, Remedy, Safety, SetKeyword
from unstall.model.trial import Captured, Compared, Measure, Trial, Verdict
from unstall.pipeline._asked import FixOptions
from unstall.pipeline.length import Length
from unstall.pipeline.proving import Clock, OutOfBudget, Prover, tuned
from unstall.trials.worth import Worth

MS = 1_000_000


def edit(value):
    return SetKeyword("train.py", 3, "torch.utils.data.DataLoader", "num_workers", value, 5)


WORKERS = Remedy("data/starved-loader#num_workers", "num_workers=4", Safety.SAME_BITS, (edit(4),))
WITH_KNOB = replace(WORKERS, knobs=(Knob("num_workers", 4, 1, 12),))
LOSSES = np.linspace(2.0, 1.0, 80)


@dataclass
class Planned:
    """A bench whose steps take ``step_ms[value]`` (None: without the edit) with a little noise, made anew by its seed."""

    step_ms: dict
    losses: dict = field(default_factory=dict)
    error: dict = field(default_factory=dict)
    missed: tuple = ()
    epochs: int = 3
    stopped: bool = True
    noise: float = 0.02
    at_the_end: tuple = ()  # trials, by number, that fail when all their steps have been made
    asks: list = field(default_factory=list)
    launched: int = 0

    def make(self, ask):
        self.asks.append(ask)
        self.launched += 1
        value = ask.edits[-1].value if ask.edits else None
        if self.error.get(value):
            return Trial(np.zeros(0, np.int64), 0, False, Captured(np.zeros(0)), error=self.error[value])
        draw = np.random.default_rng(self.launched)
        usual = self.step_ms[value] * MS * np.exp(draw.normal(0, self.noise))
        ends = 10**9 + np.cumsum(usual * np.exp(draw.normal(0, 0.01, 80))).astype(np.int64)
        kept = Captured(self.losses.get(value, LOSSES), "the same", epochs=self.epochs, through_loader=True)
        failed = "it ended with exit code -6" if self.launched in self.at_the_end else ""
        return Trial(ends, int(ends[-1]), self.stopped, kept, missed=self.missed if ask.edits else (), error=failed)


def proved(bench, remedy=WORKERS, budget_s=1e6, clock=None, **options):
    one = Worth("data/starved-loader", "train.py:3", remedy, Measure.STEP, 1.5, 2.0)
    prover = Prover(bench, FixOptions(("train.py",), **options), clock or Clock(budget_s), Path("."))
    return prover.prove(one, (), Length(80, 2.0))


def test_a_remedy_that_halves_the_step_is_faster_and_its_ratio_is_right():
    proof = proved(Planned({None: 20, 4: 10}))
    assert proof.verdict is Verdict.FASTER
    assert proof.ratio is not None and proof.ratio.low < 2.0 < proof.ratio.high
    assert proof.equality is not None and proof.equality.how is Compared.BITS


def test_a_remedy_that_changes_nothing_has_no_effect():
    assert proved(Planned({None: 20, 4: 20}, noise=0.005)).verdict is Verdict.NO_EFFECT


def test_a_remedy_that_makes_it_slower_is_said_to():
    assert proved(Planned({None: 20, 4: 24})).verdict is Verdict.SLOWER


def test_a_faster_remedy_whose_losses_differ_is_not_called_faster():
    proof = proved(Planned({None: 20, 4: 10}, losses={4: LOSSES + 1e-9}))
    assert proof.verdict is Verdict.TRAINED_DIFFERENTLY
    assert proof.equality is not None and not proof.equality.held


def test_a_start_that_is_dearer_only_by_chance_has_nothing_to_pay_back():
    assert proved(Planned({None: 20, 4: 10})).pays_after is None


def test_a_start_that_is_surely_dearer_pays_itself_back_after_some_steps():
    class Dearer(Planned):
        def make(self, ask):
            made = super().make(ask)
            return replace(made, end_S=made.end_S + (500 * MS if ask.edits else 0))

    proof = proved(Dearer({None: 20, 4: 10}))
    assert proof.start is not None and proof.start.high < 1
    assert proof.pays_after == pytest.approx(50, abs=5)


def test_a_training_of_one_epoch_has_no_more_boundaries_to_show():
    assert proved(Planned({None: 20, 4: 10}, epochs=0, stopped=False)).verdict is Verdict.FASTER


def test_a_training_that_was_stopped_before_its_boundaries_has_not_shown_that_it_stays_the_same():
    proof = proved(Planned({None: 20, 4: 10}, epochs=1, stopped=True))
    assert proof.verdict is Verdict.INCONCLUSIVE and "epoch boundaries only" in proof.because


def test_where_no_losses_were_kept_it_is_not_told_and_so_inconclusive():
    proof = proved(Planned({None: 20, 4: 10}, losses={None: np.zeros(0), 4: np.zeros(0)}))
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert proof.equality is not None and not proof.equality.told and "no losses" in proof.because


def test_where_the_seeds_scatter_too_much_more_seeds_are_asked_before_it_is_left_open():
    class Scattered(Planned):
        def make(self, ask):
            made = super().make(ask)
            losses = 2 + np.random.default_rng(self.launched).normal(0, 1.0) + np.linspace(0, -0.01, 80)
            return replace(made, captured=Captured(losses, "", epochs=3))

    bench = Scattered({None: 20, 4: 10})
    proof = proved(bench, replace(WORKERS, safety=Safety.SAME_DISTRIBUTION))
    assert len(bench.asks) > 2 * 4
    assert proof.verdict in (Verdict.FASTER, Verdict.INCONCLUSIVE)


def test_a_slower_remedy_costs_no_trial_of_whether_it_trains_the_same():
    bench = Planned({None: 20, 4: 24})
    proved(bench)
    assert not any(ask.shrink or ask.points for ask in bench.asks)


def test_the_error_of_a_remedy_that_breaks_the_run_is_shown():
    proof = proved(Planned({None: 20}, error={4: "it ended with exit code 1\nOSError: too many open files"}))
    assert proof.verdict is Verdict.FAILED and "too many open files" in proof.because


@pytest.mark.parametrize("failing", [(1,), (2,), (3, 6)])
def test_a_pair_that_fails_once_after_its_last_step_is_made_again(failing):
    proof = proved(Planned({None: 20, 4: 10}, at_the_end=failing))
    assert proof.verdict is Verdict.FASTER and proof.ratio.value == pytest.approx(2.0, rel=0.05)


def test_what_fails_at_its_end_again_and_again_has_failed():
    bench = Planned({None: 20, 4: 10}, at_the_end=tuple(range(1, 40)))
    proof = proved(bench)
    assert proof.verdict in (Verdict.FAILED, Verdict.INCONCLUSIVE) and "exit code -6" in proof.because
    assert bench.launched == 6


def test_a_base_that_fails_is_no_fault_of_the_remedy():
    proof = proved(Planned({4: 10}, error={None: "it ended with exit code 1\nValueError"}))
    assert proof.verdict is Verdict.INCONCLUSIVE and "without it failed" in proof.because


def test_an_edit_whose_call_is_never_made_proves_nothing():
    proof = proved(Planned({None: 20, 4: 10}, missed=(0,)))
    assert proof.verdict is Verdict.FAILED and "train.py:3 was never made" in proof.because


def test_the_cheapest_of_the_best_values_is_proved_on_fresh_pairs():
    bench = Planned({None: 40, **{n: max(10, 40 / n) for n in range(1, 13)}}, noise=0.005)
    proof = proved(bench, WITH_KNOB)
    assert proof.verdict is Verdict.FASTER and proof.remedy.edits == (edit(4),)
    assert next(one.value for one in proof.tried) == 4 and len(proof.tried) <= 6
    searched = 1 + len(proof.tried)
    pairs = [ask for ask in bench.asks[searched:] if not ask.shrink]
    assert proof.ratio is not None and len(pairs) >= 2 * proof.ratio.pairs


def test_a_value_that_was_predicted_too_low_is_found():
    bench = Planned({None: 80, **{n: max(8, 80 / n) for n in range(1, 13)}}, noise=0.005)
    proof = proved(bench, WITH_KNOB)
    assert proof.ratio is not None and proof.ratio.value > 6


def test_nothing_is_begun_that_would_not_end_within_the_budget():
    bench = Planned({None: 20, 4: 10})
    with pytest.raises(OutOfBudget):
        proved(bench, budget_s=3.0)
    assert not bench.asks


@dataclass
class Late(Planned):
    """A bench with which the budget ends after so many trials."""

    clock: Clock = field(default_factory=lambda: Clock(1e6))
    trials: int = 0

    def make(self, ask):
        if len(self.asks) + 1 >= self.trials:
            self.clock.budget_s = 0.0
        return super().make(ask)


def test_what_the_pairs_showed_until_the_budget_ended_is_told():
    bench = Late({None: 20, 4: 10}, trials=4)
    proof = proved(bench, clock=bench.clock)
    assert proof.verdict is Verdict.INCONCLUSIVE and "the budget ended after 2 pairs" in proof.because
    assert proof.ratio is not None and proof.ratio.value == pytest.approx(2.0, rel=0.1)


def test_what_is_faster_but_was_not_seen_to_train_the_same_is_left_open():
    bench = Late({None: 20, 4: 10}, trials=6)
    proof = proved(bench, clock=bench.clock)
    assert proof.verdict is Verdict.INCONCLUSIVE and "trains the same" in proof.because


def test_noise_that_hides_the_gain_is_inconclusive_and_says_what_it_would_take():
    proof = proved(Planned({None: 20, 4: 19.2}, noise=0.25))
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert "pairs would tell" in proof.because or "quieter machine" in proof.because


def test_where_only_the_draws_may_differ_each_pair_has_a_seed_of_its_own():
    bench = Planned({None: 20, 4: 10})
    proved(bench, replace(WORKERS, safety=Safety.SAME_DISTRIBUTION))
    seeds = [ask.seed for ask in bench.asks]
    assert seeds[0] == seeds[1] and len(set(seeds)) == len(seeds) // 2 >= 4


def test_a_knob_is_set_in_its_edits_and_in_the_title():
    at_six = tuned(WITH_KNOB, 6)
    assert at_six.title == "num_workers=6" and at_six.edits == (edit(6),)
