"""What a batch costs, how often one is taken, and whether making it draws random numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made import LOADING, MS, WAITING, B, F, N, U, outside, rank, row, rows, run

from unstall.accounts.loading import MAIN_PROCESS
from unstall.model.events import Events
from unstall.model.loading import LoaderUse
from unstall.model.remedy import Safety
from unstall.model.run import Fetches, Rank, Run
from unstall.model.wire import RANDOM_DRAWN, RANDOM_SEEN, Kind
from unstall.pipeline import account

STEPS = 20
SETTINGS = {
    "site": "/home/me/train.py:12:main",
    "library": "",
    "num_workers": 2,
    "batch_size": 8,
    "persistent_workers": False,
}
COLUMNS = (
    "pid", "worker", "loader", "batch", "start_ns", "wall_ns", "cpu_ns", "run_queue_ns", "team_cpu_ns", "getitem_ns", "collate_ns",
    "pickle_ns", "nbytes", "samples", "flags",
)  # fmt: skip


def fetches(count: int, first_wall_ns: int = 0, **columns: int) -> Fetches:
    """Return *count* batches alike, numbered from 1; the first may take longer."""
    known = {name: np.full(count, columns.get(name, 0), np.int64) for name in COLUMNS}
    known["batch"] = np.arange(1, count + 1)
    if first_wall_ns:
        known["wall_ns"][:2] = first_wall_ns
    return Fetches(**known)


def waits(name: str, made: Rank, per_step: int = 1, kind: Kind = Kind.WAIT_DATA, ns: int = 4 * MS) -> Events:
    """Return *per_step* fetches at the start of each step, of *ns* each."""
    assert made.rows is not None
    starts = made.rows.start_ns[made.rows.steps > 0]
    start = np.array([int(s) + k * ns for s in starts for k in range(per_step)], np.int64)
    zeros = np.zeros(start.size, np.int32)
    return Events(
        start, start + ns, np.full(start.size, kind, np.uint8), zeros, zeros + 1, zeros - 1, zeros.astype(np.int64),
        names=("", name),
    )  # fmt: skip


def training(cell: tuple = WAITING, per_step: int = 1, made: Fetches | None = None, **settings: object) -> Run:
    table = rows(
        [outside({U: MS}), *[row({cell: 4 * MS * per_step, F: 10 * MS, B: 10 * MS})] * STEPS, outside({N: MS})]
    )
    bare = rank(table, facts={"loader:0": {**SETTINGS, **settings}, "trains:0": True})
    kind = Kind.WAIT_DATA if cell == WAITING else Kind.LOAD
    return run(replace(bare, events=waits("loader:0", bare, per_step, kind), fetches=made))


def use_of(of: Run) -> LoaderUse:
    return account(of)[1].loaders[0]


def test_the_wait_is_the_ledgers_and_a_batch_a_step() -> None:
    use = use_of(training())
    assert use.wait_ns == (STEPS - 1) * 4 * MS
    assert (use.batches, use.per_step, use.trains) == (STEPS - 1, 1.0, True)
    assert (use.workers, use.batch_size, use.persistent) == (2, 8, False)


def test_micro_batches_are_several_a_step() -> None:
    assert use_of(training(per_step=4)).per_step == 4.0


def test_a_batch_costs_the_median_of_the_workers_without_their_first_ones() -> None:
    use = use_of(
        training(
            made=fetches(12, first_wall_ns=900 * MS, wall_ns=30 * MS, cpu_ns=20 * MS, run_queue_ns=4 * MS, pickle_ns=MS)
        )
    )
    assert (use.batch_wall_ns, use.batch_cpu_ns, use.batch_run_queue_ns) == (30 * MS, 20 * MS, 4 * MS)
    assert use.batch_blocked_ns == 6 * MS  # wall = CPU + run queue + blocked
    assert use.pickle_ns == MS


def test_of_a_wait_for_a_core_that_began_in_a_fetch_only_what_fits_into_it_is_its_own() -> None:
    made = fetches(12, wall_ns=30 * MS, cpu_ns=20 * MS, run_queue_ns=90 * MS)
    made.run_queue_ns[3:9] = 4 * MS
    use = use_of(training(made=made))
    assert (use.batch_wall_ns, use.batch_run_queue_ns, use.batch_blocked_ns) == (30 * MS, 4 * MS, 6 * MS)
    made.run_queue_ns[:] = 90 * MS
    use = use_of(training(made=made))
    assert (use.batch_run_queue_ns, use.batch_blocked_ns) == (10 * MS, 0)


def test_a_batch_that_waits_for_a_core_is_no_slow_one() -> None:
    made = fetches(14, wall_ns=5 * MS, cpu_ns=5 * MS)
    made.wall_ns[6] = 80 * MS
    use = use_of(training(made=made))
    assert (use.batch_slow_ns, use.slow_share) == (80 * MS, 1 / 12)
    made.run_queue_ns[6] = 75 * MS
    use = use_of(training(made=made))
    assert (use.batch_slow_ns, use.slow_share) == (0, 0.0)


def test_a_loader_without_workers_costs_what_the_training_process_takes() -> None:
    made = fetches(9, worker=MAIN_PROCESS, wall_ns=4 * MS, cpu_ns=3 * MS)
    use = use_of(training(LOADING, made=made, num_workers=0))
    assert (use.batch_wall_ns, use.batch_blocked_ns, use.pickle_ns) == (4 * MS, MS, None)


@pytest.mark.parametrize(
    ("flags", "draws"),
    [(0, None), (RANDOM_SEEN, False), (RANDOM_SEEN | RANDOM_DRAWN, True)],
    ids=["not-seen", "unchanged", "drawn"],
)
def test_draws_are_told_apart_from_not_having_looked(flags: int, draws: bool | None) -> None:
    of = training(made=fetches(9, wall_ns=MS, flags=flags))
    assert use_of(of).draws_random is draws
    kept = account(of)[1].input_safety
    assert kept is (Safety.SAME_BITS if draws is False else Safety.SAME_DISTRIBUTION)


def test_one_drawing_batch_among_many_is_enough() -> None:
    made = fetches(30, wall_ns=MS, flags=RANDOM_SEEN)
    made.flags[17] |= RANDOM_DRAWN
    assert use_of(training(made=made)).draws_random is True


def test_a_function_that_makes_the_batch_is_a_loader_too() -> None:
    table = rows([outside({U: MS}), *[row({LOADING: 4 * MS, F: 10 * MS})] * STEPS, outside({N: MS})])
    bare = rank(table)
    producing = replace(bare, events=waits("/home/me/train.py:7:get_batch", bare, kind=Kind.LOAD))
    use = use_of(run(producing))
    assert (use.made_by, use.site.line, use.trains) == ("get_batch", 7, True)
    assert use.wait_ns == (STEPS - 1) * 4 * MS
