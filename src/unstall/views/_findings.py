"""Findings in words: faults with their remedies, what bounds a run, and what is unproved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unstall.model.finding import Calibrated, Candidate, Evidence, Finding, Line, Scope
from unstall.model.ledger import Basis
from unstall.model.remedy import (
    AddCall,
    AmendList,
    CallFirst,
    CallMethod,
    Decorate,
    Edit,
    ListItems,
    MadeEdit,
    Members,
    Named,
    Remedy,
    RemoveCall,
    RemoveSetting,
    Safety,
    SetAttribute,
    SetEnvironment,
    SetKeyword,
    WrapCall,
)
from unstall.model.report import Report
from unstall.views import _words as words

STANDARD_ERROR = "standard error"  # evidence called so, in the unit of the time spent, is shown as ±
INDENT = 4  # columns; the numbers of the faults stand in them


def amount(finding: Finding, report: Report) -> Text:
    """Return the time a finding explains: its share, and ns a step or in the run."""
    text = Text(no_wrap=True)
    if finding.basis is not Basis.MEASURED or finding.weight.name == "ESTIMATED":
        text.append("estimated " if finding.weight.name == "ESTIMATED" else "sampled ", "dim")
    per_step = per_step_ns(finding, report)
    if finding.scope is Scope.STARTUP:
        text.append(words.duration(finding.spent_ns), "bold")
        text.append(f"{_error(finding, 1)} once a run")
        return text
    known = report.job.steps is not None or report.job.hours is not None
    text.append(words.share(finding.share), "bold")
    text.append(f" of {'the job' if known else 'the step'}, ")
    if finding.scope is Scope.STEADY and per_step is not None:
        return text.append(f"{words.duration(per_step)}{_error(finding, _sharers(report))}")
    return text.append(f"{words.duration(finding.spent_ns)}{_error(finding, 1)} in this run")


def _sharers(report: Report) -> int:
    """Return among how many steps, all ranks, the time of a steady finding is spread."""
    return report.steady_steps * max(len(report.rank_wall_ns), 1)


def per_step_ns(finding: Finding, report: Report) -> int | None:
    """Return ns a steady step of a rank, or None where there is no steady step."""
    return finding.spent_ns // _sharers(report) if report.steady_steps else None


def _error(finding: Finding, sharers: int) -> str:
    for one in finding.evidence:
        if one.what == STANDARD_ERROR and one.unit == "ns":
            return f" ± {words.duration(one.value / sharers)}"
    return ""


def fault(
    number: int, finding: Finding, remedies: Sequence[Remedy], report: Report, verbose: bool, width: int
) -> Table:
    """Return one numbered fault: what it costs, where it is, what shows it, and what would take it away."""
    page = Table.grid(expand=True)
    page.add_column()
    page.add_row(_heading(f"{number:>2}  ", finding.cause, amount(finding, report), width))
    for part in _body(finding, report, verbose, width - INDENT):
        page.add_row(Padding(part, (0, 0, 0, INDENT)))
    for index, remedy in enumerate(remedies):
        page.add_row(Padding(_remedy(remedy, finding if index == 0 else None, report, verbose), (0, 0, 0, INDENT)))
    if finding.also:
        said = Text(f"also explains {', '.join(finding.also)}", "dim")
        page.add_row(Padding(said, (0, 0, 0, INDENT)))
    return page


def information(finding: Finding, report: Report, verbose: bool, width: int) -> Table:
    """Return one finding that is no fault: a line, and its share of the step."""
    page = Table.grid(expand=True)
    page.add_column()
    head = Text()
    head.append_text(_place(finding, width // 2))
    page.add_row(_heading("  • ", head, amount(finding, report), width))
    for part in _body(finding, report, verbose, width - INDENT, head=False):
        page.add_row(Padding(part, (0, 0, 0, INDENT)))
    return page


def candidate(one: Candidate) -> Text:
    """Return a setting that may cost time, marked as unproved."""
    text = Text()
    text.append(one.cause, "bold")
    text.append(f"  {words.place(one.where, 50)}", "cyan")
    text.append(f"  {one.title.rstrip('.')}")
    return text.append(f" ({one.because.rstrip('.')})" if one.because else "", "dim")


def _heading(mark: str, name: str | Text, right: Text, width: int) -> Table:
    """Return name and amount on one line, the amount on the right; below one another where both do not fit."""
    left = Text(mark)
    left.append_text(Text(name, "bold") if isinstance(name, str) else name)
    grid = Table.grid(expand=True)
    if left.cell_len + right.cell_len + 2 > width:
        grid.add_column()
        grid.add_row(left)
        grid.add_row(Padding(right, (0, 0, 0, INDENT)))
        return grid
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_row(left, right)
    return grid


def _place(finding: Finding, room: int) -> Text:
    return Text(words.place(finding.where, room), "cyan")


def _body(finding: Finding, report: Report, verbose: bool, width: int, head: bool = True) -> Iterator[RenderableType]:
    where = finding.where
    if head:
        line = _place(finding, max(24, width * 6 // 10))
        if isinstance(where, Line) and where.code:
            line.append("   ").append(where.code, "default")
        line.no_wrap, line.overflow = True, "ellipsis"
        yield line
    elif isinstance(where, Line) and where.code:
        yield Text(where.code, no_wrap=True, overflow="ellipsis")
    if isinstance(where, Line) and (where.framework or where.key):
        through = f"through {words.shorten(where.framework, 50)}" if where.framework else ""
        key = f"set by {where.key}" if where.key else ""
        yield Text(" · ".join(part for part in (through, key) if part), "dim")
    yield Text(_sentence(finding.title))
    shown = [one for one in finding.evidence if verbose or one.what != STANDARD_ERROR]
    if shown:
        yield Text(" · ".join(_evidence(one, verbose) for one in shown), "dim")
    for note in finding.notes:
        yield Text(_sentence(note))
    if finding.saving and not finding.fault:
        yield Text(f"predicted: {saved(finding, report)}")


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?:" else text + "."


def _evidence(one: Evidence, verbose: bool) -> str:
    source = f" [{one.source}]" if verbose and one.source else ""
    said = one.unit and one.unit in one.what.split()  # "free cores: 2", not "free cores: 2 cores"
    return f"{one.what}:{words.GLUE}{words.measured(one.value, '' if said else one.unit)}{source}"


def saved(finding: Finding, report: Report) -> str:
    """Return what the remedy is predicted to give, by itself."""
    saving = finding.saving
    if saving is None:
        return ""
    if saving.high_ns == 0:
        return "saves nothing by itself"
    said = f"saves {words.duration_range(saving.low_ns, saving.high_ns)}"
    if finding.scope is not Scope.STEADY:
        return said + (" a run" if finding.scope is Scope.STARTUP else " in a run like this")
    faster = speedups(finding, report)
    return f"{said} a step" + (f", {words.ratio_range(*faster)} faster" if faster else "")


def speedups(finding: Finding, report: Report) -> tuple[float, float] | None:
    """Return by how much the step gets faster by itself, low and high, or None where that is not known."""
    saving, step_ns = finding.saving, report.mean_step_ns
    if saving is None or finding.scope is not Scope.STEADY or saving.high_ns >= step_ns:
        return None
    return step_ns / (step_ns - saving.low_ns), step_ns / (step_ns - saving.high_ns)


def _remedy(remedy: Remedy, finding: Finding | None, report: Report, verbose: bool) -> Table:
    """Return a remedy; *finding* is given for the first one, for which the saving was predicted."""
    text = Text()
    text.append(remedy.title, "green")
    if not remedy.edits:
        text.append(" (by hand)", "dim")
    parts: list[str] = []
    if finding is not None and finding.saving is not None:
        basis = "proved" if finding.saving.basis == "proved" else "predicted"
        parts.append(f"{basis}: {saved(finding, report)}")
    safety = words.SAFETY[remedy.safety]
    parts.append(f"{safety} ({remedy.why})" if remedy.why else safety)
    text.append("\n" + " · ".join(parts), "yellow" if remedy.safety is Safety.CHANGES_TRAINING else "")
    if verbose:
        if finding is not None and finding.saving is not None and finding.saving.calibrated is not None:
            text.append(f"\n{_calibrated(finding, finding.saving.calibrated, report)}", "dim")
        for edit in remedy.edits:
            text.append(f"\n{_edit(edit)}", "dim")
        for knob in remedy.knobs:
            bounds = f"from {knob.low} to {knob.high}, {knob.predicted} at first"
            text.append(f"\nworth a search: {knob.keyword} {bounds}", "dim")
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column()
    grid.add_row(Text("→", "green"), text)
    return grid


def _calibrated(finding: Finding, by: Calibrated, report: Report) -> str:
    """Return what the predicted bounds rest on, and what the cause's arithmetic said by itself."""
    saving = finding.saving
    assert saving is not None
    family = f"{words.count(by.of, 'planted training')} of {by.family} causes"
    alone = saved(replace(finding, saving=saving.claimed), report)
    return f"{words.share(by.coverage)} of {family} lie within; by arithmetic alone: {alone}"


def _edit(edit: Edit) -> str:
    if isinstance(edit, SetKeyword):
        return f"edit {edit.file}:{edit.line}: {edit.call}(..., {edit.keyword}={edit.value!r})"
    if isinstance(edit, RemoveCall):
        return f"edit {edit.file}:{edit.line}: leave out {edit.call}(...)"
    if isinstance(edit, CallFirst):
        method = f".{edit.method}" if edit.method else ""
        return f"edit {edit.file}:{edit.line}: X{method}(...) instead of {edit.call}(X, ...)"
    if isinstance(edit, ListItems):
        return f"edit {edit.file}:{edit.line}: {edit.call}(a list of all that {edit.keyword} holds, ...)"
    if isinstance(edit, AmendList):
        return (
            f"edit {edit.file}:{edit.line}: {edit.call}(..., {edit.keyword}=[..., {', '.join(map(repr, edit.items))}])"
        )
    if isinstance(edit, RemoveSetting):
        return f"edit {edit.file}:{edit.line}: leave out what sets {edit.target}"
    if isinstance(edit, WrapCall):
        return f"edit {edit.file}:{edit.line}: {edit.wrapper}({edit.call}(...){_keywords(edit, ', ')})"
    if isinstance(edit, CallMethod):
        return f"edit {edit.file}:{edit.line}: X.{edit.method}({_keywords(edit)}) behind X = {edit.call}(...)"
    if isinstance(edit, Decorate):
        arguments = ", ".join(repr(value) for value in edit.arguments)
        return f"edit {edit.file}:{edit.line}: @{edit.call}({arguments}{_keywords(edit, ', ')}) on {edit.method}"
    if isinstance(edit, AddCall):
        arguments = ", ".join(repr(value) for value in edit.arguments)
        return f"edit {edit.file}: {edit.call}({arguments}) behind the imports"
    if isinstance(edit, SetAttribute):
        value = edit.value
        named = (
            f"{{{', '.join(path.removeprefix('builtins.') for path in value.paths)}}}"
            if isinstance(value, Members)
            else repr(value)
        )
        return f"edit {edit.file}: {edit.attribute} = {named} behind the imports"
    assert isinstance(edit, SetEnvironment)
    return f"start with {edit.variable}={edit.value}"


def _keywords(edit: MadeEdit | Decorate, before: str = "") -> str:
    given = [f"{name}={value.path if isinstance(value, Named) else repr(value)}" for name, value in edit.keywords]
    return before + ", ".join(given) if given else ""
