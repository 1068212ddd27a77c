"""Where a report goes: the terminal it fits itself to, and files."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from unstall.model.errors import UnstallError

if TYPE_CHECKING:
    from unstall.model.report import Report

UNKNOWN_WIDTH = 100  # columns, where the stream is no terminal and COLUMNS is not set


def width_of(stream: TextIO) -> int:
    """Return the columns of the terminal behind *stream*, else ``COLUMNS``, else 100."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    asked = os.environ.get("COLUMNS", "")
    return columns or (int(asked) if asked.isdigit() else 0) or UNKNOWN_WIDTH


def has_colour(stream: TextIO) -> bool:
    """Return whether to colour what goes to *stream*: on a terminal, unless NO_COLOR forbids or FORCE_COLOR asks."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def show(report: Report, stream: TextIO, *, verbose: bool) -> None:
    """Write the page to *stream*, in its width, its colours and its characters."""
    from unstall.views import view

    page = view("terminal").render(report, width=width_of(stream), colour=has_colour(stream), verbose=verbose)
    write(page, stream)


def write(text: str, stream: TextIO) -> None:
    """Write *text* in the characters that *stream* has."""
    from unstall.views._glyphs import fit

    stream.write(fit(text, stream.encoding))
    stream.flush()


def save(report: Report, path: Path) -> None:
    """Write the report as JSON, all of it or nothing.

    Raises:
        UnstallError: When the file cannot be written.
    """
    from unstall.views import view

    again = f"The recording is whole: unstall diagnose {report.recording} --json FILE" if report.recording else ""
    save_text(view("json").render(report, width=0, colour=False, verbose=False), path, again)


def save_text(text: str, path: Path, again: str = "") -> None:
    """Write *text*, all of it or nothing; lone surrogates, which UTF-8 has not, as JSON writes them.

    Args:
        again: how to get at what it holds where it cannot be written.
    Raises:
        UnstallError: When the file cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        said = f"{path}: the report could not be written ({error.strerror})."
        raise UnstallError(f"{said}\n{again}".rstrip()) from error


def check_writable(path: Path | None, option: str = "--json") -> None:
    """Say before the work what would be found out only after it.

    Raises:
        UnstallError: When no file can be made at *path*.
    """
    if path is None:
        return
    if path.is_dir():
        raise UnstallError(f"{path}: is a folder; {option} takes the name of a file.")
    if not path.parent.is_dir():
        raise UnstallError(f"{path.parent}: there is no such folder, so nothing could be written to {path.name}.")


class MarginNote:
    """The status while a training runs: a short note at the right edge of the line that the cursor is in.

    The training writes to the same terminal, and nobody but the terminal knows where its cursor stands.  A line of
    our own would be torn apart by the next ``print``.  So the cursor is saved, a note of a few words is written at the
    right edge, and the cursor is put back: what the training writes next lands where it would have landed, and a line
    that is long enough covers the note.  A note is written once a second at most, only if it says something new.
    Nothing is written when *stream* is no terminal, or one of under 60 columns.
    """

    LONGEST = 36  # columns
    LEAST_WIDTH = 60  # columns
    EVERY_S = 1.0

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.width = width_of(self.stream)
        self.on = self.stream.isatty() and os.environ.get("TERM") != "dumb" and self.width >= self.LEAST_WIDTH
        self.said = ""
        self.due_s = 0.0

    def __call__(self, text: str) -> None:
        """Show *text*, cut to fit."""
        if not self.on or text == self.said or time.monotonic() < self.due_s:
            return
        self.due_s = time.monotonic() + self.EVERY_S
        self.said = text
        self._write(f"unstall: {text}"[: self.LONGEST].rjust(self.LONGEST))

    def clear(self) -> None:
        """Take the note off the line that the cursor is in."""
        if self.said:
            self._write(" " * self.LONGEST)
            self.said = ""

    def _write(self, note: str) -> None:
        from unstall.views._glyphs import fit

        column = self.width - len(note)  # one short of the edge: in the last column a terminal may wrap
        self.stream.write(fit(f"\x1b7\x1b[{column}G\x1b[2m{note}\x1b[22m\x1b8", self.stream.encoding))
        self.stream.flush()
