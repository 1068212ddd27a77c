"""The report as JSON, the part that other programs may rely on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unstall.model.report import Report

NAME = "json"


def render(report: Report, *, width: int = 0, colour: bool = False, verbose: bool = False) -> str:
    """Return canonical JSON; keys stand in the order of the documented format, so reports can be compared by line."""
    from unstall.model.codec import report_to_json

    return json.dumps(report_to_json(report), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
