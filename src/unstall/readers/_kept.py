"""What a trace was decoded to, and the cache of it: reading a trace again takes a hash of its file instead.

The key is a hash of all bytes of the file, so a file that was changed is decoded again and one that was moved or copied
is not; blake2b reads about 1 GB a second, and a packed trace is a fifteenth of its text. Size and time of change are
cheaper and were not taken: a trace that is written again within the resolution of the file system's clock would be
taken for the old one.

The cache is one .npz file a trace in ``$XDG_CACHE_HOME/unstall/traces`` (``~/.cache`` where that is not set), written
beside its place and moved there whole. The oldest are removed above LARGEST_BYTES. UNSTALL_NO_CACHE=1 switches it off.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from unstall.model.run import Fact
from unstall.model.trace import Calls, Work

FORMAT = 1  # raised whenever the same file would be decoded to something else
OFF = "UNSTALL_NO_CACHE"
LEAST_BYTES = 256 << 10  # of a file; a smaller one is decoded in less time than a cache costs in room
LARGEST_BYTES = 2 << 30  # of all that is kept
_STRANGE = (
    OSError, KeyError, ValueError, TypeError, EOFError, RuntimeError, MemoryError, zlib.error, zipfile.BadZipFile,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decoded:
    """One file's trace in columns, before steps are looked for; see `Trace` for the fields of that name.

    Attributes:
        rank: its number, where the file says it.
    """

    calls: Calls
    work: Work
    names: tuple[str, ...]
    threads: tuple[str, ...]
    cut_at: int | None
    rank: int | None
    facts: Mapping[str, Fact]


def place(path: Path) -> Path | None:
    """Return where the decoded columns of the file in *path* are kept or would be; None where none are kept."""
    if os.environ.get(OFF, "") not in ("", "0"):
        return None
    try:
        if path.stat().st_size < LEAST_BYTES:
            return None
        digest = blake2b(digest_size=20)
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return Path(base) / "unstall" / "traces" / f"{digest.hexdigest()}-{FORMAT}.npz"


def load(kept: Path) -> Decoded | None:
    """Return what is kept there; None where there is nothing, or nothing of ours that is whole."""
    try:
        with np.load(kept, allow_pickle=False) as held:
            about = json.loads(bytes(held["about"]))
            calls = Calls(*(held[f"calls.{column.name}"] for column in fields(Calls)))
            work = Work(*(held[f"work.{column.name}"] for column in fields(Work)))
        if about["format"] != FORMAT:
            return None
        os.utime(kept)  # used last, removed last
        return Decoded(
            calls, work, tuple(about["names"]), tuple(about["threads"]), about["cut_at"], about["rank"], about["facts"]
        )
    except _STRANGE:
        return None


def store(kept: Path, decoded: Decoded) -> None:
    """Keep *decoded* there and remove the oldest beyond the bound; where that cannot be done nothing is kept."""
    about: dict[str, Any] = {
        "format": FORMAT,
        **{name: getattr(decoded, name) for name in ("names", "threads", "cut_at", "rank")},
        "facts": dict(decoded.facts),
    }
    columns: dict[str, Any] = {
        f"{kind}.{column.name}": getattr(table, column.name)
        for kind, table in (("calls", decoded.calls), ("work", decoded.work))
        for column in fields(table)
    }
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # a trace names files and functions of its user
        handle, written = tempfile.mkstemp(".part", dir=kept.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **columns)
            os.replace(written, kept)
        except BaseException:
            os.unlink(written)
            raise
        _trim(kept.parent)
    except OSError:
        return


def _trim(folder: Path) -> None:
    """Remove the files that were used least lately until the rest takes no more than LARGEST_BYTES."""
    aged = sorted(
        (
            (entry.stat().st_mtime_ns, entry.stat().st_size, entry.path)
            for entry in os.scandir(folder)
            if entry.is_file()
        ),
        reverse=True,
    )
    room = LARGEST_BYTES
    for _, size, path in aged:
        room -= size
        if room < 0:
            os.unlink(path)
