"""`unstall causes`."""

from __future__ import annotations

import itertools
import sys

import click


@click.command()
def command() -> int:
    """List the causes that unstall knows, by layer."""
    from unstall.causes import load
    from unstall.cli._screen import width_of, write

    known = load()
    if not known:
        click.echo("No cause is installed.", err=True)
        return 0
    longest = max(len(cause.id) for cause in known)
    room = max(width_of(sys.stdout), 60) - longest - 4
    lines: list[str] = []
    for layer, causes in itertools.groupby(known, key=lambda cause: cause.id.partition("/")[0]):
        lines += [layer] if not lines else ["", layer]
        for cause in causes:
            first = next(iter(cause.page.splitlines()), "")
            said = first if len(first) <= room else first[: room - 1] + "…"
            lines.append(f"  {cause.id:<{longest}}  {said}".rstrip())
    write("\n".join(lines) + "\n\nThe page of one:  unstall explain CAUSE\n", sys.stdout)
    return 0
