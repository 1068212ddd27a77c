"""Whether the next start of a program will find the folder that this one wrote to, as far as names tell."""

from __future__ import annotations

import re

_VOLATILE = re.compile(r"tempfile|mkdtemp|TemporaryDirectory|getpid|uuid|time\(|now\(|random|RANK\b|JOB_?ID", re.I)
_PASSING = re.compile(r"^tmp\w{6,}$|[0-9a-f]{8}-[0-9a-f]{4}|(?:job|pid|rank|run)[-_.]?\d+|\d{5,}", re.I)


def is_volatile(code: str) -> bool:
    """Return whether a line that names a folder names another one at each start."""
    return bool(_VOLATILE.search(code))


def is_passing(folder: str) -> bool:
    """Return whether a part of the path looks like one of a single start: temporary, or a job's, process's or rank's."""
    return any(_PASSING.search(part) for part in folder.replace("\\", "/").split("/"))
