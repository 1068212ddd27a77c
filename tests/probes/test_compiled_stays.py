"""A model is compiled under the recorder as it is without it: same graphs, breaks, recompiles and losses."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled_loops import SCRIPTS, objections


@pytest.mark.parametrize("name", SCRIPTS)
def test_compiled_training_is_compiled_alike_under_the_recorder(name: str, tmp_path: Path) -> None:
    assert not objections(SCRIPTS[name], "aot_eager", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compiled module", "compiled optimizer step with a schedule", "a graph break"])
def test_training_compiled_by_inductor_is_compiled_alike_under_the_recorder(name: str, tmp_path: Path) -> None:
    assert not objections(SCRIPTS[name], "inductor", tmp_path)
