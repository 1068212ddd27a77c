"""What happens now and then on the training thread, with the line and the phase that it belongs to."""

from __future__ import annotations

import numpy as np
from made import LOADING, MS, F, N, U, outside, rank, row, rows, run

from unstall.model.events import Events
from unstall.model.wire import Kind, Phase
from unstall.pipeline import account

STEPS = 40


def collected(offset_ns: int) -> Events:
    """Return a full collection of 1 ms, *offset_ns* after each step's begin."""
    start = 1000 * MS + np.arange(STEPS, dtype=np.int64) * 100 * MS + offset_ns
    zeros, ones = np.zeros(STEPS, np.int32), np.ones(STEPS, np.int64)
    kinds = np.full(STEPS, int(Kind.GC), np.uint8)
    return Events(start, start + MS, kinds, zeros, zeros, zeros - 1, 2 * ones, names=("/home/me/train.py:30:main",))


def test_collections_are_told_in_the_phase_in_which_they_began() -> None:
    table = rows([outside({U: 1000 * MS}), *[row({LOADING: 40 * MS, F: 60 * MS})] * STEPS, outside({N: MS})])
    (in_fetch,) = account(run(rank(table, events=collected(10 * MS))))[1].collections
    (in_forward,) = account(run(rank(table, events=collected(50 * MS))))[1].collections
    assert (in_fetch.phase, in_fetch.line.line, in_fetch.explicit) == (Phase.FETCH, 30, False)
    assert in_forward.phase is Phase.FORWARD
