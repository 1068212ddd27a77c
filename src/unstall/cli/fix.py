"""`unstall fix`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unstall.cli._command import refuse_options
from unstall.cli._options import COUNT, JSON, job, job_options

if TYPE_CHECKING:
    from unstall.model.trial import Fixed
    from unstall.pipeline._asked import FixOptions

INTERRUPTED = 130  # the shell's own code for a command that Ctrl-C ended
FOLDER = click.Path(path_type=Path, file_okay=False)
CHANGES_TRAINING = "changes-training"
_TIME = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m(?:in)?)?(?:(?P<s>\d+(?:\.\d+)?)s)?")


def seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Return a time as ``90s``, ``15m``, ``1h`` or ``1h30m`` in seconds."""
    found = _TIME.fullmatch(value.replace(" ", "").lower())
    hours, minutes, rest = (float(part or 0) for part in (found.groups() if found else (0, 0, 0)))
    total = 3600 * hours + 60 * minutes + rest
    if not total:
        raise click.BadParameter(f"{value!r} is no time. Write it as 90s, 15m, 1h or 1h30m.", ctx, param)
    return total


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Try what would make a training faster, keep what is proved.",
    epilog="""\b
Examples:
  unstall fix train.py --epochs 3
  unstall fix --budget 1h --job-hours 60 --price-per-hour 2.5 train.py
  unstall fix --outputs runs --share data torchrun --nproc-per-node 2 train.py
  unstall fix --only data/starved-loader --apply -m pkg.train
\b
Exit codes:
  0    tried all there was to try, or as much as the budget allows
  N    that of the training, where it failed before anything was tried
  130  ended by Ctrl-C; what had been proved is printed, and its patch written
  2    a wrong option, or an error that is said""",
)
@click.option("--steps", type=COUNT, metavar="N", help="Steady steps of a trial; chosen from the budget if not given.")
@click.option(
    "--budget",
    "budget_s",
    callback=seconds,
    default="15m",
    show_default=True,
    metavar="TIME",
    help="Time for everything: 90s, 15m, 1h.",
)
@click.option(
    "--patch",
    type=click.Path(path_type=Path),
    default=Path("unstall.patch"),
    show_default=True,
    metavar="FILE",
    help="Write the patch to FILE; an older patch of unstall is overwritten, nothing else is.",
)
@click.option("--apply", "apply", is_flag=True, help="Change the sources too; each is kept beside it as NAME.orig.")
@JSON
@click.option(
    "--allow",
    type=click.Choice([CHANGES_TRAINING]),
    help="Try also what changes the training: precision, batch size, order.",
)
@click.option("--only", multiple=True, metavar="CAUSE", help="Try remedies of this cause only. May be given again.")
@click.option("--skip", multiple=True, metavar="CAUSE", help="Try no remedy of this cause. May be given again.")
@click.option(
    "--workdir",
    type=click.Choice(["copy", "same"]),
    default="copy",
    show_default=True,
    help="Run each trial in a copy of the working folder, or in the folder itself.",
)
@click.option("--share", multiple=True, type=FOLDER, metavar="DIR", help="Link DIR into the copies: data that is read.")
@click.option(
    "--outputs", multiple=True, type=FOLDER, metavar="DIR", help="The training writes to DIR: fresh in each copy."
)
@click.option(
    "--bounds",
    is_flag=True,
    help="Measure first what any fix of a layer can give at most; takes up to a quarter of the budget.",
)
@click.option("--pairs", "most_pairs", type=COUNT, metavar="N", help="Make at most N pairs of trials of a remedy.")
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Seeds trials of an unseeded script.")
@click.option("--out", type=FOLDER, metavar="DIR", help="Where to keep the state and the recordings of the trials.")
@click.option("--resume", type=FOLDER, metavar="DIR", help="Go on with the fix whose state lies in DIR.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, help="Say also what was left out, and how values did that lost.")
@job_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND...")
def command(
    command: tuple[str, ...],
    steps: int | None,
    budget_s: float,
    patch: Path,
    apply: bool,
    json_file: Path | None,
    allow: str | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    workdir: str,
    share: tuple[Path, ...],
    outputs: tuple[Path, ...],
    bounds: bool,
    most_pairs: int | None,
    seed: int,
    out: Path | None,
    resume: Path | None,
    quiet: bool,
    verbose: bool,
    job_steps: int | None,
    job_hours: float | None,
    price_per_hour: float | None,
) -> int:
    """Try what would make a training faster, keep what is proved, and write it as a patch.

    COMMAND is whatever trains, unmodified, as for `unstall run`. It is recorded and explained once. Each remedy that
    may pay is then tried in pairs of short trainings, without and with it. It is kept only where it is faster and the
    training stays the same. Nothing of yours is changed, unless --apply says so.

    The page goes to stdout, progress to stderr. What the training prints in the trials is not shown. Ctrl-C ends it
    early and keeps what is proved so far.
    """
    refuse_options(command)
    if not command and resume is None:
        raise click.MissingParameter(ctx=click.get_current_context(), param_hint="'COMMAND...'", param_type="argument")
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose contradict one another.")
    if out is not None and resume is not None:
        raise click.UsageError("--resume goes on in its own folder: leave --out out.")
    the_job = job(job_steps, job_hours, price_per_hour)
    from unstall.cli._progress import ProgressLine
    from unstall.cli._screen import check_writable
    from unstall.model.remedy import Safety
    from unstall.pipeline._asked import KEEPS_TRAINING, FixOptions, check

    for folder in share:
        if not folder.is_dir():
            raise click.UsageError(f"--share {folder}: there is no such folder.")
    wanted, unwanted = _ids(only, skip)
    allowed = KEEPS_TRAINING | {Safety.CHANGES_TRAINING} if allow == CHANGES_TRAINING else KEEPS_TRAINING
    line = None if quiet else ProgressLine()
    options = FixOptions(
        command, steps, budget_s, patch, allowed, wanted, unwanted, the_job, workdir, share, outputs, out, resume, seed,
        most_pairs, apply, line, bounds,
    )  # fmt: skip
    check_writable(json_file)
    check(options)
    try:
        fixed = _fixed(options)
    finally:
        if line is not None:
            line.clear()
    return _told(fixed, json_file, quiet, verbose)


def _fixed(options: FixOptions) -> Fixed:
    from unstall.pipeline.fix import fix

    return fix(options)


def _ids(only: tuple[str, ...], skip: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids of the causes that were named, each as `unstall explain` takes it.

    Raises:
        UnstallError: When one is not known. click.UsageError: When one is both wanted and not.
    """
    if not only and not skip:
        return (), ()
    from unstall.causes import load
    from unstall.cli.explain import named

    known = load()
    wanted, unwanted = ([named(name, known).id for name in names] for names in (only, skip))
    if both := sorted({*wanted} & {*unwanted}):
        raise click.UsageError(f"--only and --skip both name {', '.join(both)}.")
    return tuple(wanted), tuple(unwanted)


def _told(fixed: Fixed, json_file: Path | None, quiet: bool, verbose: bool) -> int:
    """Print the page, write the JSON, and return the exit code."""
    from unstall.cli._screen import has_colour, save_text, width_of, write
    from unstall.pipeline._asked import BY_USER
    from unstall.views import fixed as page

    if not quiet:
        write(
            page.render(fixed, width=width_of(sys.stdout), colour=has_colour(sys.stdout), verbose=verbose), sys.stdout
        )
    if json_file is not None:
        save_text(_json(fixed), json_file)
    if fixed.interrupted.startswith(BY_USER):
        return INTERRUPTED
    return fixed.first.exit_code if page.failed(fixed) else 0


def _json(fixed: Fixed) -> str:
    import json

    from unstall.model.codec_fixed import fixed_to_json

    return json.dumps(fixed_to_json(fixed), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
