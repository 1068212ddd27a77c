"""The state between two steps, and what lockstep keeps of a step, in this process."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from unstall.probes.trial import _state  # noqa: E402
from unstall.probes.trial.capture import Losses, bits_of  # noqa: E402
from unstall.probes.trial.lockstep import perturb, strided  # noqa: E402
from unstall.probes.trial.shrinking import Epoch, whole  # noqa: E402


class Updated:
    """Optimizers that have stepped, as the probes know them."""

    def __init__(self, *optimizers):
        self.optimizers = list(optimizers)

    def parameters(self):
        return [one for optimizer in self.optimizers for group in optimizer.param_groups for one in group["params"]]


def trained(steps, rate=0.1):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        model(torch.randn(6, 4)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def test_a_state_that_was_loaded_is_the_one_that_was_saved_but_for_the_rate(tmp_path):
    """Parameters, moments, running means and random numbers; the other training has its own rate and a wrapper."""
    model, optimizer = trained(3)
    path = str(tmp_path / "state.pt")
    _state.save(path, Updated(optimizer))
    expected = torch.randn(3), random.random(), np.random.rand()
    other, others = trained(2, rate=0.5)
    wrapped = torch.nn.ModuleDict({"module": other})
    said = []
    assert _state.load(path, Updated(others), said.append)
    assert said == []
    assert bits_of(list(other.parameters())) == bits_of(list(model.parameters()))
    assert bits_of(list(wrapped.buffers())) == bits_of(list(model.buffers()))
    for mine, its in zip(optimizer.state.values(), others.state.values(), strict=True):
        assert all(torch.equal(mine[key], its[key]) for key in mine)
    assert others.param_groups[0]["lr"] == 0.5
    assert torch.equal(torch.randn(3), expected[0])
    assert (random.random(), np.random.rand()) == expected[1:]


def test_a_state_of_other_shapes_is_not_loaded(tmp_path):
    _, optimizer = trained(1)
    path = str(tmp_path / "state.pt")
    _state.save(path, Updated(optimizer))
    odd = torch.nn.Linear(4, 9)
    before = bits_of(list(odd.parameters()))
    assert not _state.load(path, Updated(torch.optim.SGD(odd.parameters(), lr=0.1)), print)
    assert bits_of(list(odd.parameters())) == before


def test_saving_leaves_the_training_and_its_random_numbers_alone(tmp_path):
    model, optimizer = trained(2)
    before, state = bits_of(list(model.parameters())), copy.deepcopy(torch.get_rng_state())
    _state.save(str(tmp_path / "state.pt"), Updated(optimizer))
    assert bits_of(list(model.parameters())) == before
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["float64", "float32", "bfloat16"])
def test_a_moved_parameter_is_one_or_two_units_off_and_no_random_number_is_drawn(kind):
    values = torch.randn(1000).to(getattr(torch, kind))
    moved, state = values.clone(), torch.get_rng_state()
    perturb([moved], 7)
    off = ((moved.double() - values.double()) / values.double()).abs()
    eps = torch.finfo(values.dtype).eps
    assert off.min() > 0.4 * eps and off.max() < 2.1 * eps
    assert torch.equal(torch.get_rng_state(), state)
    other = values.clone()
    perturb([other], 8)
    assert not torch.equal(other, moved)


@pytest.mark.parametrize("stride", [1, 2, 3, 7, 50])
def test_one_in_so_many_elements_is_counted_over_all_parameters(stride):
    parameters = [torch.arange(start, start + size) for start, size in ((0, 5), (5, 1), (6, 11), (17, 3))]
    kept = torch.cat(strided(list(parameters), parameters, stride))
    assert kept.tolist() == list(range(20))[::stride]


def test_a_parameter_without_a_gradient_counts_as_zeros():
    parameters = [torch.ones(3), torch.ones(2)]
    assert torch.cat(strided([None, torch.full((2,), 4.0)], parameters, 1)).tolist() == [0, 0, 0, 4, 4]


def test_losses_are_kept_in_order_over_many_chunks_in_double_precision():
    losses, said = Losses(), []
    for number in range(2500):
        loss = torch.tensor(1 / (number + 1), requires_grad=True)
        losses.keep((loss,))
        said.append(loss.item())
    assert losses.all().tolist() == said


def test_an_epoch_gives_the_same_digest_in_any_order_and_another_for_other_samples():
    def digest(batches):
        from array import array

        epoch = Epoch(iter(batches), None, array("q"))
        assert list(epoch) == batches
        assert epoch.ended
        return epoch.digest()

    assert digest([[3, 1], [2]]) == digest([[2, 3], [1]])
    assert digest([[3, 1], [2]]) != digest([[3, 1], [1]])
    assert whole(torch.tensor(5)) == 5
    assert whole("five") == whole("five") != whole("four")
