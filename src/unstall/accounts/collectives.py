"""Collectives that the training thread calls, by line, and how many backward passes a step has."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.code import line_at
from unstall.accounts.segment import Segments
from unstall.model.ledger import Basis, Ledger
from unstall.model.run import Place, Rank, Run
from unstall.model.steps import Steps
from unstall.model.tables import Collectives
from unstall.model.wire import Activity, Kind, Phase

PASSES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


@dataclass(frozen=True, slots=True)
class _Call:
    """One collective of a steady step; key: its name in the recording, its phase, and the pass before it."""

    key: tuple[str, Phase, Phase | None]
    rank: int
    step: int
    ns: int
    nbytes: int


def collectives(run: Run, segments: Segments, ledger: Ledger) -> tuple[Collectives, ...]:
    """Return the collectives of the steady steps by operation, line and place in the step, the costliest first.

    Spans are recorded now and then; they share out what the ledger holds of all steady steps.
    """
    calls = [call for r, rank in enumerate(run.ranks) for call in _calls(r, rank, segments.steps)]
    groups: dict[tuple[str, Phase, Phase | None], list[_Call]] = defaultdict(list)
    in_phase: dict[Phase, int] = defaultdict(int)
    for call in calls:
        groups[call.key].append(call)
        in_phase[call.key[1]] += call.ns
    measured = ledger.rows(steps=segments.steps.steady, activity=Activity.COLLECTIVE)
    measured &= ledger.basis == Basis.MEASURED
    seen = max(1, sum(int(_told(rank, segments.steps, r).size) for r, rank in enumerate(run.ranks)))
    found = []
    for (name, phase, after), group in groups.items():
        operation, user, library = (*name.split("|"), "", "")[:3]
        place = Place.parse(user)
        if place is None:
            continue
        ns = sum(call.ns for call in group)
        held = int(ledger.ns[measured & (ledger.phase == phase)].sum())
        spent = held * ns // max(1, in_phase[phase])
        found.append(
            Collectives(
                line_at(place, run.project, library or None), operation, phase, after, spent,
                int(spent * _together(group, len(run.ranks))), len(group) / seen,
                int(np.median([call.nbytes for call in group])),
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda group: -group.spent_ns))


def _calls(r: int, rank: Rank, steps: Steps) -> list[_Call]:
    events, rows, found = rank.events, rank.rows, []
    if rows is None or not steps.start_SR.shape[0] or not rows.mark_start_ns.size:
        return []
    passes = np.flatnonzero(np.isin(rows.mark_phase, PASSES))
    for n in events.of(Kind.COLLECTIVE):
        start = int(events.start_ns[n])
        step = int(np.searchsorted(steps.start_SR[:, r], start, side="right")) - 1
        if step < 0 or not steps.steady_S[step] or start >= steps.end_SR[step, r]:
            continue
        mark = max(0, int(np.searchsorted(rows.mark_start_ns, start, side="right")) - 1)
        before = int(np.searchsorted(passes, mark, side="right")) - 1
        after = Phase(int(rows.mark_phase[passes[before]])) if before >= 0 else None
        key = (events.name_of(n), Phase(int(rows.mark_phase[mark])), after)
        found.append(_Call(key, r, step, int(events.end_ns[n]) - start, int(events.value[n])))
    return found


def _together(group: list[_Call], ranks: int) -> float:
    """Return the share of a group's time that every rank spends in it: the rest waits for ranks that come later."""
    spent: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for call in group:
        spent[call.step][call.rank] += call.ns
    whole = [list(of_rank.values()) for of_rank in spent.values() if len(of_rank) == ranks]
    total = sum(sum(times) for times in whole)
    return sum(ranks * min(times) for times in whole) / total if total else 1.0


def _told(rank: Rank, steps: Steps, r: int) -> NDArray[np.intp]:
    """Return the steady steps of which single spans and phases were recorded."""
    rows = rank.rows
    if rows is None or not steps.start_SR.shape[0]:
        return np.zeros(0, np.intp)
    step = np.searchsorted(steps.start_SR[:, r], rows.mark_start_ns, side="right") - 1
    step = np.unique(step[step >= 0])
    return np.asarray(step[steps.steady_S[step] & (steps.weight_S[step] == 1)], np.intp)


def backward_passes(run: Run, segments: Segments) -> int:
    """Return the backward passes of a steady step of the first rank, median; 0 where none was seen."""
    rank, steps = run.ranks[0], segments.steps
    if not steps.start_SR.shape[0]:
        return 0
    events, rows = rank.events, rank.rows
    starts = events.start_ns[events.of(Kind.BACKWARD)]
    told = steps.steady
    if rows is not None:
        starts = rows.mark_start_ns[_entered(rows.mark_phase, Phase.BACKWARD)]
        told = _told(rank, steps, 0)
    step = np.searchsorted(steps.start_SR[:, 0], starts, side="right") - 1
    count = np.bincount(step[step >= 0], minlength=steps.start_SR.shape[0])[told]
    return int(np.median(count)) if count.size else 0


def _entered(phases: NDArray[np.uint8], phase: Phase) -> NDArray[np.intp]:
    """Return the marks that begin a *phase*; marks of the same phase side by side are one."""
    within = phases == phase
    return np.flatnonzero(within & ~np.concatenate([[False], within[:-1]]))
