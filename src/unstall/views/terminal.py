"""The page in the terminal: where the time went, which line is to blame, and what was not seen.

The order is that of the questions a reader has: what ran; how long a step takes and what bounds it;
where in the step; whose fault, and what to do; what may be; how far all this can be trusted.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from unstall.views import _words as words

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from unstall.model.finding import Abstained, Finding
    from unstall.model.remedy import Remedy
    from unstall.model.report import Report, Share, Traced

NAME = "terminal"
LEAST_WIDTH, MOST_WIDTH = 60, 160  # columns
MEASURE = 116  # columns of running text; longer lines tire the eye
NO_DEVICE = ("none", "no GPU")  # how the reason begins for which a device was not observed, where there is none
MEAN_APART = 0.1  # of the median step; a mean further from it is said, as the parts of the step add up to the mean
INFORMATION_SHOWN = 3  # findings that are no fault; --verbose shows all


def render(report: Report, *, width: int = 100, colour: bool = False, verbose: bool = False) -> str:
    """Return the page, *width* columns wide (60 to 160), ending in a newline."""
    width = max(LEAST_WIDTH, min(width, MOST_WIDTH))
    return drawn(_page(report, min(width, MEASURE), verbose), width, colour)


def drawn(parts: Iterable[RenderableType], width: int, colour: bool) -> str:
    """Return *parts* below one another as text, *width* columns wide at most, ending in a newline."""
    import io

    from rich.console import Console, Group
    from rich.constrain import Constrain

    page = io.StringIO()
    console = Console(
        file=page,
        width=width,
        force_terminal=colour,
        no_color=not colour,
        color_system="standard" if colour else None,  # the reader's own sixteen colours
        legacy_windows=False,
        force_jupyter=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )
    console.print(Constrain(Group(*parts), min(width, MEASURE)), crop=False)  # a command to copy may be longer
    return words.finish("\n".join(line.rstrip() for line in page.getvalue().splitlines()) + "\n")


def _page(report: Report, width: int, verbose: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    gap = Text("")
    yield from _header(report, width)
    yield gap
    yield from _step(report, width, verbose)
    yield from _findings(report, width, verbose)
    yield gap
    yield from _footer(report, verbose)


def indented(part: RenderableType, by: int = 2) -> RenderableType:
    from rich.padding import Padding

    return Padding(part, (0, 0, 0, by))


def title(text: str) -> Text:
    from rich.text import Text

    return Text(text, "bold underline")


# ------------------------------------------------------------------ what ran


def _header(report: Report, width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    counted = f"{words.count(report.steps, 'step')} in {words.duration(report.wall_ns)}"
    steady = f"{counted}, {report.steady_steps} of them steady"
    tail = f"{machine_of(report)} · {steady if report.steps else f'no step in {words.duration(report.wall_ns)}'}"
    command = command_of(report)
    apart = "\n" if len(f"unstall · {command} · {tail}") > width else " · "
    yield Text.assemble(("unstall", "bold"), " · ", (cut(command, 2 * width), "bold"), f"{apart}{tail}")
    if report.stopped_by_us:
        yield Text(f"Stopped by unstall: {report.stop_reason or 'it had measured enough'}.", "dim")
    elif report.exit_code:
        ended = f"The training ended with {ending(report.exit_code)}; this is the account up to there."
        yield Text(ended, "bold yellow")
    if report.traced is not None:
        yield Text(_coverage(report.traced, report), "dim")
    for warning in report.warnings:
        yield Text.assemble(("! ", "bold yellow"), (warning, "yellow"))


def ending(code: int) -> str:
    """Return an exit code in words; 128 + N, or -N, is what signal N leaves."""
    number = -code if code < 0 else code - 128
    try:
        return f"exit code {code} ({signal.Signals(number).name})"
    except ValueError:
        return f"exit code {code}"


def command_of(report: Report) -> str:
    """Return the command as it would be typed, or the traces that the report is of."""
    if report.traced is not None:
        return traces_of(report.traced)
    return shlex.join(report.command) or "(command not recorded)"


def traces_of(traced: Traced) -> str:
    """Return the name of the trace, or how many there are and where they lie."""
    paths = [file.path for file in traced.files]
    if len(paths) == 1:
        return f"trace {os.path.basename(paths[0])}"
    return f"{len(paths)} traces of {short_home(os.path.commonpath(paths)) or 'several folders'}"


def _coverage(traced: Traced, report: Report) -> str:
    """Return what of the run the traces cover."""
    what = "This trace covers" if len(traced.files) == 1 else "These traces cover"
    steps = words.count(report.steps, "step") if report.steps else "no step"
    told = f", {traced.told_by}" if traced.told_by else ""
    return f"{what} a part of a run: {steps}{told}. The profiler's own cost is part of all times."


def cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def machine_of(report: Report) -> str:
    """Return processes, cores and device in words; what is not known is left out.

    That there is no GPU is said only where the sensor of the device gave that as its reason.
    """
    from unstall.model.run import Sensor

    ranks = max(len(report.rank_wall_ns), 1)
    parts = [words.count(ranks, "process", "processes")]
    if report.traced is not None and report.traced.missing_ranks:
        parts = [f"{ranks} of {ranks + len(report.traced.missing_ranks)} ranks"]
    cores = report.facts.number("machine.usable_cores")
    if cores is not None:
        parts.append(f"{cores:g} {'core' if cores == 1 else 'cores'}")
    device = report.facts.text("device.name") or report.facts.text("gpu.name")
    if device is not None:
        parts.append(device)
    elif report.missing.get(Sensor.DEVICE, "").startswith(NO_DEVICE):
        parts.append("no GPU")
    return ", ".join(parts)


# ------------------------------------------------------------------ the step


def _step(report: Report, width: int, verbose: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    from unstall.views import _chart, _device

    step = report.step_ns
    if step is None:
        yield indented(Text(report.bound_by or "No steady step was seen.", "bold"))
        if report.outside:
            yield Text("")
            yield indented(Text("where the time of the run went", "dim"))
            yield indented(_chart.chart(report.outside, width - 2, verbose))
        return
    low, high = words.duration(step.p10), words.duration(step.p90)
    verdict, stop, rest = report.bound_by.partition(". ")
    median = (words.duration(step.median), "bold")
    spread = f"p10 {low}, p90 {high}{_mean(step.median, report.step_parts)}"
    yield indented(Text.assemble("step ", median, f" ({spread}): ", (verdict + stop, "bold"), rest))
    yield Text("")
    device = report.device
    yield indented(_chart.chart(report.step_parts, width - 2, verbose, _device.rows(device) if device else ()))
    if device is not None:
        yield Text("")
        yield from map(indented, _device.below(device, verbose))
    outside = _chart.outside(report.outside, verbose)
    if outside is not None:
        yield indented(outside)
    if len(report.ranks) > 1:
        yield Text("")
        yield indented(_chart.ranks(report.ranks, verbose))


def _mean(median_ns: int, parts: Sequence[Share]) -> str:
    """Return the mean step, to which the *parts* below add up, where the median is another number."""
    mean_ns = sum(part.ns for part in parts)
    return f", mean {words.duration(mean_ns)}" if abs(mean_ns - median_ns) > MEAN_APART * median_ns else ""


# ------------------------------------------------------------------ the findings


def _findings(report: Report, width: int, verbose: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    from unstall.model.finding import Scope
    from unstall.views import _findings as say

    faults = list(_faults(report))
    steady = [pair for pair in faults if pair[0].scope is not Scope.STARTUP]
    startup = [pair for pair in faults if pair[0].scope is Scope.STARTUP]
    if not steady:
        yield Text("")
        yield from _clean_bill(report, "No fault found in the steps" if startup else "No fault found")
    for number, (finding, remedies) in enumerate(steady + startup, start=1):
        yield Text("")
        if number == len(steady) + 1:
            yield title("Start-up, once a run")
        yield say.fault(number, finding, remedies, report, verbose, width)
    known = [finding for finding in report.findings if not finding.fault]
    if known:
        yield Text("")
        yield title("What bounds it, no fault")
        for finding in known if verbose else known[:INFORMATION_SHOWN]:
            yield say.information(finding, report, verbose, width)
        if len(known) > INFORMATION_SHOWN and not verbose:
            yield indented(Text(f"{len(known) - INFORMATION_SHOWN} more: -v shows them", "dim"), 4)
    if report.candidates:
        yield Text("")
        yield title("May cost time, unproved")
        for one in report.candidates:
            yield indented(say.candidate(one))


def _faults(report: Report) -> Iterator[tuple[Finding, tuple[Remedy, ...]]]:
    for index, finding in enumerate(report.findings):
        if finding.fault:
            yield finding, report.remedies[index] if index < len(report.remedies) else ()


def _clean_bill(report: Report, verdict: str) -> Iterator[RenderableType]:
    """Say that nothing was found, and what that rests on."""
    from rich.text import Text

    if not report.observed:
        yield Text("No sensor was on, so nothing can be said about faults.", "bold yellow")
        return
    text = Text.assemble((f"{verdict} by these sensors: ", "bold green"))
    text.append(", ".join(sensor.value for sensor in report.observed))
    text.append(".")
    if report.missing or report.abstained:
        unseen = "What was not observed, and which causes could not look, stands below: nothing is claimed of them."
        text.append(f" {unseen}", "dim")
    yield text


# ------------------------------------------------------------------ how far to trust it, and what next


def _footer(report: Report, verbose: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    if report.missing:
        alike: dict[str, list[str]] = {}
        for sensor, why in report.missing.items():
            alike.setdefault(why, []).append(sensor.value)
        said = " · ".join(", ".join(names) + (f" ({why})" if why else "") for why, names in alike.items())
        yield Text(f"not observed: {said}", "dim")
    yield Text(" · ".join(_trust(report, verbose)), "dim")
    if verbose:
        for one in report.abstained:
            yield indented(Text(f"{one.cause} abstained: {one.because}", "dim"))
        yield indented(Text(f"observed: {', '.join(sensor.value for sensor in report.observed) or 'nothing'}", "dim"))
    yield from _job(report)
    if report.recording:
        yield Text.assemble(("recording: ", "dim"), short_home(report.recording))
    if report.traced is None and report.command and any(one.edits for _, tried in _faults(report) for one in tried):
        prove = f"unstall fix {command_of(report)}"
        yield Text.assemble(("prove it, and get the patch: ", "dim"), prove)
    first = next((finding.cause for finding, _ in _faults(report)), None)
    if first:
        yield Text.assemble(("what a cause is and how it is told: ", "dim"), f"unstall explain {first}")


def _trust(report: Report, verbose: bool) -> Iterator[str]:
    how = f" ({report.overhead_how})" if verbose and report.overhead_how else ""
    edges = f" (process start and end apart, {words.duration(report.edges_ns)})" if report.edges_ns else ""
    yield f"unknown {words.share(report.unknown_share)}{edges}"
    if abstained := report.abstained if verbose else _could_have_looked(report):
        yield f"abstained: {words.count(len(abstained), 'cause')}" + ("" if verbose else " (-v says why)")
    if report.overhead_share is not None:
        yield f"{'recorder' if report.traced is None else 'profiler'} {words.share(report.overhead_share)} of the step{how}"
    else:
        yield f"cost of the profiler: not known{how}"
    if report.machine_load:
        yield f"machine: {report.machine_load}"
    savings = [finding.saving for finding, tried in _faults(report) if tried and finding.saving is not None]
    if coverage := [saving.calibrated.coverage for saving in savings if saving.calibrated is not None]:
        yield f"predictions: {words.share(min(coverage))} of planted trainings lie within"


def _could_have_looked(report: Report) -> tuple[Abstained, ...]:
    """Return who abstained for another reason than that the machine has no device: that is said of the sensor already."""
    from unstall.model.run import Sensor

    none = tuple(f"{Sensor.DEVICE.value}: {reason}" for reason in NO_DEVICE)
    return tuple(one for one in report.abstained if not one.because.startswith(none))


def _job(report: Report) -> Iterator[RenderableType]:
    from rich.text import Text

    plan = report.projection
    if plan is None:
        if any(finding.saving for finding, _ in _faults(report)):
            again = f"unstall diagnose {short_home(report.recording)} " if report.recording else ""
            hint = f"{again}--job-hours H --price-per-hour P"
            yield Text.assemble(("over the whole job, in hours and money: ", "dim"), hint)
        return
    text = Text.assemble((f"a job of {plan.now_hours:.1f} h", "bold"))
    if not plan.saved_high_hours:
        yield text.append(": no saving is predicted")
        return
    low, high = (f"{hours:.1f}" for hours in (plan.saved_low_hours, plan.saved_high_hours))
    hours = high if low == high else f"{low}-{high}" if plan.saved_low_hours else f"up to {high}"
    text.append(f": predicted saving {hours}{words.GLUE}h", "bold")
    if plan.saved_low_money is not None and plan.saved_high_money is not None:
        text.append(f", {words.money(plan.saved_low_money, plan.saved_high_money)}", "bold")
        if report.job.price_per_hour is not None:
            text.append(f" at {report.job.price_per_hour:.2f} an hour")
    yield text.append(" (a prediction, no proof)", "dim")


def short_home(path: str) -> str:
    """Return *path* with the user's own folder as ``~``, which a shell reads back."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if home != "/" and path.startswith(home + os.sep) else path
