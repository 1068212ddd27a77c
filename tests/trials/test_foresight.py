"""What a budget can prove is foreseen as the test itself will judge it."""

import math

import numpy as np
import pytest

from unstall.model.trial import Verdict
from unstall.trials.foresight import EQUALITY_TRIALS, foreseen, least_gain, time_needed_s
from unstall.trials.sequence import Design, decide

DESIGN = Design()


def proved(gain, pairs, noise, seed):
    """Return whether a sequence of so many pairs of a remedy that is *gain* times faster ends in FASTER."""
    rng, logs = np.random.default_rng(seed), []
    for _ in range(pairs):
        logs.append(math.log(gain) + noise * float(rng.normal() - rng.normal()))
        verdict = decide(logs, DESIGN)
        if verdict is not None:
            return verdict is Verdict.FASTER
    return False


@pytest.mark.parametrize("pairs", [3, 5, 8, 12])
def test_the_least_gain_is_proved_about_as_often_as_is_said(pairs):
    gain = least_gain(pairs, 0.04, DESIGN)
    share = np.mean([proved(gain, pairs, 0.04, seed) for seed in range(400)])
    assert 0.7 < share <= 1.0  # looks before the last one only add


def test_fewer_pairs_tell_larger_gains_only():
    gains = [least_gain(pairs, 0.04, DESIGN) for pairs in range(3, 13)]
    assert gains == sorted(gains, reverse=True) and gains[-1] > 1.02
    assert least_gain(2, 0.04, DESIGN) is None


def test_what_fits_leaves_the_trials_that_show_whether_it_trains_the_same():
    found = foreseen(900, 100, DESIGN)
    assert (found.trials, found.pairs) == (9, 3) and found.least_gain is not None
    assert foreseen(700, 100, DESIGN).least_gain is None
    assert time_needed_s(100, DESIGN) == (2 * 3 + EQUALITY_TRIALS) * 100
    assert foreseen(900, 5, DESIGN).pairs == DESIGN.most_pairs
