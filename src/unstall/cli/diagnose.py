"""`unstall diagnose`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from unstall.cli._options import JSON, VERBOSE, job, job_options


@click.command()
@JSON
@VERBOSE
@job_options
@click.argument("recording", type=click.Path(path_type=Path), metavar="DIR")
def command(
    recording: Path,
    json_file: Path | None,
    verbose: bool,
    job_steps: int | None,
    job_hours: float | None,
    price_per_hour: float | None,
) -> int:
    """Explain a recording again, without running anything.

    DIR is the folder that a run was recorded to; the report of the run names it at its end.
    """
    the_job = job(job_steps, job_hours, price_per_hour)
    from unstall.cli._screen import check_writable, save, show
    from unstall.pipeline import diagnose

    check_writable(json_file)
    report = diagnose(recording, the_job)
    show(report, sys.stdout, verbose=verbose)
    if json_file is not None:
        save(report, json_file)
    return 0
