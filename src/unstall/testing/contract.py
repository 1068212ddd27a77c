"""What every cause is held to: its drawn cases and its planted trainings, run the way the product would run them."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from unstall.causes import Cause
from unstall.model.case import Fires, Planted, Silent
from unstall.model.finding import Abstained, Candidate, Finding, Line, Machine
from unstall.model.remedy import Edit, Remedy, Scalar, SetKeyword
from unstall.model.report import Job, Report
from unstall.model.run import Sensor
from unstall.pipeline import RunOptions, account, explained, run
from unstall.remedies.patch import NoSuchCall, patched
from unstall.testing.timeline import draw

MARK = re.compile(r"\s*#\s*<-\s*fault\s*$")


class With:
    """Tables with some of them replaced by what a drawn case gives."""

    def __init__(self, tables: object, given: Mapping[str, object]) -> None:
        self._tables, self._given = tables, given

    def __getattr__(self, name: str) -> object:
        return self._given[name] if name in self._given else getattr(self._tables, name)


@dataclass(frozen=True, slots=True)
class Said:
    """What a cause said of a drawn case, and what it would change."""

    found: tuple[Finding | Candidate, ...]
    remedies: tuple[tuple[Remedy, ...], ...]  # by finding; none for a candidate


def said_of(cause: Cause, case: Fires | Silent) -> Said:
    """Return what *cause* says of a drawn case, with the remedies of each finding; to abstain is to say nothing."""
    drawn = draw(case.timeline, case.given)
    ledger, tables, _ = account(drawn)
    evidence = With(tables, case.given.tables)
    said_so_far = tuple(cause.find(drawn, ledger, evidence))  # type: ignore[arg-type]
    found = tuple(said for said in said_so_far if not isinstance(said, Abstained))
    remedies = tuple(
        tuple(cause.remedies(said, drawn, evidence)) if isinstance(said, Finding) else ()  # type: ignore[arg-type]
        for said in found
    )
    return Said(found, remedies)


def found_in(cause: Cause, case: Fires | Silent) -> list[Finding | Candidate]:
    """Return what *cause* says of a drawn case."""
    return list(said_of(cause, case).found)


def abstains(cause: Cause, case: Fires | Silent, missing: frozenset[Sensor] | None = None) -> bool:
    """Return whether *cause* abstains where *missing* (all that it needs, if not given) was not observed."""
    off = replace(case.given, missing=cause.needs if missing is None else missing)
    drawn = draw(case.timeline, off)
    ledger, tables, segments = account(drawn)
    said = explained(drawn, ledger, tables, segments, (cause,))
    return not said.findings and [a.cause for a in said.abstained] == ([cause.id] if cause.needs else [])


# ---------------------------------------------------------------- planted trainings

# torch sets them in a process that has compiled, as one that runs many tests has; a user's shell does not.
SET_BY_TORCH = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def train(
    source: str, folder: Path, name: str = "train.py", steps: int | None = None, warmup: int | None = None
) -> Report:
    """Run *source* as a user would, under the recorder, and return its report.

    Args:
        steps: steady steps to record; all where None. warmup: steps left out before; as they show where None.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / name
    script.write_text(source)
    held = {name: os.environ.pop(name) for name in SET_BY_TORCH if name in os.environ}
    try:
        options = RunOptions((str(script),), steps=steps, warmup=warmup, out=folder / "recording", job=Job())
        return run([str(script)], options)
    finally:
        os.environ.update(held)


def marked_lines(source: str) -> set[int]:
    """Return the numbers of the lines that end in ``# <- fault``."""
    return {n for n, line in enumerate(source.splitlines(), 1) if MARK.search(line)}


def without_marks(source: str) -> str:
    return "".join(MARK.sub("", line) + "\n" for line in source.splitlines())


def first_fault(report: Report) -> Finding | None:
    return next((finding for finding in report.findings if finding.fault), None)


def names_line(finding: Finding | Candidate, source: str) -> bool:
    """Return whether *finding* blames a line that *source* marks (or no line where none is marked)."""
    lines = marked_lines(source)
    return not lines if not isinstance(finding.where, Line) else finding.where.line in lines


def faults_in(report: Report) -> dict[str, str]:
    """Return the causes of the faults in a report, each with its place and share; those of the machine left out.

    What else the machine was busy with is no matter of the script, and a test cannot keep it quiet.
    """
    return {
        finding.cause: f"{finding.cause} at {finding.where}: {finding.share:.0%}"
        for finding in report.findings
        if finding.fault and not isinstance(finding.where, Machine)
    }


def objections_before(cause: Cause, planted: Planted, report: Report) -> list[str]:
    """Return what is wrong with the report of the training with the fault; empty where it is right."""
    said = faults_in(report)
    if planted.candidate:
        named = [names_line(one, planted.before) for one in report.candidates if one.cause == cause.id]
        missed = [] if any(named) else [f"{cause.id} is to be a candidate at the line, not {len(named)} elsewhere"]
        return missed + [what for name, what in said.items() if name not in planted.also]
    first = next((f for f in report.findings if f.cause in said and f.fault), None)
    if first is None or first.cause != cause.id:
        return [f"the first fault is to be {cause.id}, not {said.get(first.cause, '') if first else 'none'}"]
    wrong = [f"{cause.id} names {first.where}"] if not names_line(first, planted.before) else []
    return wrong + [what for name, what in said.items() if name != cause.id and name not in planted.also]


def objections_after(cause: Cause, planted: Planted, report: Report) -> list[str]:
    """Return what is wrong with the report of the training without the fault; empty where it is right."""
    wrong = [what for name, what in faults_in(report).items() if name == cause.id or name not in planted.also]
    return wrong + [one.title for one in report.candidates if planted.candidate and one.cause == cause.id]


# ---------------------------------------------------------------- its edits


def fitted(remedy: Remedy, after: str) -> tuple[Edit, ...]:
    """Return the remedy's edits with each knob at the value that *after* holds.

    What is predicted for a knob depends on the machine, and *after* was written on another one.
    """
    knobs = {knob.keyword for knob in remedy.knobs}
    return tuple(
        replace(edit, value=_value_in(after, edit)) if isinstance(edit, SetKeyword) and edit.keyword in knobs else edit
        for edit in remedy.edits
    )


def _value_in(source: str, edit: SetKeyword) -> Scalar:
    """Return the constant that *source* passes as the edit's keyword in a call of the same name on its line."""
    name = edit.call.rpartition(".")[2]
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and node.lineno <= edit.line <= (node.end_lineno or 0)):
            continue
        if ast.unparse(node.func).rpartition(".")[2] != name:
            continue
        passed = {keyword.arg: keyword.value for keyword in node.keywords}
        if edit.position is not None and edit.position < len(node.args):
            passed[edit.keyword] = node.args[edit.position]
        if edit.keyword in passed:
            value: Scalar = ast.literal_eval(passed[edit.keyword])
            return value
    return edit.value


def objections_to_edits(planted: Planted, edits: tuple[Edit, ...], file: str) -> list[str]:
    """Return what is wrong with *edits*: they turn `before` into `after`, and leave `after` as it is."""
    wrong = []
    if (made := patched(without_marks(planted.before), edits, file)) != planted.after:
        wrong.append(f"the edits {edits} turn `before` into:\n{made}")
    try:
        again = patched(planted.after, edits, file)
    except NoSuchCall:  # another statement stands on the line of one that was removed: refused, nothing is changed
        again = planted.after
    if again != planted.after:
        wrong.append(f"the edits {edits} change `after`")
    return wrong
