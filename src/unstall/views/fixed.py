"""The page of a fix in the terminal: what was tried, what is proved, what it gives, and what to do now.

The order is that of the questions a reader has: is it faster, and by how much; which remedy did it, and did the
training stay the same; what was not tried; what it comes to in hours; how to have it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from unstall.views import _words as words
from unstall.views.terminal import LEAST_WIDTH, MEASURE, MOST_WIDTH, cut, drawn, ending, indented, machine_of, title
from unstall.views.terminal import short_home as short

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from unstall.model.finding import Finding
    from unstall.model.remedy import Remedy
    from unstall.model.report import Report
    from unstall.model.trial import Bound, Fixed, Hours, Ratio, Untried

NAME = "fixed"
MINUTE_NS, HOUR_NS = 60_000_000_000, 3_600_000_000_000
BY_HAND_SHOWN = 3  # advice; --verbose shows all


def render(fixed: Fixed, *, width: int = 100, colour: bool = False, verbose: bool = False) -> str:
    """Return the page, *width* columns wide (60 to 160), ending in a newline."""
    width = max(LEAST_WIDTH, min(width, MOST_WIDTH))
    return drawn(_page(fixed, min(width, MEASURE), verbose), width, colour)


def _page(fixed: Fixed, width: int, verbose: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    from unstall.views import _proofs

    gap = Text("")
    yield _header(fixed, width)
    yield gap
    yield from map(indented, _headline(fixed, verbose))
    if fixed.proofs:
        yield gap
        yield indented(_proofs.table(fixed.proofs, fixed.kept, width - 2, verbose))
    if fixed.trials and (trust := _trust(fixed)):
        yield gap
        yield indented(trust)
    yield from _ceilings(fixed)
    yield from _left(fixed, verbose)
    yield gap
    yield from _outcome(fixed)
    for note in () if failed(fixed) else fixed.notes:
        yield Text(f"note: {_proofs.sentence(note)}", "dim")
    yield from _resume(fixed)


def _header(fixed: Fixed, width: int) -> Text:
    from rich.text import Text

    trials = f"{words.count(fixed.trials, 'trial')} in {span(fixed.spent_ns)}"
    tail = f"{machine_of(fixed.first)} · {trials if fixed.trials else f'no trial, {span(fixed.spent_ns)}'}"
    command = shlex.join(fixed.command)
    apart = "\n" if len(f"unstall fix · {command} · {tail}") > width else " · "
    return Text.assemble(("unstall fix", "bold"), " · ", (cut(command, 2 * width), "bold"), f"{apart}{tail}")


def span(ns: int) -> str:
    """Return a time of minutes or hours as ``11 min``; short ones in seconds."""
    if ns < 2 * MINUTE_NS:
        return words.duration(ns)
    if ns < 2 * HOUR_NS:
        return f"{round(ns / MINUTE_NS)}{words.GLUE}min"
    return f"{ns / HOUR_NS:.1f}{words.GLUE}h"


# ------------------------------------------------------------------ what came of it


def _headline(fixed: Fixed, verbose: bool) -> Iterator[RenderableType]:
    """Say in one sentence what is proved, and what bounds the run before and after."""
    from rich.text import Text

    from unstall.views import _proofs

    if fixed.interrupted:
        yield Text(f"Ended early by {fixed.interrupted}; this is what had been found until then.", "bold yellow")
    if failed(fixed):
        code = ending(fixed.first.exit_code)
        yield Text(f"The training failed by itself, with {code}: nothing was tried.", "bold yellow")
        for note in fixed.notes:  # what it said, which no one has seen
            yield from _proofs.last_lines(note, verbose)
        return
    total, kept = fixed.total, len(fixed.kept)
    if kept and total is not None:
        faster = f"{_proofs.times(total.value)} faster {_proofs.OF[fixed.measure]}"
        proved = _proofs.proved(total, "fresh" if kept > 1 else "")
        of_all = " of the original against all that is kept" if kept > 1 else ""
        yield Text.assemble((faster, "bold green"), f" ({proved}{of_all})")
    elif kept:
        together = "; all of them together were not measured" if kept > 1 else ""
        yield Text.assemble((f"{words.count(kept, 'remedy', 'remedies')} proved and kept", "bold green"), together)
    elif fixed.proofs:
        tried = words.count(len(fixed.proofs), "remedy was", "remedies were")
        yield Text.assemble(("Nothing is proved faster", "bold"), f": {tried} tried, and none is kept.")
    elif not fixed.interrupted:
        yield Text("Nothing here is worth a trial.", "bold")
    yield from _bounds(fixed)


def failed(fixed: Fixed) -> bool:
    """Return whether the training failed by itself, before anything was tried."""
    return not fixed.proofs and fixed.first.exit_code != 0 and not fixed.first.stopped_by_us


def _bounds(fixed: Fixed) -> Iterator[Text]:
    """Say what bounds the step, as the recordings before and after have it."""
    from rich.text import Text

    if not fixed.kept:
        yield Text(_step(fixed.first, whole=True), "dim")
        return
    before, after = _step(fixed.first), _step(fixed.last)
    yield Text(f"before: {before}", "dim")
    if after != before:
        yield Text(f"now:    {after}", "dim")


def _step(report: Report, whole: bool = False) -> str:
    """Return the step and what bounds it: *whole* with what follows from that."""
    bound = report.bound_by if whole else report.bound_by.partition(". ")[0].rstrip(".")
    if report.step_ns is None:
        return bound
    return f"step {words.duration(report.step_ns.median)}" + (f", {bound[:1].lower()}{bound[1:]}" if bound else "")


def _ceilings(fixed: Fixed) -> Iterator[RenderableType]:
    """Yield what any fix of a layer can give at most, where it was asked for."""
    from rich.text import Text

    from unstall.views import _proofs

    if not fixed.bounds:
        return
    yield Text("")
    yield title("The most any fix of a layer can give")
    for bound in fixed.bounds:
        yield indented(_ceiling(bound))
        yield indented(Text(_proofs.sentence(f"when {bound.removed}"), "dim"), 4)
        if bound.because:
            yield indented(Text(_proofs.sentence(bound.because)), 4)


def _ceiling(bound: Bound) -> Text:
    from rich.text import Text

    from unstall.views import _proofs

    def told(ratio: Ratio) -> str:
        return f"{_proofs.times(ratio.value)} ({_proofs.proved(ratio)})"

    text = Text.assemble((bound.layer, "bold"), ": ")
    if bound.alone is None and bound.others_removed is None:
        return text.append("cannot be told")
    text.append(told(bound.alone) if bound.alone is not None else "alone, cannot be told")
    if bound.others_removed is not None:
        text.append(f"; with the others removed {told(bound.others_removed)}")
    return text


def _trust(fixed: Fixed) -> Text:
    """Return what the verdicts are to be judged by."""
    from rich.text import Text

    parts: list[str] = []
    if fixed.noise is not None:
        parts.append(f"two equal runs differ by {words.share(fixed.noise)}")
    if fixed.discarded:
        parts.append(f"{words.count(fixed.discarded, 'trial')} of {fixed.trials} left out: the machine was disturbed")
    if fixed.proofs:
        parts.append("ratio: time without the remedy over time with it")
    elif not parts and not fixed.bounds:
        parts.append("no trial came to a verdict")
    return Text(" · ".join(parts), "dim")


# ------------------------------------------------------------------ what is left


def _left(fixed: Fixed, verbose: bool) -> Iterator[RenderableType]:
    """Yield the advice that only a person can carry out, and what else was not tried."""
    from rich.text import Text

    advice, rest = _parted(fixed)
    if advice:
        firsts = list({(finding.cause, finding.where): (finding, remedy) for finding, remedy in advice[::-1]}.values())[
            ::-1
        ]
        shown = advice if verbose else firsts[:BY_HAND_SHOWN]
        yield Text("")
        yield title("To be done by hand, unproved")
        for finding, remedy in shown:
            yield from _advice(finding, remedy)
        if len(shown) < len(advice):
            yield indented(Text(f"{len(advice) - len(shown)} more: -v shows them", "dim"))
    if rest:
        yield Text("")
        yield title("Not tried")
    for one in rest:
        yield from _untried(one)


def _parted(fixed: Fixed) -> tuple[list[tuple[Finding, Remedy]], list[Untried]]:
    """Return what was not tried because no edit carries it out, and what was not for other reasons."""
    by_hand = {
        (finding.cause, remedy.title): (finding, remedy)
        for finding, remedies in zip(fixed.last.findings, fixed.last.remedies)
        for remedy in remedies
        if not remedy.edits
    }
    advice = [by_hand[one.cause, one.title] for one in fixed.untried if (one.cause, one.title) in by_hand]
    return advice, [one for one in fixed.untried if (one.cause, one.title) not in by_hand]


def _advice(finding: Finding, remedy: Remedy) -> Iterator[RenderableType]:
    from rich.text import Text

    from unstall.views import _proofs

    yield indented(Text.assemble(("→ ", "green"), (remedy.title, "green")))
    about = (finding.cause, words.place(finding.where, 40), words.share(finding.share), words.SAFETY[remedy.safety])
    yield indented(Text(" · ".join(about), "dim"), 4)
    if remedy.why:
        yield indented(Text(_proofs.sentence(remedy.why)), 4)


def _untried(one: Untried) -> Iterator[RenderableType]:
    from rich.text import Text

    from unstall.views import _proofs

    yield indented(Text.assemble("• ", (one.title or one.cause, "bold")))
    about = [part for part in (one.cause if one.title else "", words.shorten(one.where, 40)) if part]
    if about:
        yield indented(Text(" · ".join(about), "dim"), 4)
    yield indented(Text(_proofs.sentence(one.because)), 4)


# ------------------------------------------------------------------ what it gives, and how to have it


def _outcome(fixed: Fixed) -> Iterator[Text]:
    from rich.text import Text

    if fixed.hours is not None and fixed.kept:
        yield _hours(fixed, fixed.hours)
    elif fixed.kept:
        yield Text("over the whole job, in hours and money: add --job-hours H --price-per-hour P", "dim")
    if fixed.applied:
        changed = ", ".join(fixed.applied)
        yield Text.assemble(
            (f"changed, as you asked: {changed}", "bold"), "; what it was is kept beside it as NAME.orig"
        )
    if fixed.patch_file:
        yield from _patch(fixed)
    for name, value in sorted(fixed.exports.items()):
        yield _to_copy("in the environment: ", f"export {name}={shlex.quote(value)}")
    if fixed.proofs and not fixed.kept:
        yield Text("No patch is written, and no file of yours is changed.")


def _hours(fixed: Fixed, hours: Hours) -> Text:
    """Return the job's hours before and after, and what is left of the saving after the trials' own cost."""
    from rich.text import Text

    saved, price, took = hours.now - hours.then, fixed.first.job.price_per_hour, fixed.spent_ns / HOUR_NS
    bounds = f"({hours.then_low:.1f}-{hours.then_high:.1f})"
    text = Text.assemble(
        (f"a job of {hours.now:.1f}{words.GLUE}h → {hours.then:.1f}{words.GLUE}h", "bold"), f" {bounds}"
    )
    money = "" if hours.saved_money is None else f", {hours.saved_money:,.2f}"
    text.append(f": saves {saved:.1f}{words.GLUE}h{money}", "bold green" if saved > 0 else "bold")
    if money and price is not None:
        text.append(f" at {price:.2f} an hour")
    net_money = "" if hours.saved_money is None or price is None else f", {hours.saved_money - took * price:,.2f}"
    net = f"{saved - took:.1f}{words.GLUE}h{net_money}"
    return text.append(f"; less the {span(fixed.spent_ns)} that this took: {net}", "dim")


def _patch(fixed: Fixed) -> Iterator[Text]:
    from rich.text import Text

    files = re.findall(r"^\+\+\+ \"?b/(.*?)\"?\t?$", fixed.patch, re.MULTILINE)
    changes = words.count(len(re.findall(r"^@@ ", fixed.patch, re.MULTILINE)), "change")
    where = f"in {', '.join(files)}" if len(files) <= 3 else f"in {len(files)} files"
    text = Text.assemble((fixed.patch_file, "bold"), f": {changes} {where}")
    if fixed.applied:
        yield text.append(", which is applied already")
        return
    command = fixed.apply_with or f"git apply {shlex.quote(fixed.patch_file)}"
    yield text
    yield _to_copy("apply it with: ", command)


def _resume(fixed: Fixed) -> Iterator[Text]:
    if fixed.interrupted and fixed.folder:
        yield _to_copy("go on from here: ", f"unstall fix --resume {short(fixed.folder)}")
    elif fixed.folder:
        yield _to_copy("state and recordings: ", short(fixed.folder), "")


def _to_copy(said: str, command: str, style: str = "bold") -> Text:
    """Return a line that is never broken by us, so that what is copied from the terminal is whole."""
    from rich.text import Text

    return Text.assemble((said, "dim"), (command, style), no_wrap=True, overflow="ignore")
