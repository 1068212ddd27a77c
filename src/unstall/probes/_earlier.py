"""Whether an earlier start wrote the same code but for its fractions: then a number in the graph differs at each start.

The code that Inductor writes for a graph is kept in a file named after its content. What is looked through is the folder of
its cache, once, and a few files of nearly the same size: while a graph is compiled, which takes seconds.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from typing import Any

from unstall.probes._sites import is_users

MOST_FOLDERS, MOST_FILES = 1500, 200  # of the cache; of one of its folders
MOST_READ = 20  # files that are compared with one
LENGTHS = 64  # bytes by which the same code with other numbers may differ
_FRACTION = re.compile(r"(?<![\w.])\d+\.\d*(?:[eE][-+]?\d+)?|(?<![\w.])\d+[eE][-+]?\d+")
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in (\S+)', re.MULTILINE)


class Earlier:
    """The code that was written before this process began.

    Args:
        began_s: since the epoch.
    """

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.folder = ""
        self.sizes: list[tuple[int, str]] = []

    def alike(self, file: str, code: str) -> tuple[int, str, str]:
        """Return how many earlier files hold *code*, which is kept in *file*, but for its fractions; one of these, now and then.

        It is (0, "", "") where there is none.
        """
        if not self.folder:
            self.folder = os.path.dirname(os.path.dirname(file))
            self.sizes = list(older_in(self.folder, self.began_s))
        near = [path for size, path in self.sizes if abs(size - len(code.encode())) <= LENGTHS and path != file]
        plain, count, pair = _FRACTION.sub("#", code), 0, ("", "")
        for path in near[-MOST_READ:]:
            with open(path, encoding="utf-8", errors="replace") as opened:
                other = opened.read()
            if _FRACTION.sub("#", other) == plain:
                both = zip(_FRACTION.findall(code), _FRACTION.findall(other))
                count, pair = count + 1, next((one for one in both if one[0] != one[1]), pair)
        return (count, *pair) if pair[0] else (0, "", "")


def older_in(folder: str, began_s: float) -> Iterator[tuple[int, str]]:
    """Yield size and path of the Python files one level below *folder* that were written before *began_s*."""
    try:
        with os.scandir(folder) as entries:
            below = [entry.path for entry in itertools.islice(entries, MOST_FOLDERS) if entry.is_dir()]
        for path in below:
            with os.scandir(path) as entries:
                for entry in itertools.islice(entries, MOST_FILES):
                    if entry.name.endswith(".py") and (about := entry.stat()).st_mtime < began_s:
                        yield about.st_size, entry.path
    except OSError:
        return


def reads(graphs: Iterator[Any], number: str) -> str:
    """Return the user's line, as FILE:LINE:FUNCTION, at which a graph has *number*; "" where none has."""
    for graph in graphs:
        for node in graph.graph.nodes:
            if any(isinstance(one, float) and one == float(number) for one in node.args):
                stack = node.meta.get("stack_trace") or getattr(node, "stack_trace", None) or ""
                for file, line, function in reversed(_FRAME.findall(stack)):
                    if is_users(file):
                        return f"{os.path.abspath(file)}:{line}:{function}"
    return ""
