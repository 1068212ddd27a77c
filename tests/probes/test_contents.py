"""What a batch holds: its padding is told from its numbers, and what only looks like padding is not taken for it."""

import numpy as np
import pytest
import torch

from unstall.probes._contents import Contents, leaves, padding

LENGTHS = [5, 12, 20, 7]


def ids(width=32, pad=0, left=False, low=1):
    made = torch.full((len(LENGTHS), width), pad)
    for row, length in zip(made, LENGTHS):
        row[slice(-length, None) if left else slice(length)] = torch.arange(length) % 90 + low
    return made


def look(**tensors):
    return padding(list(tensors.items()))


@pytest.mark.parametrize("made", [ids(), ids(pad=-100), ids(left=True), ids().int()])
def test_ids_that_end_or_begin_in_one_value_are_padded(made):
    assert look(ids=made) == ((32, 11.0, 20.0), 1.0)


def test_vectors_that_end_in_zeros_are_padded():
    assert look(x=ids()[:, :, None].expand(-1, -1, 6).float()) == ((32, 11.0, 20.0), 1.0)


def test_a_signal_that_ends_in_zeros_is_padded():
    assert look(x=ids(128).float()) == ((128, 11.0, 20.0), 1.0)


def test_what_is_padded_alike_counts_and_other_tensors_do_not():
    (_, part) = look(ids=ids(), mask=(ids() != 0).long(), kinds=torch.zeros(4, 64, dtype=torch.long))
    assert part == 0.5


@pytest.mark.parametrize(
    "made",
    [
        torch.arange(96).reshape(4, 24),  # nothing is constant
        torch.zeros(4, 24, dtype=torch.long),  # nothing else
        torch.eye(10)[[1, 4, 7, 2]].long(),  # one-hot
        (torch.rand(16, 100, generator=torch.Generator().manual_seed(0)) < 0.05).long(),  # words of a bag
        torch.relu(torch.randn(16, 100, generator=torch.Generator().manual_seed(0))),  # sparse numbers
        torch.randn(4, 1, 28, 28),  # pictures
        torch.nn.functional.pad(torch.rand(4, 12, 12), (8, 8, 8, 8)),  # a picture with a black border
        torch.randn(4, 20),
        ids()[:1],
        ids().to_sparse(),
        torch.nn.Parameter(ids().float()),
    ],
)
def test_what_is_no_padding_is_not_taken_for_it(made):
    assert look(x=made) is None


def test_leaves_are_counted_in_containers():
    tensors, objects = leaves([{"a": ids(), "b": ["x", 1, None]}, (ids(), np.zeros(3))])
    assert [name for name, _ in sorted(tensors, key=lambda each: each[0])] == ["", "a"]
    assert objects == 4


def test_means_are_over_the_looks():
    contents = Contents()
    contents.look([ids(), 7])
    told = contents.look([ids(width=40), ids(width=40), 7])
    assert (told["looks"], told["tensors"], told["objects"]) == (2, 1.5, 1.0)
    assert (told["width"], told["length"], told["longest"], told["same_width"]) == (36, 11, 20, False)
