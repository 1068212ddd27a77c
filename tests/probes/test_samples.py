"""Digests of samples: equal for equal bytes, in every process and pass; and what cannot be compared is left alone."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

from unstall.probes import _samples
from unstall.probes._samples import MOST_BYTES, WATCHED, Reads, Samples, digest, lengths, memory_of, open_bytes, told


class Rows(Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.full((4,), float(i))


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


class Recorder:
    def __init__(self) -> None:
        self.facts: dict[str, object] = {}

    def fact(self, facts: dict[str, object]) -> None:
        self.facts.update(facts)

    def say(self, message: str) -> bool:
        return True

    def write(self, kind: int, payload: bytes) -> None: ...


def samples() -> Samples:
    return Samples(SimpleNamespace(recorder=Recorder(), on=True))


def fetcher(dataset: object, auto_collation: bool = True) -> _MapDatasetFetcher:
    return _MapDatasetFetcher(dataset, auto_collation, list, False)


LARGE = np.arange(300_000, dtype=np.float32)


@pytest.mark.parametrize(
    "sample",
    [torch.arange(7), (torch.rand(3, 5), 4), {"x": LARGE, "y": "word"}, [b"bytes", None, 2.5], np.float64(3), LARGE],
    ids=["tensor", "pair", "dict", "list", "scalar", "array"],
)
def test_a_copy_of_a_sample_has_the_same_digest(sample: object) -> None:
    import copy

    assert digest(sample) is not None
    assert digest(copy.deepcopy(sample)) == digest(sample)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.arange(6), torch.arange(6).reshape(2, 3)),
        (torch.arange(6), torch.arange(6).int()),
        (torch.arange(6), torch.tensor([0, 1, 2, 3, 4, 6])),
        ((1, 2), (2, 1)),
        ((1, 2), [1, 2]),
        ({"a": 1}, {"b": 1}),
        (b"ab", b"ac"),
        (LARGE.reshape(3, 500, 200), LARGE.reshape(3, 500, 200)[:, :, ::-1]),
    ],
    ids=["shape", "type", "value", "order", "container", "key", "bytes", "mirrored"],
)
def test_samples_that_differ_have_other_digests(one: object, other: object) -> None:
    assert digest(one) != digest(other)


def test_a_change_of_one_element_in_a_hundred_of_a_large_array_is_seen() -> None:
    changed = LARGE.copy()
    changed[::100] += 1
    assert digest(changed) != digest(LARGE)


def test_a_view_has_the_digest_of_its_copy() -> None:
    view = torch.from_numpy(LARGE).reshape(600, 500).T
    assert digest(view) == digest(view.contiguous())


def test_little_of_a_large_array_is_read() -> None:
    read = LARGE.flat[:: LARGE.nbytes // MOST_BYTES + 1 | 1]
    assert read.nbytes <= MOST_BYTES


@pytest.mark.parametrize(
    "sample", [object(), (torch.zeros(2), object()), np.array([object()]), torch.zeros(2).to_sparse()]
)
def test_what_cannot_be_compared_has_no_digest(sample: object) -> None:
    assert digest(sample) is None


@pytest.mark.parametrize("count", [1, 5, WATCHED, 1000, 10_000_019])
def test_the_same_few_indices_are_watched_wherever_the_dataset_is(count: int) -> None:
    watched = told(fetcher(Rows(count))).watched
    assert watched == told(fetcher(Rows(count))).watched
    assert min(count, WATCHED) <= len(watched) <= 2 * WATCHED
    assert all(0 <= index < count for index in watched)


def test_a_dataset_that_lies_where_another_was_is_asked_for_its_own_length() -> None:
    gone, new = Rows(1), Rows(5)
    told(fetcher(gone))
    lengths[id(new)] = lengths.pop(id(gone))
    assert told(fetcher(new)).watched == frozenset(range(5))


def test_nothing_is_watched_where_samples_have_no_index() -> None:
    assert not told(fetcher(Rows(10), auto_collation=False)).watched
    assert not told(_IterableDatasetFetcher(Stream(), True, list, False)).watched


@pytest.mark.parametrize("index", [[[1, 2]], [{}], ["a"], [-1], 0, None], ids=str)
def test_indices_of_any_kind_are_passed_over(index: object) -> None:
    looking = samples()
    assert not looking.wants(fetcher(Rows(10)), index)
    assert looking.probe.on


def test_a_fetcher_does_not_ask_again_for_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(Rows, "__len__", lambda rows: asked.append(1) or rows.count)
    rows = Rows(50)
    for _ in range(3):
        assert told(fetcher(rows)).watched
    assert len(asked) == 1


def test_an_error_of_ours_ends_the_looks_and_not_the_training() -> None:
    looking, broken = samples(), fetcher(Rows(10))
    del broken.dataset
    assert not looking.wants(broken, [0])
    assert not looking.probe.on


def test_the_watched_samples_of_a_batch_are_written_down_in_its_order() -> None:
    looking, of = samples(), fetcher(Rows(3200))
    index = [7, 100, 3, 0]  # each hundredth is watched
    assert looking.wants(of, index)
    looking.look(of, index, [of.dataset[i] for i in index])
    name, found = looking.recorder.facts["digests:1"]
    assert name.endswith(".Rows/3200")
    assert found == [[100, *digest(Rows(1)[100])], [0, *digest(Rows(1)[0])]]


def test_looking_ends_at_its_bound_and_where_a_sample_cannot_be_compared() -> None:
    looking, of = samples(), fetcher(Rows(10))
    for _ in range(_samples.MOST_DIGESTS):
        assert looking.left
        assert looking.wants(of, [0])
        looking.look(of, [0], [of.dataset[0]])
    assert looking.left == 0
    odd = samples()
    assert odd.wants(of, [0])
    odd.look(of, [0], [object()])
    assert odd.left == 0
    assert not odd.recorder.facts


def test_what_a_batch_reads_is_counted(tmp_path: object) -> None:
    path = f"{tmp_path}/data"
    with open(path, "wb") as file:
        file.write(bytes(100_000))
    reads = samples().reads
    begun = reads.begin(1)
    assert begun is not None
    with open(path, "rb", buffering=0) as file:
        file.read(60_000)
    reads.end(begun, fetcher(Rows(4)), 4, 320)
    (batches, count, nbytes, read, calls, *_) = reads.recorder.facts[f"reads:{__name__}.Rows/4"]
    assert (batches, count, nbytes) == (1, 4, 320)
    assert 60_000 <= read < 70_000
    assert calls >= 1


def test_files_that_are_kept_open_are_counted_once_each(tmp_path: object) -> None:
    path = f"{tmp_path}/data"
    before = open_bytes()
    with open(path, "wb") as file:
        file.write(bytes(100_000))
        file.flush()
        assert open_bytes() == before  # it cannot be read from
    with open(path, "rb"), open(path, "rb"):
        assert open_bytes() == before + 100_000


def test_most_batches_are_not_looked_at() -> None:
    reads = Reads(SimpleNamespace(recorder=Recorder(), on=True))
    looked = [count for count in range(1, 65) if reads.begin(count) is not None]
    assert looked == [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 48, 64]


def test_memory_that_a_process_holds_for_itself_grows_with_what_it_makes() -> None:
    before, held, _ = memory_of()
    with mmap.mmap(-1, 30_000_000, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as more:  # no memory that was freed before
        more.write(bytes(30_000_000))
        after, all_held, _ = memory_of()
    assert after - before >= 25_000_000
    assert all_held - held >= 25_000_000


def test_memory_that_a_forked_process_writes_to_is_copied() -> None:
    shared = bytearray(b"x" * 40_000_000)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        before, held, _ = memory_of()
        shared[::4096] = b"y" * len(shared[::4096])
        after, all_held, _ = memory_of()
        os.write(writer, f"{after - before} {all_held - held}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    grown, more = map(int, os.read(reader, 100).split())
    assert grown >= 30_000_000 > 10_000_000 > more
