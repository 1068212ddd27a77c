"""Which rows make a step, and from when on a run is steady."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from made import MS, OPT, B, D, E, F, N, U, outside, rank, row, rows, run

from unstall.accounts.segment import segment
from unstall.model.wire import BACKWARD_CLOSES, PROFILED

STEP = {F: 3 * MS, B: 4 * MS, OPT: 1 * MS}
START, END = outside({U: 50 * MS}), outside({N: 2 * MS})


def steps_of(*given_rows: dict[str, object], warmup: int | None = None) -> list[int]:
    """Return the step of each row."""
    return segment(run(rank(rows(given_rows))), warmup).step_of_row[0].tolist()


def steady_of(*lengths_ms: float, warmup: int | None = None) -> list[int]:
    table = rows([START, *(row({F: int(ms * MS)}) for ms in lengths_ms), END])
    return segment(run(rank(table)), warmup).steps.steady.tolist()


def test_each_row_of_one_optimizer_is_a_step() -> None:
    assert steps_of(START, row(STEP), row(STEP), row(STEP), END) == [-1, 0, 1, 2, -1]


def test_two_optimizers_that_take_turns_are_one_step() -> None:
    discriminator, generator = row({F: 3 * MS, B: MS}, 0), row({F: 2 * MS, B: MS}, 1)
    found = segment(run(rank(rows([START, *[discriminator, generator] * 5, END]))))
    assert found.step_of_row[0].tolist() == [-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, -1]
    assert (found.steps.end_SR - found.steps.start_SR == 7 * MS).all()


def test_the_optimizer_that_steps_least_often_closes_the_step() -> None:
    critic, generator = row({F: 1 * MS}, 0), row({F: 2 * MS}, 1)
    assert steps_of(START, *[*[critic] * 5, generator] * 3, END) == [-1, *[0] * 6, *[1] * 6, *[2] * 6, -1]


def test_an_optimizer_that_stepped_once_in_a_hundred_closes_nothing() -> None:
    usual, guest = row(STEP, 0), row({OPT: MS}, 1)
    found = steps_of(START, *[usual] * 60, guest, *[usual] * 60, END)
    assert max(found) == 119  # the guest's row belongs to the step after it


def test_backward_passes_before_the_first_optimizer_step_close_no_step() -> None:
    # eight micro-batches a step: until the optimizer is seen, the recorder closes rows by the fourth backward on
    early = [row({F: MS, B: MS}, BACKWARD_CLOSES)] * 5
    found = segment(run(rank(rows([START, *early, row({F: MS, OPT: MS}), *[row(STEP)] * 20, END]))))
    assert found.steps.count == 21
    assert found.step_of_row[0].tolist() == [-1, *[0] * 6, *range(1, 21), -1]
    assert found.steps.closed_by == "optimizer"


def test_backward_closes_where_there_is_no_optimizer() -> None:
    found = segment(run(rank(rows([START, *[row({F: MS, B: MS}, BACKWARD_CLOSES)] * 4, END]))))
    assert found.steps.count == 4 and found.steps.closed_by == "backward"


def test_what_follows_the_last_step_is_outside_and_a_step_cut_short_too() -> None:
    critic, generator = row({F: 1 * MS}, 0), row({F: 2 * MS}, 1)
    assert steps_of(START, critic, generator, critic, generator, critic, END) == [-1, 0, 0, 1, 1, -1, -1]


def test_rolled_up_rows_stand_for_their_steps() -> None:
    found = segment(run(rank(rows([START, *[row(STEP)] * 4, row({F: 800 * MS}, steps=100), *[row(STEP)] * 2, END]))))
    assert found.steps.weight_S.tolist() == [1, 1, 1, 1, 100, 1, 1]
    assert found.steps.count == 106
    assert 4 in found.steps.steady  # 8 ms a step each, though the row is long


def test_rolled_up_rows_of_two_optimizers_count_each_step_once() -> None:
    turn = [row({F: 3 * MS}, 0), row({F: 2 * MS}, 1)]
    found = segment(run(rank(rows([START, *turn * 4, row({F: 500 * MS}, 1, steps=200), END]))))
    assert found.steps.weight_S.tolist() == [1, 1, 1, 1, 100]


def test_of_ranks_of_different_length_only_the_steps_of_all_count() -> None:
    long, short = rows([START, *[row(STEP)] * 9, END]), rows([START, *[row(STEP)] * 7, END])
    found = segment(run(rank(long), rank(short, 1)))
    assert found.steps.start_SR.shape == (7, 2)
    assert found.step_of_row[0].tolist() == [-1, *range(7), -1, -1, -1]


def test_the_first_step_is_never_steady() -> None:
    assert steady_of(5, 5, 5, 5) == [1, 2, 3]


def test_long_steps_near_the_start_are_warm_up() -> None:
    assert steady_of(900, 60, 5, 40, *[5] * 20)[0] == 4


def test_a_step_of_less_than_twice_the_usual_is_no_warm_up() -> None:
    assert steady_of(900, 9, 9, *[5] * 20)[0] == 1


def test_a_long_step_later_is_no_warm_up() -> None:
    assert steady_of(900, *[5] * 6, 80, *[5] * 20)[0] == 1


def test_warm_up_takes_half_of_the_steps_at_most() -> None:
    assert steady_of(*[100] * 9, *[5] * 10)[0] <= 10


def test_the_users_warm_up_is_taken_as_given() -> None:
    assert steady_of(5, 5, 5, 5, 5, warmup=3) == [3, 4]
    assert steady_of(5, 5, 5, warmup=0) == [0, 1, 2]


def test_steps_under_another_sensor_are_left_out() -> None:
    table = rows([START, *[row(STEP)] * 3, row(STEP, flags=PROFILED), *[row(STEP)] * 3, END])
    assert 3 not in segment(run(rank(table))).steps.steady


def test_a_forward_without_gradients_in_most_steps_is_a_teacher() -> None:
    taught, plain = row({E: 2 * MS, **STEP}), row(STEP)
    assert segment(run(rank(rows([START, *[taught] * 6, plain, END])))).teaches == (True,)
    assert segment(run(rank(rows([START, *[plain] * 6, taught, plain, END])))).teaches == (False,)


def test_an_evaluation_after_half_of_the_steps_is_none() -> None:
    taught, plain = row({E: 2 * MS, **STEP}), row(STEP)
    assert segment(run(rank(rows([START, *[plain, taught] * 4, END])))).teaches == (False,)


def test_a_run_without_steps_has_none() -> None:
    found = segment(run(rank(rows([START, END]))))
    assert found.steps.count == 0 and found.step_of_row[0].tolist() == [-1, -1]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 10**9)), min_size=1, max_size=40),
    st.none() | st.integers(0, 9),
)
def test_steps_are_disjoint_and_in_order_whatever_closes_them(
    closed: list[tuple[int, int]], warmup: int | None
) -> None:
    table = rows([START, *(row({D: ns}, closer) for closer, ns in closed), END])
    found = segment(run(rank(table)), warmup)
    of_row = found.step_of_row[0]
    inside = of_row[of_row >= 0].tolist()
    assert all(after - before in (0, 1) for before, after in pairwise(inside))
    assert found.steps.count == (max(inside) + 1 if inside else 0)
    assert (np.diff(found.steps.steady) == 1).all()  # steady steps follow one another
