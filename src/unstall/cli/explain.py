"""`unstall explain`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from unstall.causes import Cause

MEASURE = 100  # columns of running text


@click.command(short_help="Print the page of a cause: what it is, how it is told.")
@click.argument("cause")
def command(cause: str) -> int:
    """Print the page of a cause: what it is, why it costs time, and how it is told.

    CAUSE is its id, as data/starved-loader, or the end of it: starved-loader. `unstall causes` lists them.
    """
    from unstall.causes import load
    from unstall.cli._screen import has_colour, width_of, write

    found = named(cause, load())
    page = f"# {found.id}\n\n{found.page}\n"
    if sys.stdout.isatty():
        page = drawn(page, min(width_of(sys.stdout), MEASURE), has_colour(sys.stdout))
    write(page, sys.stdout)
    return 0


def named(name: str, causes: Sequence[Cause]) -> Cause:
    """Return the cause whose id is, or alone ends in, *name*.

    Raises:
        UnstallError: When there is none, with those that are nearly called so, or when there are several.
    """
    import difflib

    from unstall.model.errors import UnstallError

    wanted = name.strip("/").replace("_", "-").lower()
    by_id = {cause.id: cause for cause in causes}
    if wanted in by_id:
        return by_id[wanted]
    ends = [known for known in by_id if known.endswith(f"/{wanted}")]
    if len(ends) == 1:
        return by_id[ends[0]]
    if ends:
        raise UnstallError(f"{name}: several causes are called so: {', '.join(ends)}.")
    names = {spelling: known for known in by_id for spelling in (known, known.partition("/")[2])}
    near = dict.fromkeys(names[spelling] for spelling in difflib.get_close_matches(wanted, names, n=3, cutoff=0.5))
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    raise UnstallError(f"{name}: there is no cause of this name.{meant}\nThe list of all:  unstall causes")


def drawn(markdown: str, width: int, colour: bool) -> str:
    """Return *markdown* laid out for a terminal."""
    import io

    from rich.console import Console
    from rich.markdown import Markdown

    page = io.StringIO()
    Console(
        file=page, width=width, force_terminal=colour, no_color=not colour, color_system="standard" if colour else None
    ).print(Markdown(markdown))
    return page.getvalue()
