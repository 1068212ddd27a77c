"""Which line is blamed for what it reads."""

from __future__ import annotations

from dataclasses import replace

from unstall.causes.data._reads import reading
from unstall.causes.data.slow_storage import SlowStorage
from unstall.model.case import Fires, Given
from unstall.model.finding import Line
from unstall.model.loading import BatchLine
from unstall.testing.contract import found_in

CASE = next(case for case in SlowStorage.cases if isinstance(case, Fires))
READS = BatchLine(
    Line("train.py", 31, "__getitem__", "os.preadv(self.file, [self.buffer], i * SIZE)"), "getitem", 0, 0.3, 0.3, 9
)
COPIES = BatchLine(
    Line("train.py", 32, "__getitem__", "return torch.frombuffer(bytearray(self.buffer)), i"),
    "getitem",
    0,
    0.7,
    0.7,
    20,
)


def test_a_line_that_only_copies_what_was_read_does_not_read() -> None:
    assert reading((COPIES,)) is None
    assert reading((COPIES, READS)) == READS


def test_storage_blames_the_line_that_reads_though_copying_takes_more_of_the_samples() -> None:
    def blamed(*lines: BatchLine) -> object:
        given = Given(CASE.given.facts, {**CASE.given.tables, "batch_lines": lines}, CASE.given.missing)
        (found,) = found_in(SlowStorage(), replace(CASE, given=given))
        return found.where

    assert blamed(COPIES, READS) == READS.line
    assert blamed(COPIES, replace(READS, samples=1)) == COPIES.line
