"""`unstall run`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from unstall.cli._command import behind, refuse_options
from unstall.cli._options import COUNT, JSON, POSITIVE, VERBOSE, job, job_options

USAGE = 2  # exit code of a script that was given what it does not know, by argparse and click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a training, and tell which line makes it slow.",
)
@click.option("--steps", type=COUNT, metavar="N", help="Stop the training after N steady steps, and report.")
@click.option(
    "--warmup", type=click.IntRange(min=0), metavar="N", help="Leave the first N steps out of the statistics."
)
@click.option("--seconds", type=POSITIVE, metavar="S", help="Stop the training after S seconds, and report.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Where to put the recording."
)
@JSON
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@VERBOSE
@job_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
def command(
    command: tuple[str, ...],
    steps: int | None,
    warmup: int | None,
    seconds: float | None,
    out: Path | None,
    json_file: Path | None,
    quiet: bool,
    verbose: bool,
    job_steps: int | None,
    job_hours: float | None,
    price_per_hour: float | None,
) -> int:
    """Run a training and tell where its time went, and which line is to blame.

    COMMAND is whatever trains, unmodified: train.py, python -m pkg.train, -m pkg.train, torchrun ..., or a shell
    script. All that stands after its first word belongs to it.

    The report goes to stderr: stdout is the training's own, and so is the exit code. A training that unstall stopped
    (--steps, --seconds) ends with 0.
    """
    refuse_options(command)
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose contradict one another.")
    the_job = job(job_steps, job_hours, price_per_hour)
    from unstall.cli._screen import MarginNote, check_writable, save, show
    from unstall.pipeline import RunOptions, run

    check_writable(json_file)
    note = None if quiet else MarginNote()
    options = RunOptions(
        command=command, steps=steps, warmup=warmup, seconds=seconds, out=out, job=the_job, status=note
    )
    try:
        report = run(list(command), options)
    finally:
        if note is not None:
            note.clear()
    if not quiet:
        if sys.stderr.isatty():
            sys.stderr.write("\n")  # the training may have left the cursor in the middle of a line
        show(report, sys.stderr, verbose=verbose)
        if report.exit_code == USAGE and (said := behind(command)):
            click.echo(f"\nunstall: {said}", err=True)
    if json_file is not None:
        save(report, json_file)
    return report.exit_code
