"""How far a fix is: a line at the bottom of a terminal, rewritten in place, and a line that stays for each verdict."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from unstall.cli._screen import width_of

if TYPE_CHECKING:
    from unstall.pipeline._asked import Progress

_ERASE = "\r\x1b[2K"  # back to the first column, and the line emptied


class ProgressLine:
    """Called with each `Progress`.

    On a terminal the last line says what is being done, and is written anew each time.  Elsewhere nothing is
    rewritten: only verdicts, and what takes long without one, get a line.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.rewrites = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.shown = False
        self.said = ""

    def __call__(self, progress: Progress) -> None:
        if progress.verdict is not None:
            self.clear()
            self._write(f"unstall: {decided(progress)}\n")
        elif progress.stays:
            self.clear()
            self._write(f"unstall: {progress.what}\n")
        elif self.rewrites:
            room = width_of(self.stream) - 1  # in the last column a terminal may wrap
            self._write(f"{_ERASE}{line(progress, room)}")
            self.shown = True
        elif not progress.most and progress.what != self.said:
            self._write(f"unstall: {progress.what}\n")
        self.said = progress.what

    def clear(self) -> None:
        """Take the line off the terminal."""
        if self.shown:
            self._write(_ERASE)
            self.shown = False

    def _write(self, text: str) -> None:
        from unstall.cli._screen import write

        write(text, self.stream)


def line(progress: Progress, room: int) -> str:
    """Return where the work stands in at most *room* columns; what does not fit is cut at the end."""
    text = f"unstall: {' · '.join(_parts(progress))}"
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


def _parts(progress: Progress) -> Iterator[str]:
    from unstall.views import _proofs, _words

    yield _words.finish(f"{left(progress)} left")
    if progress.most:
        yield f"{progress.unit} {min(progress.pair + 1, progress.most)} of {progress.most}"
    yield progress.what
    if progress.ratio is not None:
        yield f"so far {_proofs.times(progress.ratio.value)} ({_proofs.interval(progress.ratio)})"


def decided(progress: Progress) -> str:
    """Return the verdict in a line."""
    from unstall.views import _proofs, _words

    assert progress.verdict is not None
    ratio = progress.ratio
    said = "" if ratio is None else f", {_proofs.times(ratio.value)} ({_proofs.proved(ratio)})"
    return _words.finish(f"{progress.what}: {progress.verdict.value}{said}, {left(progress)} left")


def left(progress: Progress) -> str:
    """Return what is left of the budget, in minutes, or in seconds towards its end."""
    from unstall.views.fixed import span

    return span(round(max(progress.budget_s - progress.spent_s, 0.0)) * 1_000_000_000)
