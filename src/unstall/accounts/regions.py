"""The compiled regions joined to the clock: stack samples lie between the caller and the code that was written."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.code import innermost_users, line_at
from unstall.accounts.label import Labelled, Stack
from unstall.model.finding import Line
from unstall.model.ledger import Activity, Ledger, Phase
from unstall.model.regions import Entering, Region
from unstall.model.run import Facts, Place

_RUNTIME = ("torch/_functorch/", "torch/_inductor/")
_CALLS = "torch/_dynamo/eval_frame.py"
_GRAPH = "<eval_with_key>"  # a graph that runs as it was traced
_COMPILES = "torch/_dynamo/convert_frame.py"


def entering(
    facts: Facts,
    labelled: Sequence[Labelled | None],
    inside: Sequence[NDArray[np.bool_]],
    ledger: Ledger,
    rows: NDArray[np.bool_],
    project: str,
) -> Entering | None:
    """Return the compiled regions and what entering them takes; None where no entry was counted.

    Args:
        inside: per rank bool (K,): the samples to count.
        rows: bool (E,): the ledger entries that those samples stand for.
    """
    counted = facts.known.get("entries")
    entered = counted.get("entered") if isinstance(counted, dict) else None
    if not isinstance(counted, dict) or not isinstance(entered, dict):
        return None
    steps = max(1, _whole(counted.get("steps")))
    regions = tuple(_regions(facts, {place: _whole(n) / steps for place, n in entered.items()}, project))
    if not regions:
        return None
    written = {told.text("file") or "" for told in facts.family("fusion").values()}
    around: Counter[int] = Counter()
    total: Counter[int] = Counter()
    seen = 0
    for samples, chosen in zip(labelled, inside, strict=True):
        if samples is None:
            continue
        is_around = [enters(stack, written) for stack in samples.stacks]
        for k in np.flatnonzero(chosen):
            phase, weight = int(samples.phase[k]), int(samples.weight_ns[k])
            total[phase] += weight
            if is_around[int(samples.stack[k])]:
                around[phase] += weight
                seen += 1
    ran = rows & (ledger.activity != Activity.STARVED)  # what samples stand for: a thread without a CPU runs nothing
    there = {phase: int(ledger.ns[ran & (ledger.phase == phase)].sum()) for phase in around}
    spent = tuple((Phase(p), int(there[p] * weight / total[p])) for p, weight in sorted(around.items()))
    return Entering(regions, _whole(counted.get("graphs")) / steps, spent, seen)


def enters(stack: Stack, written: Iterable[str]) -> bool:
    """Return whether the innermost frames are between a call of compiled code and the code itself (files *written*)."""
    users = innermost_users(stack)
    below = stack[users + 1 if users is not None else 0 :]
    if any(place.file in written or place.file.startswith(_GRAPH) or place.file.endswith(_COMPILES) for place in below):
        return False
    return any(_of_runtime(place) for place in below)


def _of_runtime(place: Place) -> bool:
    file, name = place.file.replace("\\", "/"), place.function
    if file.endswith(_CALLS):  # named so since torch 2.7; what never compiles goes through another _fn of this file
        return name.endswith("compile_wrapper") or (name.endswith("_fn") and "DisableContext" not in name)
    return any(part in file for part in _RUNTIME)


def _regions(facts: Facts, entries: dict[str, float], project: str) -> Iterable[Region]:
    compiled: dict[str, list[Facts]] = defaultdict(list)
    for told in facts.family("region").values():
        compiled[told.text("frame") or ""].append(told)
    for frame, variants in compiled.items():
        place = Place.parse(frame)
        if place is None:
            continue
        operators = [one.number("operators") or 0.0 for one in variants]
        guards = [int(n) for one in variants if (n := one.number("guards")) is not None]
        yield Region(
            line_at(place, project), _site(place, facts, project), sum(operators) / len(operators),
            sum(guards) if guards else None, entries.get(f"{place.file}:{place.line}", 0.0),
        )  # fmt: skip


def _site(place: Place, facts: Facts, project: str) -> Line | None:
    """Return the line that asked for this very function; where only one line asks for any, that one."""
    asked = list(facts.family("compile").values())
    own = [one.text("site") for one in asked if one.text("target") == f"{place.file}:{place.line}"]
    sites = own or list({one.text("site") for one in asked})
    if not sites or (not own and len(sites) > 1):
        return None
    at = Place.parse(sites[0] or "")
    return line_at(at, project) if at is not None else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
