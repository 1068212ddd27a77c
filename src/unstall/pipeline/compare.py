"""Compare two runs: recordings, traces, or reports that were written as JSON."""

from __future__ import annotations

from pathlib import Path

from unstall.accounts import compare as accounts
from unstall.model.codec import report_to_json
from unstall.model.compared import Comparison, Side
from unstall.model.report import Job
from unstall.pipeline import diagnose_paths
from unstall.readers import reported


def compare(a: str, b: str) -> Comparison:
    """Return what differs between the runs at *a* and *b*.

    Args:
        a, b: the folder of a recording, a trace of the profiler or a folder of one job's, or a report written as JSON.
    Raises:
        UnstallError: As `diagnose_paths`, and for JSON of another kind or version.
    """
    return accounts.compare(_side(a), _side(b))


def _side(path: str) -> Side:
    if reported.is_report(Path(path)):
        record = reported.read(Path(path))
    else:  # through what is written, so that a recording and its own report compare as equal
        record = report_to_json(diagnose_paths([path], Job()))
    return reported.side_of(record, path)
