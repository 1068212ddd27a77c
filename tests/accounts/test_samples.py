"""Repeats, reads, draws and growth from the facts that processes left, and from facts that are damaged or missing."""

from __future__ import annotations

import pytest

from unstall.accounts.samples import draws_of, growth_of, reads_of, repeats_of
from unstall.model.loading import Growth
from unstall.model.run import Facts
from unstall.readers._looks import looks
from unstall.readers.wire import Process

NAME = "train.Rows/100"


def digests(*found: list[list[int]], name: str = NAME) -> Facts:
    return Facts({"digests": [[name, one] for one in found]})


def test_a_sample_made_twice_with_the_same_bytes_is_the_same() -> None:
    repeats = repeats_of(NAME, digests([[0, 11, 80], [9, 12, 80]], [[9, 12, 80]], [[0, 11, 80], [4, 1, 40]]))
    assert repeats is not None
    assert (repeats.samples, repeats.same, repeats.once) == (2, 2, 1)
    assert repeats.nbytes == pytest.approx(72)


def test_one_that_differed_once_of_three_times_is_not_the_same() -> None:
    repeats = repeats_of(NAME, digests([[0, 11, 80]], [[0, 11, 80]], [[0, 12, 80]]))
    assert repeats is not None
    assert (repeats.samples, repeats.same) == (1, 0)


def test_samples_of_another_part_of_a_dataset_are_not_taken_for_these() -> None:
    assert repeats_of(NAME, digests([[0, 11, 80]], name="train.Rows/20")) is None


@pytest.mark.parametrize(
    "told", [None, 3, "x", [3], [["train.Rows/100"]], [["train.Rows/100", 4]], [["train.Rows/100", [[1]]]]]
)
def test_digests_that_cannot_be_read_are_not_known(told: object) -> None:
    assert repeats_of(NAME, Facts({"digests": told})) is None  # type: ignore[dict-item]


def test_reads_are_means_a_sample() -> None:
    reads = reads_of(NAME, Facts({"reads": {NAME: [2, 16, 160, 3200, 32, 1600, 4]}}))
    assert reads is not None
    assert (reads.batches, reads.nbytes, reads.read_bytes, reads.calls) == (2, 10, 200, 2)
    assert (reads.stored_bytes, reads.faults) == (100, 0.25)


def test_stalls_of_storage_are_known_where_the_kernel_tells_them() -> None:
    sums = [2, 16, 160, 3200, 32, 1600, 4]
    without = reads_of(NAME, Facts({"reads": {NAME: sums}}))
    told = reads_of(NAME, Facts({"reads": {NAME: [*sums, 0]}, "open": {NAME: 900}}))
    assert without is not None
    assert told is not None
    assert (without.stalled_ns, without.open_bytes) == (None, None)
    assert (told.stalled_ns, told.open_bytes) == (0, 900)


@pytest.mark.parametrize("told", [None, {}, {NAME: [1, 2]}, {NAME: [0, 0, 0, 0, 0, 0, 0]}])
def test_reads_without_a_batch_are_not_known(told: object) -> None:
    assert reads_of(NAME, Facts({"reads": told})) is None  # type: ignore[dict-item]


def test_the_first_draw_of_a_pass_is_kept_apart() -> None:
    told = Facts({"first_ns": [500, 700], "draws": 10, "ns": 1000})
    loader = Facts({"sampler": "Mine", "sampler_at": "/home/me/train.py:7:__iter__"})
    draws = draws_of(loader, told, 1, 20, 50, "/home/me")
    assert draws is not None
    assert (draws.first_ns, draws.pass_ns, draws.batch_ns, draws.batches) == ((550, 750), 650, 100, 10)
    assert (draws.passes, draws.taken, draws.sampler) == (1, 20, "Mine")
    assert draws.at is not None
    assert draws.at.line == 7


def test_draws_that_were_not_observed_are_not_known() -> None:
    assert draws_of(Facts(), Facts(), 1, 1, 0, "") is None


def growth(*workers: list[list[int]]) -> Growth | None:
    memory = {str(pid): looks for pid, looks in enumerate(workers)}
    return growth_of(range(len(workers)), Facts({"memory": memory}))  # type: ignore[dict-item]


def test_growth_is_from_the_first_look_to_the_last_of_workers_with_two() -> None:
    found = growth(
        [[0, 8, 100, 900, 0, 0], [500, 16, 0, 0, 0, 0], [1000_000, 40, 500, 900, 6, 100]],
        [[0, 8, 300, 900, 0, 0], [1000_000, 24, 500, 900, 0, 300]],
        [[0, 8, 1, 1, 0, 0]],
    )
    assert found is not None
    assert (found.first_bytes, found.last_bytes, found.grown_bytes) == (200, 500, 300)
    assert (found.swapped_bytes, found.batches, found.workers) == (3, 24, 2)
    assert found.stalled_share == pytest.approx(0.2)


def test_a_page_that_was_shared_and_is_written_to_is_copied_and_new_memory_is_not() -> None:
    copies, adds = (growth([[0, 8, 100, 900, 0, 0], [9, 16, 400, rss, 0, 0]]) for rss in (900, 1200))
    assert copies is not None
    assert adds is not None
    assert (copies.copied_bytes, adds.copied_bytes) == (300, 0)


@pytest.mark.parametrize("looks", [[], [[0, 8, 1, 1, 0, 0]], [[1], [2]], [None, None], 4])
def test_one_look_is_no_growth(looks: object) -> None:
    assert growth(looks) is None  # type: ignore[arg-type]


def test_what_processes_told_is_joined(tmp_path: object) -> None:
    def process(pid: int, facts: dict[str, object]) -> Process:
        return Process(tmp_path, {"pid": pid}, facts)  # type: ignore[arg-type]

    main = process(1, {"digests:1": [NAME, [[0, 5, 8]]], "reads:a.B": [1, 4, 8, 1, 1, 0, 0], "open:a.B": 70})
    workers = [
        process(2, {"digests:1": [NAME, [[0, 5, 8]]], "reads:a.B": [2, 4, 8, 3, 1, 0, 0], "memory:1": [5, 8, 1, 1]}),
        process(4, {"open:a.B": 90}),
        process(3, {"memory:10": [9, 64, 3, 1], "memory:9": [5, 8, 2, 1]}),
    ]
    assert looks(main, workers) == {
        "digests": [[NAME, [[0, 5, 8]]]] * 2,
        "reads": {"a.B": [3, 8, 16, 4, 2, 0, 0]},
        "open": {"a.B": 90},
        "memory": {"2": [[5, 8, 1, 1]], "3": [[5, 8, 2, 1], [9, 64, 3, 1]]},
    }
    assert looks(process(1, {}), []) == {}
