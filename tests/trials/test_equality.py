"""What trials captured, set side by side: drawn losses, gradients and changes of parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unstall.model.trial import Captured
from unstall.trials.equality import bits, curves, lockstep, seeds

LOSSES_L = np.linspace(2.0, 1.0, 30)
BASE = Captured(LOSSES_L, parameters="d1", epochs=2, samples=("s", "s", "s"), kinds="float32 x 4096")
RANDOM = np.random.default_rng(5)
CHANGE_P = RANDOM.normal(0, 1e-2, 4096).astype(np.float32)
GRADIENT_P = RANDOM.normal(0, 1, 4096).astype(np.float32)


def test_equal_bits_hold_and_say_over_how_many_epochs():
    same = bits(BASE, replace(BASE))
    assert same.held
    assert same.because == "30 losses and the parameters are equal bit for bit over 3 epochs"


def test_one_unit_in_the_last_place_of_one_loss_does_not_hold():
    losses_L = LOSSES_L.copy()
    losses_L[17] = np.nextafter(losses_L[17], 9)
    same = bits(BASE, replace(BASE, losses_L=losses_L))
    assert not same.held
    assert "1 of 30 losses differ, first in backward pass 18" in same.because


@pytest.mark.parametrize(
    ("other", "because"),
    [
        (replace(BASE, parameters="d2"), "the final parameters are not"),
        (replace(BASE, parameters=""), "could not be read"),
        (replace(BASE, epochs=1), "over 1 epoch boundaries only, and 2 are asked for"),
        (replace(BASE, losses_L=LOSSES_L[:29]), "30 backward passes were made without the remedy and 29 with it"),
        (replace(BASE, losses_L=np.zeros(0)), "no losses were captured with the remedy"),
        (replace(BASE, shrunk=3), "cut to None batches without the remedy and to 3"),
        (replace(BASE, kinds="float64 x 4096"), "the parameters are float32 x 4096 without"),
    ],
)
def test_bits_do_not_hold_where_something_differs_or_is_missing(other, because):
    same = bits(BASE, other)
    assert not same.held
    assert because in same.because


def test_passes_without_a_scalar_are_equal_where_both_have_them_only():
    with_nan_L = LOSSES_L.copy()
    with_nan_L[::2] = np.nan
    odd = replace(BASE, losses_L=with_nan_L)
    assert bits(odd, replace(odd, losses_L=with_nan_L.copy())).held
    assert not bits(odd, BASE).held
    nothing = replace(BASE, losses_L=np.full(30, np.nan))
    assert "started from a number" in bits(nothing, nothing).because
    assert not bits(nothing, nothing).held


def test_no_epoch_boundary_is_asked_for_where_no_loader_gives_the_batches():
    without = replace(BASE, epochs=0, through_loader=False)
    assert bits(without, without).held
    assert not bits(replace(without, through_loader=True), replace(without, through_loader=True)).held


def stepped(error, gradients=GRADIENT_P, changes=CHANGE_P, seed=1, loss=1.5):
    """Return a run with one point, its gradients and changes off by *error* of themselves at random."""
    rng = np.random.default_rng(seed)

    def off(values_P):
        return (values_P * (1 + error * rng.choice([-1, 1], values_P.size))).astype(np.float32)

    return replace(BASE, gradients={4: off(gradients)}, updates={4: off(changes)}, point_losses={4: loss * (1 + error)})


ROUNDED = [stepped(1e-6, seed=2), stepped(1e-6, seed=3)]


def test_an_error_of_the_size_of_rounding_holds_and_one_far_beyond_does_not():
    assert lockstep(stepped(0), stepped(4e-6, seed=9), ROUNDED).held
    same = lockstep(stepped(0), stepped(1e-3, seed=9), ROUNDED)
    assert not same.held
    assert "in step 4 the gradients differ by 0.001" in same.because


def test_a_changed_rate_shows_in_the_changes_though_gradients_are_equal():
    same = lockstep(stepped(0), stepped(0, changes=CHANGE_P * 1.01), ROUNDED)
    assert not same.held
    assert "changes of all parameters differ by 0.01" in same.because


def test_a_changed_rate_shows_among_parameters_that_step_at_random():
    """Adam normalises gradients that are 0 but for rounding: 3 % of the elements step anywhere, in every run."""
    noise_P = np.arange(4096) % 32 == 0

    def noisy(seed, rate=1.0):
        changes_P = CHANGE_P * rate
        changes_P[noise_P] = np.random.default_rng(seed).normal(0, 1e-2, noise_P.sum())
        return changes_P

    base, rounded = stepped(0, changes=noisy(1)), [stepped(1e-6, changes=noisy(seed), seed=seed) for seed in (2, 3)]
    assert lockstep(base, stepped(1e-6, changes=noisy(4), seed=4), rounded).held
    same = lockstep(base, stepped(0, changes=noisy(4, rate=1.01)), rounded)
    assert not same.held
    assert "changes of half of the parameters" in same.because


def test_lockstep_does_not_hold_without_an_envelope_or_a_point():
    assert "how far rounding alone goes" in lockstep(stepped(0), stepped(0), []).because
    assert not lockstep(stepped(0), stepped(0), []).held
    noted = replace(BASE, notes=("the disk was full",))
    assert lockstep(noted, BASE, ROUNDED).because == "no step was made in lockstep (the disk was full)"
    assert not lockstep(stepped(0), BASE, ROUNDED).held


def test_nan_in_a_gradient_is_not_within_rounding():
    broken_P = GRADIENT_P.copy()
    broken_P[0] = np.nan
    assert not lockstep(stepped(0), stepped(0, gradients=broken_P), ROUNDED).held
    assert lockstep(stepped(0), stepped(0), ROUNDED).held


def test_another_first_loss_is_seen_though_the_points_start_from_the_same_state():
    other = replace(stepped(0), losses_L=LOSSES_L * 1.01)
    same = lockstep(stepped(0), other, ROUNDED)
    assert not same.held
    assert "before any step" in same.because


def curve(seed, end=1.0, scatter=0.02, samples=("s", "s"), shrunk=None):
    """Return a run that learns from 2 to *end*, which the seed scatters."""
    end += np.random.default_rng(seed).normal(0, scatter)
    return replace(BASE, losses_L=np.linspace(2.0, end, 60), samples=samples, shrunk=shrunk)


BASES = [curve(seed) for seed in range(6)]


def test_losses_within_the_band_of_seeds_hold_and_say_what_would_have_been_seen():
    same = seeds(BASES, [curve(seed) for seed in range(10, 16)])
    assert same.held
    assert "apart would have been seen; each of 2 epochs has the same samples" in same.because


def test_losses_outside_the_band_of_seeds_do_not_hold():
    same = seeds(BASES, [curve(seed, end=1.2) for seed in range(10, 16)])
    assert not same.held
    assert "runs that differ only by the seed allow" in same.because


def test_pairs_of_equal_seeds_show_a_difference_that_the_band_hides():
    wide = [curve(seed, scatter=0.1) for seed in range(6)]
    near = [replace(one, losses_L=one.losses_L + 1e-3 * (seed % 2)) for seed, one in enumerate(wide)]
    off = [replace(one, losses_L=one.losses_L + 0.05) for one in near]
    assert seeds(wide, near).held
    same = seeds(wide, off)
    assert not same.held
    assert "with equal seeds it differs by 0.05" in same.because


def test_a_band_too_wide_to_see_anything_is_said_and_does_not_hold():
    wide = [curve(seed, scatter=1.5) for seed in range(4)]
    same = seeds(wide, [curve(seed, scatter=1.5) for seed in range(10, 14)])
    assert not same.held
    assert "more steps or seeds would tell" in same.because


def test_other_samples_do_not_hold_but_draws_of_later_epochs_may_differ():
    other = [curve(seed, samples=("s", "t")) for seed in range(10, 16)]
    assert "epoch 2 has other samples" in seeds(BASES, other).because
    cut = [curve(seed, samples=(f"a{seed}", f"b{seed}"), shrunk=3) for seed in range(6)]
    assert seeds(cut, [replace(one, samples=(one.samples[0], "z")) for one in cut]).held
    assert not seeds(cut, [replace(one, samples=("z", one.samples[1])) for one in cut]).held


def test_seeds_do_not_hold_with_too_few_runs_or_where_the_loss_is_lost():
    assert "3 and 1 are the least" in seeds(BASES[:2], BASES[:2]).because
    lost_L = LOSSES_L.repeat(2).copy()
    lost_L[40:] = np.nan
    lost = replace(BASES[0], losses_L=lost_L)
    assert "the loss of backward pass 41 is no number" in seeds(BASES, [lost]).because


def test_curves_are_shown_whatever_they_are_unless_the_loss_is_lost():
    shown = curves(BASES, [curve(10, end=1.5)])
    assert shown.held
    assert "outside it" in shown.because
    assert "within it" in curves(BASES, [BASES[2]]).because
    lost_L = np.full(60, np.inf)
    assert not curves(BASES, [replace(BASES[0], losses_L=lost_L)]).held
    assert not curves([], []).held
