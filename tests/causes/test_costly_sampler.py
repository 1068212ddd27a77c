"""What is advised for a sampler that takes long: to draw fewer indices, or to draw them as tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unstall.causes.data.costly_sampler import CostlySampler
from unstall.model.case import Fires
from unstall.model.loading import LoaderUse
from unstall.testing.contract import said_of


@pytest.mark.parametrize(("length", "advised"), [(4_000_000, "chunks"), (2_000, "tensors")])
def test_fewer_indices_are_advised_only_where_a_pass_leaves_most_unused(length: int, advised: str) -> None:
    case = next(case for case in CostlySampler.cases if isinstance(case, Fires))
    (use,) = case.given.tables["loaders"]  # type: ignore[misc]
    assert isinstance(use, LoaderUse)
    assert use.draws is not None
    ten_batches = replace(
        use, length=length, samples=200, draws=replace(use.draws, batches=18)
    )  # in each of two passes
    given = replace(case.given, tables={**case.given.tables, "loaders": (ten_batches,)})
    said = said_of(CostlySampler(), replace(case, given=given))
    assert [remedy.id for remedy in said.remedies[0]] == [f"data/costly-sampler#{advised}"]
