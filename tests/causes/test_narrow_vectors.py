"""Half the width is a candidate, and the variable is set to what the processor has."""

from __future__ import annotations

from unstall.causes.compiler.narrow_vectors import _LINE, _PICTURE, VARIABLE, NarrowVectors, _given
from unstall.model.case import Silent
from unstall.model.finding import Candidate, Environment
from unstall.model.remedy import SetEnvironment
from unstall.testing.contract import found_in, said_of


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
