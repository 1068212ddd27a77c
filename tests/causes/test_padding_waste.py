"""Which line is blamed for padding."""

from __future__ import annotations

from dataclasses import replace

from unstall.causes.data.padding_waste import PaddingWaste
from unstall.model.case import Fires, Given
from unstall.model.finding import Line
from unstall.model.loading import BatchLine
from unstall.testing.contract import found_in

CASE = next(case for case in PaddingWaste.cases if isinstance(case, Fires))
FILLS = BatchLine(Line("train.py", 18, "pad", "ids = torch.zeros(len(samples), WIDTH)"), "collate", 0, 0.2, 0.2, 6)
COPIES = BatchLine(Line("train.py", 20, "pad", "ids[row, : words.numel()] = words"), "collate", 0, 0.7, 0.7, 21)


def blamed(*lines: BatchLine) -> object:
    given = Given(CASE.given.facts, {**CASE.given.tables, "batch_lines": lines}, CASE.given.missing)
    (found,) = found_in(PaddingWaste(), replace(CASE, given=given))
    return found.where


def test_the_line_that_fills_up_is_blamed_though_another_of_its_function_takes_longer() -> None:
    assert blamed(COPIES, FILLS) == FILLS.line


def test_the_loader_is_blamed_where_no_line_that_fills_up_was_seen() -> None:
    site = CASE.given.tables["loaders"][0].site
    assert blamed(COPIES) == site
    assert blamed(COPIES, replace(FILLS, samples=1)) == site
