"""`unstall compare`."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command(short_help="Tell what differs between two runs.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the comparison to FILE as JSON too.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show all graphs that differ, and the names of kernels whole.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
def command(a: str, b: str, json_file: Path | None, verbose: bool) -> int:
    """Tell what differs between two runs: step time, where it went, faults, and what the compiler fused.

    A and B are folders that runs were recorded to, reports that --json wrote, or traces of the profiler. The runs were
    not made in turns, so a difference is no proof: `unstall fix` proves one.
    """
    import json

    from unstall.cli._screen import check_writable, has_colour, save_text, width_of, write
    from unstall.model.codec_compared import comparison_to_json
    from unstall.pipeline.compare import compare
    from unstall.views import compared as view

    check_writable(json_file)
    found = compare(a, b)
    write(view.render(found, width=width_of(sys.stdout), colour=has_colour(sys.stdout), verbose=verbose), sys.stdout)
    if json_file is not None:
        save_text(json.dumps(comparison_to_json(found), indent=2, ensure_ascii=False) + "\n", json_file)
    return 0
