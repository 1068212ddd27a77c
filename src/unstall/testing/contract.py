"""What every cause is held to: run its drawn cases and its planted trainings the way the product would."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from unstall.causes import Cause
from unstall.model.case import Fires, Given, Silent
from unstall.model.finding import Candidate, Finding, Line
from unstall.model.report import Job, Report
from unstall.pipeline import RunOptions, account, run
from unstall.testing.timeline import draw

MARK = re.compile(r"#\s*<-\s*fault\s*$")


class With:
    """Tables with some of them replaced by what a drawn case gives."""

    def __init__(self, tables: object, given: Mapping[str, object]) -> None:
        self._tables, self._given = tables, given

    def __getattr__(self, name: str) -> object:
        return self._given[name] if name in self._given else getattr(self._tables, name)


def found_in(cause: Cause, case: Fires | Silent) -> list[Finding | Candidate]:
    """Return what *cause* says of a drawn case."""
    drawn = draw(case.timeline, case.given)
    ledger, tables, _ = account(drawn)
    return list(cause.find(drawn, ledger, With(tables, case.given.tables)))  # type: ignore[arg-type]


def abstains(cause: Cause, case: Fires | Silent) -> bool:
    """Return whether *cause* abstains when the sensors that it needs are off in *case*."""
    from unstall.pipeline import explained

    off = replace(case.given, missing=cause.needs) if isinstance(case.given, Given) else Given(missing=cause.needs)
    drawn = draw(case.timeline, off)
    ledger, tables, segments = account(drawn)
    said = explained(drawn, ledger, tables, segments, (cause,))
    return not said.findings and [a.cause for a in said.abstained] == ([cause.id] if cause.needs else [])


def train(source: str, folder: Path, name: str = "train.py") -> Report:
    """Run *source* as a user would, under the recorder, and return its report."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / name
    script.write_text(source)
    return run([str(script)], RunOptions(command=(str(script),), out=folder / "recording", job=Job()))


def marked_lines(source: str) -> set[int]:
    """Return the numbers of the lines that end in ``# <- fault``."""
    return {n for n, line in enumerate(source.splitlines(), 1) if MARK.search(line)}


def without_marks(source: str) -> str:
    return "\n".join(MARK.sub("", line).rstrip() if MARK.search(line) else line for line in source.splitlines()) + "\n"


def first_fault(report: Report) -> Finding | None:
    return next((finding for finding in report.findings if finding.fault), None)


def names_line(finding: Finding, source: str) -> bool:
    """Return whether *finding* blames a line that *source* marks (or no line where none is marked)."""
    lines = marked_lines(source)
    return not lines if not isinstance(finding.where, Line) else finding.where.line in lines
