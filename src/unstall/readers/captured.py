"""What a trial captured of its training: ``captured-PID.json`` and the arrays beside it, to `Captured`.

The probes `capture` and `lockstep` write them.  Of several processes that trained, rank 0's is read, and of several of
that rank (a launcher that trains a little itself) the one with the most losses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unstall.model.errors import NotARecording
from unstall.model.trial import Block, Captured

FORMAT = 1


def read(folder: Path) -> Captured:
    """Return what rank 0 captured in the recording *folder*; a record without losses where it wrote nothing.

    A training that was killed writes nothing: what it captured was in its memory.

    Raises:
        NotARecording: When a file is of a newer version or was cut short.
    """
    found = [(path, _record(path)) for path in sorted(folder.glob("captured-*.json"))]
    ours = [(path, record) for path, record in found if record.get("rank") == 0]
    if not ours:
        return Captured(np.zeros(0))
    path, record = max(ours, key=lambda one: _whole(one[1].get("losses")))
    try:
        return _captured(path, record)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise NotARecording(
            f"{path} cannot be read: {type(error).__name__}: {error}.\nMake the trial again."
        ) from error


def _record(path: Path) -> Mapping[str, object]:
    try:
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise NotARecording(f"{path} cannot be read: {error}.\nMake the trial again.") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise NotARecording(f"{path} was written by another version of unstall.\nMake the trial again with this one.")
    return record


def _captured(path: Path, record: Mapping[str, object]) -> Captured:
    losses_L = np.fromfile(path.with_name(f"{path.stem}-losses.bin"), np.float64)
    if losses_L.size != record["losses"]:
        raise ValueError(f"{losses_L.size} losses where {record['losses']} were written")
    gradients: dict[int, NDArray[np.float32]] = {}
    updates: dict[int, NDArray[np.float32]] = {}
    point_losses: dict[int, float] = {}
    for step, point in sorted((int(step), point) for step, point in _mapping(record.get("points")).items()):
        kept = _mapping(point)
        updates[step] = np.fromfile(path.with_name(str(kept["updates"])), np.float32)
        if "gradients" in kept:
            gradients[step] = np.fromfile(path.with_name(str(kept["gradients"])), np.float32)
        point_losses[step] = _mean(losses_L, _list(kept["passes"]))
    shrunk = record.get("shrunk")
    return Captured(
        losses_L=losses_L,
        parameters=str(record.get("parameters", "")),
        epochs=_whole(record.get("epochs")),
        samples=tuple(str(digest) for digest in _list(record.get("samples"))),
        gradients=gradients,
        updates=updates,
        point_losses=point_losses,
        seeded=record.get("seeded") is True,
        shrunk=shrunk if isinstance(shrunk, int) else None,
        kinds=str(record.get("kinds", "")),
        through_loader=record.get("through_loader") is not False,
        notes=tuple(str(note) for note in _list(record.get("notes"))),
        ablated={name: _whole(count) for name, count in _mapping(record.get("ablated")).items()},
        blocks=tuple(Block(*(_whole(one) for one in _list(block))) for block in _list(record.get("blocks"))),
        not_switched=str(record.get("not_switched", "")),
    )


def _mean(losses_L: NDArray[np.float64], passes: list[object]) -> float:
    """Return the mean of the losses of *passes*, first and behind the last; NaN where none was a scalar."""
    first, behind = (_whole(one) for one in passes)
    scalars = losses_L[first:behind]
    scalars = scalars[~np.isnan(scalars)]
    return float(scalars.mean()) if scalars.size else float("nan")


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
