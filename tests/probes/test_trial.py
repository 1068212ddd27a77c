"""Small trainings really run as trials: what is captured of them, and whether that tells what a remedy did."""

from __future__ import annotations

import numpy as np
import pytest
from trainings import DATA, TRAINING, plain, trial, written

from unstall.trials.equality import bits, lockstep, seeds

POINTS = [1, 5, 12]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a function that runs the training once for each setting it is asked for."""
    top, known = tmp_path_factory.mktemp("trials"), {}

    def run(asked, steps=None, **settings):
        key = repr((asked, steps, settings))
        if key not in known:
            known[key] = trial(TRAINING, top / str(len(known)), asked, steps, **settings)
        return known[key]

    run.states = top / "states"
    run.states.mkdir()
    return run


@pytest.fixture(scope="module")
def points(made):
    """Return the base of a comparison in lockstep, its envelope, and a function that makes the other arm."""
    base = made({"seed": 0, "points": POINTS, "save_points": str(made.states)})
    load = {"seed": 0, "points": POINTS, "load_points": str(made.states)}
    envelope = [made({**load, "ulp": number}) for number in (1, 2)]
    return base, envelope, lambda **settings: made(load, **settings)


def test_losses_of_a_trial_are_bit_for_bit_those_of_the_plain_training(made, tmp_path):
    """With workers, random draws in them and dropout."""
    without_us = plain(TRAINING, tmp_path / "plain", DRAWS=1, WORKERS=2)
    assert made({"seed": 0}, DRAWS=1, WORKERS=2).losses_L.tolist() == without_us


def test_workers_keep_every_bit_over_two_boundaries_while_no_sample_draws(made):
    """Epochs cut to three batches, and the trial stopped by its steps in the third of them."""
    asked = {"seed": 0, "shrink": 3}
    base, remedy = made(asked, 8), made(asked, 8, WORKERS=2)
    assert (base.losses_L.size, base.epochs, base.shrunk) == (8, 2, 3)
    assert len(set(base.samples)) == len(base.samples) == 2  # each of other samples, as only half of them are seen
    assert bits(base, remedy).because == "8 losses and the parameters are equal bit for bit over 3 epochs"


def test_workers_change_bits_but_no_samples_where_samples_draw(made):
    base, remedy = made({"seed": 0}, DRAWS=1), made({"seed": 0}, DRAWS=1, WORKERS=2)
    assert not bits(base, remedy).held
    assert base.samples == remedy.samples
    assert len(base.samples) == 3


def test_other_thread_counts_change_bits_and_hold_in_lockstep(points):
    base, envelope, other = points
    assert lockstep(base, other(THREADS=2), envelope).held
    assert bits(base, other()).held


@pytest.mark.parametrize(
    ("settings", "because"),
    [
        ({"RATE": 0.012}, "changes of"),  # the gradients of a step from the same state are the same
        ({"DROP": 0}, "losses differ"),
        ({"HALF": 1}, "losses differ"),  # bfloat16 in place of float32
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_is_more_than_rounding_does_not_hold_in_lockstep(points, settings, because):
    base, envelope, other = points
    same = lockstep(base, other(**settings), envelope)
    assert not same.held
    assert because in same.because


def test_a_step_in_lockstep_starts_from_the_state_of_the_base(points):
    """Though the rate has led elsewhere since the first step, the gradients of each point are the same."""
    base, _, other = points
    faster = other(RATE=0.012)
    assert not bits(base, faster).held
    for step in POINTS:
        assert np.array_equal(base.gradients[step], faster.gradients[step])
        assert base.point_losses[step] == faster.point_losses[step]
        assert not np.array_equal(base.updates[step], faster.updates[step])


def test_a_training_that_sets_no_seed_is_seeded_and_one_that_does_keeps_its_own(made):
    first, again = made({"seed": 0}, UNSEEDED=1, DRAWS=1), made({"seed": 0}, UNSEEDED=1, DRAWS=1, AGAIN=1)
    assert first.seeded and not made({"seed": 0}, DRAWS=1).seeded
    assert bits(first, again).held


def test_another_seed_of_a_trial_moves_the_seeds_that_the_script_sets(made):
    own, moved = made({"seed": 0}, DRAWS=1), made({"seed": 1}, DRAWS=1)
    assert not moved.seeded
    assert not (own.losses_L == moved.losses_L).any()
    assert own.samples == moved.samples


ODD = (
    DATA
    + """
import numpy
torch.manual_seed(1)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    a, b = model(torch.ones(3, 4)).square().mean(0)
    torch.autograd.backward([a, b])
    torch.autograd.grad(model(torch.ones(3, 4)), list(model.parameters()), torch.ones(3, 2))
    c = model(torch.ones(1, 4)).sum().reshape(1)
    c.backward()
    optimizer.step()
    with open("losses", "a") as file:
        file.write(f"{(a.double() + b.double()).item().hex()} {c.item().hex()} ")
"""
)


def test_every_pass_is_kept_several_scalars_as_their_sum_and_no_scalar_as_nan(tmp_path):
    kept = trial(ODD, tmp_path / "odd", {"seed": 0})
    said = written(tmp_path / "odd")
    assert kept.losses_L[0::3].tolist() == said[0::2]
    assert np.isnan(kept.losses_L[1::3]).all()
    assert kept.losses_L[2::3].tolist() == said[1::2]
    assert (kept.epochs, kept.through_loader, kept.kinds) == (0, False, "float32 x 10")


@pytest.mark.slow
def test_what_only_draws_otherwise_is_not_outside_the_band_of_seeds_and_another_rate_is(made):
    bases = [made({"seed": seed}, DRAWS=1) for seed in range(4)]
    redrawn = seeds(bases, [made({"seed": seed}, DRAWS=1, WORKERS=2) for seed in range(2)])
    assert "allow" not in redrawn.because and "samples with" not in redrawn.because
    faster = seeds(bases, [made({"seed": seed}, DRAWS=1, RATE=10.0) for seed in range(2)])
    assert not faster.held
    assert "runs that differ only by the seed allow" in faster.because
