"""Half the width is a candidate, and the variable is set to what the processor has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unstall.causes.compiler.narrow_vectors import (
    _GATE,
    _LINE,
    _PICTURE,
    _PRODUCT,
    VARIABLE,
    NarrowVectors,
    _given,
    _hot,
)
from unstall.causes.kernels.too_few_threads import TooFewThreads
from unstall.model.case import Silent
from unstall.model.finding import Candidate, Environment
from unstall.model.remedy import SetEnvironment
from unstall.model.tables import Cores
from unstall.pipeline import account, explained
from unstall.testing.contract import With, found_in, said_of
from unstall.testing.timeline import draw


def test_half_the_width_is_a_candidate_at_its_line():
    (said,) = found_in(NarrowVectors(), Silent(_PICTURE, "", _given("256")))
    assert isinstance(said, Candidate)
    assert said.where == _LINE
    assert "256 bits" in said.title and "512" in said.title


def test_half_the_width_is_not_told_where_the_kernels_take_little():
    assert found_in(NarrowVectors(), Silent(_PICTURE, "", _given("256", kernel_ms=1))) == []


def test_the_variable_of_the_command_is_set_to_the_processors_vectors():
    narrow = _given(capability="DEFAULT", variable="default", isa=["avx", "avx2"])
    said = said_of(NarrowVectors(), Silent(_PICTURE, "", narrow))
    assert said.found[0].where == Environment(VARIABLE)
    assert said.remedies[0][0].edits == (SetEnvironment(VARIABLE, "avx2"),)


@pytest.mark.parametrize("line, first", [(_GATE, "compiler/narrow-vectors"), (_PRODUCT, "kernels/too-few-threads")])
def test_with_one_thread_of_two_as_well_what_the_steps_compute_tells_which_comes_first(line, first):
    scalar = _given(capability="DEFAULT", variable="default", lines=(_hot(line),))
    facts = {
        **scalar.facts,
        "threads.intra": 1,
        "threads.set_by": "/p/train.py:3:<module>",
        "parameters:0": {"tensors": 4},
    }
    given = replace(scalar, facts=facts, tables={**scalar.tables, "cores": Cores(2.0, 1, 1.0, 1.0, 0.1), "loaders": ()})
    drawn = draw(_PICTURE, given)
    ledger, tables, segments = account(drawn)
    said = explained(drawn, ledger, With(tables, given.tables), segments, (NarrowVectors(), TooFewThreads()))
    assert said.findings[0].cause == first
