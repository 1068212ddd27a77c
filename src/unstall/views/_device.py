"""The account of the device: what it did in the step, why it idled, and what the step's length is the sum of."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from unstall.model.report import DeviceSummary, Share
from unstall.views import _words as words

LEAST_PART = 0.005  # of the step; a smaller part is shown with --verbose only
PATH_SHOWN = 5  # parts of the critical path
_EIGHTHS = " ▏▎▍▌▋▊▉"
_STYLES = {"compute": "blue", "collectives": "magenta", "copies": "cyan", "idle": "yellow"}


def device(summary: DeviceSummary, width: int, verbose: bool) -> RenderableType:
    """Return the device's line below the chart of the host: a bar of the whole step, idle time last."""
    bars = max(8, min(40, width * 3 // 10))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, min_width=9)
    grid.add_column()
    grid.add_row(Text("device"), _whole(summary, bars))
    idle = next((state for state in summary.states if state.name == "idle"), None)
    if idle is not None and idle.parts:
        grid.add_row("", _reasons(idle, verbose))
    if verbose:
        for phase in summary.by_phase:
            grid.add_row("", Text.assemble((f"in {words.name(phase.name)}: ", "dim"), _list(phase.parts, True)))
        launches = (
            f"{summary.launches_per_step:,.0f} launches a step, {words.duration(summary.launch_ns)} each on the host"
        )
        grid.add_row("", Text(launches, "dim"))
    parts: list[RenderableType] = [Text(""), grid]
    if summary.critical:
        parts.append(_path(summary, verbose))
    return Group(*parts)


def _whole(summary: DeviceSummary, bars: int) -> Text:
    text = Text()
    done = 0.0
    for state in summary.states:
        if state.name == "idle":
            continue
        begin, done = round(bars * done), done + state.share
        text.append("█" * (round(bars * min(done, 1.0)) - begin), _STYLES.get(state.name, ""))
    text.append("░" * (bars - len(text.plain)), _STYLES["idle"])
    busy = sum(state.share for state in summary.states if state.name != "idle")
    text.append(f"  busy {words.share(busy)}", "bold")
    said = _list([state for state in summary.states if state.name != "idle"], verbose=False)
    if said.plain:
        text.append(": ")
        text.append_text(said)
    return text


def _list(shares: list[Share] | tuple[Share, ...], verbose: bool) -> Text:
    shown = [share for share in shares if verbose or share.share >= LEAST_PART] or list(shares[:1])
    return Text(" · ").join(
        Text(f"{share.name} {words.share(share.share)}", _STYLES["idle"] if share.name == "idle" else "")
        for share in shown
    )


def _reasons(idle: Share, verbose: bool) -> Text:
    """Return why the device idled, the largest reason first."""
    shown = [part for part in idle.parts if verbose or part.share >= LEAST_PART] or list(idle.parts[:1])
    text = Text.assemble((f"idle {words.share(idle.share)}", "bold"), ": ")
    return text.append(" · ".join(f"{part.name} {words.share(part.share)}" for part in shown))


def _path(summary: DeviceSummary, verbose: bool) -> Text:
    shown = (
        summary.critical if verbose else [part for part in summary.critical[:PATH_SHOWN] if part.share >= LEAST_PART]
    )
    text = Text.assemble(("the step is bound by: ", "bold"))
    text.append(", ".join(f"{part.name} {words.share(part.share)}" for part in shown))
    return text.append(" (critical path)", "dim")
