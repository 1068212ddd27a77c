"""Width, colour and the note in the margin."""

from __future__ import annotations

import io
import re

import pytest

from unstall.cli._screen import MarginNote, has_colour, width_of


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_nothing_is_written_where_there_is_no_terminal():
    stream = io.StringIO()
    note = MarginNote(stream)
    note("step 3 of 200")
    note.clear()
    assert stream.getvalue() == ""


def test_the_note_leaves_the_cursor_where_it_was_and_keeps_off_the_last_column(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    MarginNote(stream)("a status that is a good deal longer than there is room for")
    said = stream.getvalue()
    assert said.startswith("\x1b7")
    assert said.endswith("\x1b8")
    assert f"\x1b[{80 - MarginNote.LONGEST}G" in said
    assert "\n" not in said
    assert said.count("a status") == 1


def test_a_note_is_written_once_a_second_at_most_and_not_twice_the_same():
    stream = Terminal()
    note = MarginNote(stream)
    note("one")
    note("two")
    assert "two" not in stream.getvalue()
    note.due_s = 0.0
    before = stream.getvalue()
    note("one")
    assert stream.getvalue() == before
    note("two")
    assert "two" in stream.getvalue()


def test_clearing_takes_off_a_note_and_only_if_there_is_one():
    stream = Terminal()
    note = MarginNote(stream)
    note.clear()
    assert stream.getvalue() == ""
    note("one")
    written = len(stream.getvalue())
    note.clear()
    assert re.fullmatch(r"\x1b7\x1b\[\d+G\x1b\[2m +\x1b\[22m\x1b8", stream.getvalue()[written:])


def test_a_narrow_terminal_gets_no_note(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    stream = Terminal()
    MarginNote(stream)("one")
    assert stream.getvalue() == ""


def test_colour_follows_terminal_and_environment(monkeypatch):
    assert has_colour(Terminal())
    assert not has_colour(io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert has_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour(Terminal())


def test_width_without_a_terminal_is_asked_of_the_environment(monkeypatch):
    assert width_of(io.StringIO()) == 100
    monkeypatch.setenv("COLUMNS", "72")
    assert width_of(io.StringIO()) == 72
