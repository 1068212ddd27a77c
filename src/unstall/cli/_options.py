"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from unstall.model.report import Job

F = TypeVar("F", bound=Callable[..., object])

POSITIVE = click.FloatRange(min=0, min_open=True)
COUNT = click.IntRange(min=1)

JSON = click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the report to FILE as JSON too."
)
VERBOSE = click.option(
    "-v", "--verbose", is_flag=True, help="Say also why causes abstained, what evidence rests on, and the small shares."
)


def job_options(verb: F) -> F:
    """Give *verb* the options of the projection: job_steps, job_hours and price_per_hour."""
    steps = click.option(
        "--job-steps", type=COUNT, metavar="N", help="The whole job is N steps: rank and project by it."
    )
    hours = click.option(
        "--job-hours", type=POSITIVE, metavar="H", help="The whole job takes H hours at today's speed."
    )
    price = click.option("--price-per-hour", type=POSITIVE, metavar="P", help="What an hour of the job costs.")
    return steps(hours(price(verb)))


def job(steps: int | None, hours: float | None, price_per_hour: float | None) -> Job:
    """Return the job as the user stated it.

    Raises:
        click.UsageError: When its length is given twice, or a price without a length.
    """
    from unstall.model.report import Job

    if steps is not None and hours is not None:
        raise click.UsageError("--job-steps and --job-hours both state the length of the job: give one of them.")
    if price_per_hour is not None and steps is None and hours is None:
        raise click.UsageError("--price-per-hour needs the length of the job: add --job-steps N or --job-hours H.")
    return Job(steps, hours, price_per_hour)
