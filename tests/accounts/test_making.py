"""The lines that make the batches."""

from __future__ import annotations

import numpy as np

from unstall.accounts.making import batch_lines
from unstall.model.run import Place, Samples

FETCH = Place("/env/torch/utils/data/_utils/fetch.py", 55, "fetch")
OUTER = Place("/src/unstall/probes/fetching.py", 90, "timed_collate")
WRITES = Place("/src/unstall/model/wire.py", 184, "frame")
USERS = Place("/home/me/train.py", 12, "pad")


def lines_of(*stacks: tuple[Place, ...]) -> list[str]:
    count = len(stacks)
    table = Samples(np.arange(count), np.full(count, 10), np.arange(count), stacks, 100.0)
    found = batch_lines((), (table,), True, None, "/home/me")
    return [f"{line.line.file}:{line.line.line}" for line in found if line.line is not None]


def test_what_records_within_the_making_of_a_batch_is_no_line_of_the_users() -> None:
    assert lines_of((FETCH, OUTER, USERS), (FETCH, OUTER, WRITES)) == ["train.py:12"]
