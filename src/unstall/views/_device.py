"""The account of the device: what it did in the step, why it idled, and what the step's length is the sum of."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from unstall.model.report import DeviceSummary, Share
from unstall.views import _words as words

LEAST_PART = 0.005  # of the step; a smaller part is shown with --verbose only
PATH_SHOWN = 5  # parts of the critical path


def rows(summary: DeviceSummary) -> tuple[Share, ...]:
    """Return the device's lines of the chart: when it was busy and with what, when it idled and why."""
    idle = next((state for state in summary.states if state.name == "idle"), None)
    busy = tuple(state for state in summary.states if state is not idle)
    found = [Share("device busy", sum(part.ns for part in busy), sum(part.share for part in busy), busy)]
    if idle is not None:
        found.append(Share("device idle", idle.ns, idle.share, idle.parts))
    return tuple(found)


def below(summary: DeviceSummary, verbose: bool) -> Iterator[Text]:
    """Yield what stands below the chart: the critical path; with *verbose* also the device by phase, and launches."""
    if summary.critical:
        yield _path(summary, verbose)
    if not verbose:
        return
    for phase in summary.by_phase:
        said = " · ".join(f"{part.name} {words.share(part.share)}" for part in phase.parts)
        yield Text.assemble((f"device in {words.name(phase.name)}: ", "dim"), said)
    if summary.launches_per_step:
        each = f", {words.duration(summary.launch_ns)} of the host each" if summary.launch_ns else ""
        launches = f"{summary.launches_per_step:,.0f} pieces of work a step{each}"
        yield Text.assemble(("launched: ", "dim"), launches)


def _path(summary: DeviceSummary, verbose: bool) -> Text:
    shown = [part for part in summary.critical[:PATH_SHOWN] if part.share >= LEAST_PART]
    if verbose or not shown:
        shown = list(summary.critical)
    text = Text.assemble(("the step is bound by: ", "bold"))
    text.append(", ".join(f"{part.name} {words.share(part.share)}" for part in shown))
    return text.append(" of its critical path", "dim")
