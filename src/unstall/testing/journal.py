"""What a long bench has measured so far, one JSON line each, so that it can be stopped and go on, and be shared out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
Row = Mapping[str, object]


class Journal:
    """A file of rows by key, in the order in which they were measured; kept in memory only where *path* is None.

    A line that was cut short, as where the bench was killed, counts as not measured.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        text = path.read_text() if path is not None and path.exists() else ""
        for line in text.splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            self.rows[str(row["key"])] = row
        if path is not None and text and not text.endswith("\n"):
            with path.open("a") as file:
                file.write("\n")

    def add(self, key: str, row: Row) -> None:
        self.rows[key] = {"key": key, **row}
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(self.rows[key]) + "\n")


def sharded(cells: Iterable[T], shard: str, unit: Callable[[T], str]) -> list[T]:
    """Return the cells of one part of the work: of ``2/3`` the second, fifth, eighth ... *unit*, which stay together.

    Raises:
        ValueError: When *shard* is not ``PART/PARTS`` with 1 <= PART <= PARTS.
    """
    part, _, parts = shard.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"{shard}: a part of the work is given as PART/PARTS, 2/3 for the second of three")
    everything = list(cells)
    mine = set(list(dict.fromkeys(map(unit, everything)))[int(part) - 1 :: int(parts)])
    return [cell for cell in everything if unit(cell) in mine]


def chosen(cells: Iterable[T], words: Iterable[str], name: Callable[[T], str]) -> list[T]:
    """Return the cells whose name holds one of *words*, all of them where none is given."""
    asked = tuple(words)
    return [cell for cell in cells if not asked or any(word in name(cell) for word in asked)]
