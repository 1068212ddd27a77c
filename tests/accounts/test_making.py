"""The lines that make the batches."""

from __future__ import annotations

from pathlib import Path

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


def test_the_users_collate_function_is_told_from_the_samples_in_batches_that_are_not_timed(tmp_path: Path) -> None:
    file = tmp_path / "torch" / "utils" / "data" / "_utils" / "fetch.py"
    file.parent.mkdir(parents=True)
    file.write_text("data = self.dataset[index]\nreturn self.collate_fn(data)\n")
    samples, collate = (Place(str(file), line, "fetch") for line in (1, 2))
    table = Samples(np.arange(2), np.full(2, 10), np.arange(2), ((samples, USERS), (collate, USERS)), 100.0)
    assert {line.part for line in batch_lines((), (table,), True, None, "/home/me")} == {"getitem", "collate"}


def test_a_line_is_told_to_stand_in_a_loop_of_its_function(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "for epoch in range(9):\n    def pad(rows):\n        begin()\n        for row in rows:\n            fill(row)\n"
    )
    begins, fills = (Place(str(file), line, "pad") for line in (3, 5))
    table = Samples(np.arange(2), np.full(2, 10), np.arange(2), ((FETCH, OUTER, begins), (FETCH, OUTER, fills)), 100.0)
    found = batch_lines((), (table,), True, None, str(tmp_path))
    assert {line.line.line: line.loop for line in found if line.line is not None} == {3: False, 5: True}
