"""`unstall diagnose`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unstall.cli._options import JSON, POSITIVE, VERBOSE, job, job_options

if TYPE_CHECKING:
    from unstall.model.report import Report

TABLES = ("kernels", "operators", "collectives", "idle", "copies", "syncs")
FILE = click.Path(path_type=Path)


@click.command(short_help="Explain a recording again, or traces of the profiler.")
@JSON
@click.option("--table", type=click.Choice(TABLES), help="Print this table of a trace in place of the report.")
@click.option("--to", "table_file", type=FILE, metavar="FILE", help="Write all of --table to FILE: .csv or .parquet.")
@click.option(
    "--perfetto",
    "perfetto_file",
    type=FILE,
    metavar="FILE",
    help="Write the trace with steps, ledger and findings beside it, for ui.perfetto.dev: .json or .json.gz.",
)
@click.option("--step-ms", type=POSITIVE, metavar="MS", help="How long a step takes without the profiler.")
@VERBOSE
@job_options
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
def command(
    paths: tuple[str, ...],
    json_file: Path | None,
    table: str | None,
    table_file: Path | None,
    perfetto_file: Path | None,
    step_ms: float | None,
    verbose: bool,
    job_steps: int | None,
    job_hours: float | None,
    price_per_hour: float | None,
) -> int:
    """Explain a recording again, or profiler traces of any GPU, without running anything.

    PATH is the folder that a run was recorded to (the report of the run names it at its end), or traces that
    torch.profiler wrote: .json or .json.gz files, a folder of them, a glob pattern in quotes. Several traces are taken
    for the ranks of one job. Traces are read without torch.
    """  # fmt: skip
    the_job = job(job_steps, job_hours, price_per_hour)
    if table_file is not None and table is None:
        raise click.UsageError("--to says where a table goes: add --table NAME.")
    from unstall.cli._screen import check_writable, save, show
    from unstall.pipeline import Wanted, diagnose_paths, save_perfetto

    check_writable(json_file)
    _check(table_file, perfetto_file, paths)
    wanted = Wanted(() if table is None else (table,), perfetto_file is not None)
    unprofiled_ns = None if step_ms is None else max(1, round(step_ms * 1e6))
    report = diagnose_paths(paths, the_job, wanted, unprofiled_ns)
    if table is None:
        show(report, sys.stdout, verbose=verbose)
    else:
        _tell(report, table_file, verbose)
    if json_file is not None:
        save(report, json_file)
    if perfetto_file is not None:
        save_perfetto(report, perfetto_file)
        click.echo(f"{perfetto_file}: open it in https://ui.perfetto.dev", err=True)
    return 0


def _check(table_file: Path | None, perfetto_file: Path | None, paths: tuple[str, ...]) -> None:
    """Say before the work what would be found out only after it.

    Raises:
        UnstallError: When a file could not be written.
    """
    from unstall.cli._screen import check_writable
    from unstall.model.errors import UnstallError
    from unstall.views import tables

    check_writable(table_file, "--to")
    check_writable(perfetto_file, "--perfetto")
    if table_file is not None:
        tables.check(table_file)
    given = {Path(path).resolve() for path in paths}
    if perfetto_file is not None and perfetto_file.resolve() in given:
        raise UnstallError(f"{perfetto_file}: is what is read; --perfetto takes the name of another file.")
    if perfetto_file is not None and perfetto_file.resolve().parent in given:
        raise UnstallError(
            f"{perfetto_file}: lies in the folder that is read, where it would be taken for one more trace the next time.\n"
            "Write it to another folder."
        )


def _tell(report: Report, table_file: Path | None, verbose: bool) -> None:
    """Print the table, or write it to its file and say so."""
    from unstall.cli._screen import has_colour, width_of, write
    from unstall.views import tables

    if table_file is None:
        page = tables.render(report, width=width_of(sys.stdout), colour=has_colour(sys.stdout), verbose=verbose)
        write(page, sys.stdout)
        return
    for table in report.tables:
        tables.save(table, table_file)
        click.echo(f"{table.name}: {table.count} rows in {table_file}")
    for warning in report.warnings:
        click.echo(f"unstall: {warning}", err=True)
