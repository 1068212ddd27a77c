"""The sequential test: what is promised of it, counted over simulated pairs; every seed is fixed."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unstall.model.trial import Verdict
from unstall.trials.sequence import Design, decide, level, next_alpha, pairs_needed
from unstall.trials.statistics import p_faster

DESIGN = Design()
SEQUENCES = 3000


def normal(rng, count):
    return rng.normal(0, 0.03, count)


def heavy_tailed(rng, count):
    return 0.03 * rng.standard_t(3, count)


def drifting_machine(rng, count):
    """Return logs of pairs of equal trials whose speed drifts, each trial like the one before; base first, then remedy first."""
    slow = np.zeros(2 * count)
    for n in range(1, slow.size):
        slow[n] = 0.6 * slow[n - 1] + 0.05 * rng.normal()
    times = slow + 0.01 * rng.normal(size=slow.size)
    return (times[0::2] - times[1::2]) * np.where(np.arange(count) % 2, -1, 1)


def run(logs, design=DESIGN):
    """Return the verdict on *logs* given one after another, and the pairs that it took."""
    for pairs in range(1, len(logs) + 1):
        if (verdict := decide(logs[:pairs], design)) is not None:
            return verdict, pairs
    raise AssertionError("no verdict after the last pair")


def outcomes(gain, noise, sequences=300):
    """Return the share of each verdict and the mean pairs, where the ratio is *gain* and logs differ by *noise*."""
    rng = np.random.default_rng(11)
    runs = [run(math.log(gain) + rng.normal(0, noise, DESIGN.most_pairs)) for _ in range(sequences)]
    counts = Counter(verdict for verdict, _ in runs)
    return Counter({v: n / sequences for v, n in counts.items()}), sum(pairs for _, pairs in runs) / sequences


@pytest.mark.parametrize("noise", [normal, heavy_tailed, drifting_machine])
def test_equal_arms_are_called_faster_no_more_often_than_promised(noise):
    rng = np.random.default_rng(5)
    said = Counter(run(noise(rng, DESIGN.most_pairs))[0] for _ in range(SEQUENCES))
    assert said[Verdict.FASTER] <= stats.binom.ppf(0.999, SEQUENCES, DESIGN.alpha)
    assert said[Verdict.SLOWER] <= stats.binom.ppf(0.999, SEQUENCES, DESIGN.alpha_slower)


def test_a_look_at_every_pair_without_spending_would_break_the_promise():
    rng, most = np.random.default_rng(5), stats.binom.ppf(0.999, SEQUENCES, DESIGN.alpha)
    naive = 0
    for _ in range(SEQUENCES):
        logs = normal(rng, DESIGN.most_pairs)
        naive += any(p_faster(logs[:pairs]) <= DESIGN.alpha for pairs in range(3, 13))
    assert naive > most


@given(st.floats(1e-4, 0.2), st.integers(2, 6), st.integers(0, 20))
def test_the_looks_spend_alpha_and_no_more(alpha, least, further):
    design = Design(alpha=alpha, least_pairs=least, most_pairs=least + further)
    spent = sum(level(alpha, pairs, design) for pairs in range(least, least + further + 1))
    assert spent == pytest.approx(alpha)


def test_a_gain_of_30_percent_ends_after_three_pairs():
    said, pairs = outcomes(gain=1.3, noise=0.02)
    assert said[Verdict.FASTER] == 1.0
    assert pairs < 3.2


def test_a_gain_of_5_percent_ends_after_about_six_pairs():
    said, pairs = outcomes(gain=1.05, noise=0.02)
    assert said[Verdict.FASTER] > 0.99
    assert 5 <= pairs <= 7


def test_no_gain_on_a_quiet_machine_is_no_effect():
    said, pairs = outcomes(gain=1.0, noise=0.01)
    assert said[Verdict.NO_EFFECT] > 0.9
    assert pairs < 4


def test_no_gain_on_a_loud_machine_is_inconclusive_and_not_no_effect():
    said, _ = outcomes(gain=1.0, noise=0.1)
    assert said[Verdict.INCONCLUSIVE] > 0.9


def test_a_gain_of_5_percent_is_hardly_ever_called_no_effect():
    for noise in (0.01, 0.03, 0.1):
        assert outcomes(gain=1.05, noise=noise)[0][Verdict.NO_EFFECT] <= 0.03


def test_a_loss_of_10_percent_is_slower():
    assert outcomes(gain=0.9, noise=0.03)[0][Verdict.SLOWER] > 0.95


def test_a_hopeless_sequence_ends_early():
    assert outcomes(gain=1.0, noise=0.1)[1] < 6


def test_two_pairs_are_never_enough():
    assert decide([0.5, 0.5], DESIGN) is None


def test_a_gain_too_small_to_want_is_no_effect_though_it_is_proved():
    assert decide([0.0050, 0.0051, 0.0049, 0.0050], DESIGN) is Verdict.NO_EFFECT


def test_a_gain_just_above_the_least_is_faster():
    assert decide([0.0300, 0.0301, 0.0299, 0.0300], DESIGN) is Verdict.FASTER


def test_three_pairs_that_agree_by_chance_prove_no_small_gain():
    alike = [0.006, 0.006, 0.006]
    assert decide(alike, Design(least_effect=0.001)) is None
    assert decide(alike, Design(least_effect=0.001, quietest=1e-5)) is Verdict.FASTER


def test_after_the_last_pair_there_is_a_verdict():
    logs = [0.12, -0.10] * 6
    assert decide(logs, Design(least_power=0.0)) is Verdict.INCONCLUSIVE
    assert decide([*logs, 0.1], Design(least_power=0.0)) is Verdict.INCONCLUSIVE
    assert decide(logs[:11], Design(least_power=0.0)) is None


def test_a_smaller_alpha_asks_for_more():
    logs = [0.20, 0.22, 0.24]
    assert decide(logs, DESIGN) is Verdict.FASTER
    assert decide(logs, Design(alpha=0.001)) is None


@pytest.mark.parametrize("logs", [[0.1, math.nan], [0.1, 0.1, math.inf]])
def test_a_log_that_is_no_number_is_an_error_and_no_verdict(logs):
    with pytest.raises(ValueError, match="not finite"):
        decide(logs, DESIGN)


@pytest.mark.parametrize("wrong", [{"least_pairs": 1}, {"most_pairs": 2}, {"alpha": 0.0}, {"quietest": 0.0}])
def test_a_design_that_allows_no_test_is_refused(wrong):
    with pytest.raises(ValueError):
        Design(**wrong)


def test_the_first_remedy_has_all_of_the_most_and_later_ones_less():
    alphas = [next_alpha([Verdict.NO_EFFECT] * before) for before in range(8)]
    assert alphas[0] == pytest.approx(0.01)
    assert alphas == sorted(alphas, reverse=True)
    assert alphas[4] > 0.004


def test_remedies_without_any_effect_are_called_faster_by_the_total_at_most():
    assert sum(next_alpha([Verdict.SLOWER] * before) for before in range(500)) <= 0.05 + 1e-12


def test_what_is_found_faster_pays_for_those_after_it_from_the_second_on():
    none = [Verdict.NO_EFFECT] * 6
    one = [*none[:4], Verdict.FASTER, Verdict.NO_EFFECT]
    two = [*none[:4], Verdict.FASTER, Verdict.FASTER]
    assert next_alpha(one) == next_alpha(none)
    assert next_alpha(two) > 2 * next_alpha(none)


@given(st.lists(st.sampled_from(list(Verdict)), max_size=40))
def test_alpha_stays_within_its_bounds(verdicts):
    assert 0 < next_alpha(verdicts) <= 0.01


def test_of_many_remedies_called_faster_few_are_not():
    rng, false, called = np.random.default_rng(3), [], 0
    for _ in range(400):
        verdicts, wrong = [], 0
        for _ in range(10):
            gain = 1.3 if rng.random() < 0.3 else 1.0
            design = Design(alpha=next_alpha(verdicts))
            verdicts.append(run(math.log(gain) + rng.normal(0, 0.03, 12), design)[0])
            wrong += verdicts[-1] is Verdict.FASTER and gain == 1.0
        called += verdicts.count(Verdict.FASTER)
        false.append(wrong / max(verdicts.count(Verdict.FASTER), 1))
    assert np.mean(false) <= 0.05
    assert called > 0.95 * 0.3 * 4000


def test_the_pairs_foreseen_prove_the_gain_four_times_in_five():
    rng = np.random.default_rng(2)
    logs = [0.02 + 0.05 * x for x in stats.zscore(rng.normal(size=6), ddof=1)]
    needed = pairs_needed(logs, DESIGN)
    bound = stats.t.ppf(1 - level(0.01, 12, DESIGN), needed - 1)
    sample = rng.normal(0.02, 0.05, (4000, needed))
    proved = (sample.mean(1) / sample.std(1, ddof=1) * math.sqrt(needed) > bound).mean()
    assert 0.75 < proved < 0.85
    assert needed > DESIGN.most_pairs


def test_no_number_of_pairs_proves_a_gain_that_is_not_seen():
    assert pairs_needed([-0.01, 0.01, -0.02], DESIGN) is None
    assert pairs_needed([1e-6, 0.1, -0.1], DESIGN) is None


def test_a_clear_gain_needs_the_fewest_pairs_there_are():
    assert pairs_needed([0.30, 0.31, 0.29], DESIGN) <= 4
