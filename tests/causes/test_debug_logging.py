"""Of the compiler's log counts what is written, and what is made into text for it."""

from dataclasses import replace

import pytest

from unstall.causes.compiler.debug_logging import _LOGGING, _PICTURE, _SHOWS, DebugLogging, _given
from unstall.model.case import Silent
from unstall.testing.contract import found_in


@pytest.mark.parametrize("made, counts", [("dis.Bytecode.dis", True), ("dis.get_instructions", False)])
def test_programs_made_into_text_are_counted_and_those_that_are_only_read_are_not(made, counts):
    hot = replace(_LOGGING, paths=(((_SHOWS[0], made), 1.0),))
    assert bool(found_in(DebugLogging(), Silent(_PICTURE, "", _given(hot)))) is counts


def test_a_program_that_the_script_itself_prints_is_not_counted():
    hot = replace(_LOGGING, paths=((("dis.Bytecode.dis",), 1.0),))
    assert found_in(DebugLogging(), Silent(_PICTURE, "", _given(hot))) == []
