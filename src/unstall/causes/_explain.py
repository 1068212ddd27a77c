"""Allot the ledger's time to the findings that want it: one pure function.

Causes do not see each other. Where two stand on the same time the heavier one (`finding.Weight`) gets it first, then a
fault before what is no fault, then the one that asks for more. A line's time is part of its entry's: allotting one
leaves less of both. The time of the steady steps and the time outside them are two pools; what comes now and then
(PERIODIC) draws on both, in proportion to what is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from unstall.model.finding import Finding, Line, Machine, Scope, Stake, Weight
from unstall.model.ledger import Activity, Device, Phase

MOST_LOST = 0.5  # of what information asks for; of what gets less its own words would be untrue
LEAST_SHARE = 0.02  # a finding whose allotted time falls below is dropped into "also"

Entry = tuple[Phase, Activity, Device]


class _Pool(Enum):
    STEADY = "in the steady steps"
    REST = "outside them"


_POOLS = {
    Scope.STEADY: (_Pool.STEADY,),
    Scope.STARTUP: (_Pool.REST,),
    Scope.PERIODIC: (_Pool.STEADY, _Pool.REST),
}
Cell = tuple[_Pool, Entry]
OnLine = tuple[_Pool, Phase, Activity, str]  # on whatever the device does


@dataclass
class _Taken:
    """Time taken out of the pools: by one finding, or by all so far."""

    cells: dict[Cell, int] = field(default_factory=lambda: defaultdict(int))
    lines: dict[OnLine, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def ns(self) -> int:
        return sum(self.cells.values())

    def add(self, other: _Taken) -> None:
        for cell, ns in other.cells.items():
            self.cells[cell] += ns
        for line, ns in other.lines.items():
            self.lines[line] += ns


def explain(
    found: Sequence[Finding], held: Mapping[Scope, Mapping[Entry, int]], whole_ns: Mapping[Scope, int]
) -> tuple[Finding, ...]:
    """Return the findings that got time, with *spent_ns* and *share*, in order of blame.

    The result does not depend on the order of *found*. In each pool an entry gives no more than it holds, and a line no
    more than the largest stake on it.

    Args:
        found: what the causes proposed.
        held: ns that the ledger holds, by scope and entry: STEADY in the steady steps, STARTUP outside them.
        whole_ns: what a share is a share of, by scope.
    """
    pools = {_Pool.STEADY: held.get(Scope.STEADY, {}), _Pool.REST: held.get(Scope.STARTUP, {})}
    gone = _Taken()
    got: list[tuple[Finding, _Taken]] = []
    for finding in sorted(found, key=_claims_first):
        taken = _take(finding, pools, gone)
        share = taken.ns / max(1, whole_ns[finding.scope])
        if taken.ns and share >= LEAST_SHARE and not _is_told(finding, taken, got):
            gone.add(taken)
            got.append((replace(finding, spent_ns=taken.ns, share=share), taken))
        elif finding.fault and finding.claim_ns >= LEAST_SHARE * whole_ns[finding.scope]:
            _concede(finding, got)
    return tuple(sorted((finding for finding, _ in got), key=_blamed_first))


def _is_told(finding: Finding, taken: _Taken, got: Sequence[tuple[Finding, _Taken]]) -> bool:
    """Return whether known causes tell of this fallback already: they blame its line, or took most of its time."""
    if finding.weight is not Weight.FALLBACK:
        return False
    line = _line(finding)
    blamed = any(line and _line(known) == line and known.weight > finding.weight for known, _ in got)
    return blamed or (not finding.fault and taken.ns < MOST_LOST * finding.claim_ns)


def _claims_first(finding: Finding) -> tuple[object, ...]:
    return -int(finding.weight), not finding.fault, -finding.claim_ns, *_name(finding)


def _blamed_first(finding: Finding) -> tuple[object, ...]:
    return not finding.fault, isinstance(finding.where, Machine), -finding.share, *_name(finding)


def _name(finding: Finding) -> tuple[str, ...]:
    """Return what tells findings apart that ask for the same."""
    return finding.cause, str(finding.where), finding.title, str(finding.stakes), finding.scope.value


def _take(finding: Finding, pools: Mapping[_Pool, Mapping[Entry, int]], gone: _Taken) -> _Taken:
    """Return what the finding's stakes get of what is left."""
    taken = _Taken()
    for stake in finding.stakes:
        cells = list(_cells(stake, finding.scope, pools))
        left = [pools[pool].get(entry, 0) - gone.cells[pool, entry] - taken.cells[pool, entry] for pool, entry in cells]
        line = stake.line or ""
        on_line = [(pool, stake.phase, stake.activity, line) for pool in _POOLS[finding.scope]]
        want = stake.ns - (sum(gone.lines[on] for on in on_line) if line else 0)
        part = max(0, min(want, sum(left)))
        for (pool, entry), ns in zip(cells, _split(part, left), strict=True):
            taken.cells[pool, entry] += ns
            if on := line or _line(finding):  # a stake that names no line is on the finding's
                taken.lines[pool, stake.phase, stake.activity, on] += ns
    return taken


def _cells(stake: Stake, scope: Scope, pools: Mapping[_Pool, Mapping[Entry, int]]) -> Iterator[Cell]:
    """Yield where the stake's time may be: in the pools of its scope, whatever the device did if it does not say."""
    for pool in _POOLS[scope]:
        for phase, activity, device in sorted(pools[pool]):
            if (phase, activity) == (stake.phase, stake.activity) and stake.device in (None, device):
                yield pool, (phase, activity, device)


def _split(ns: int, left: Sequence[int]) -> list[int]:
    """Return *ns* in proportion to *left*, to the nanosecond; no part above what is left."""
    whole, parts = sum(left), []
    for here in left:
        part = ns * here // whole if whole else 0
        ns, whole = ns - part, whole - here
        parts.append(part)
    return parts


def _line(finding: Finding) -> str:
    return f"{finding.where.file}:{finding.where.line}" if isinstance(finding.where, Line) else ""


def _concede(loser: Finding, got: list[tuple[Finding, _Taken]]) -> None:
    """Name *loser* under the finding that took most of the time it stood on."""
    entries = {(stake.phase, stake.activity) for stake in loser.stakes}
    lines = {(*entry, stake.line) for stake in loser.stakes for entry in entries if stake.line}

    def lost_to(n: int) -> tuple[int, int, int]:
        taken = got[n][1]
        in_pools = _POOLS[loser.scope]
        on_line = sum(ns for (pool, *line), ns in taken.lines.items() if pool in in_pools and tuple(line) in lines)
        return on_line, sum(ns for (pool, e), ns in taken.cells.items() if pool in in_pools and e[:2] in entries), -n

    winner = max(range(len(got)), key=lost_to, default=None)
    if winner is None or not lost_to(winner)[1]:
        return
    finding, taken = got[winner]
    note = f"{loser.cause} {_line(loser)}".strip()
    if note not in finding.also:
        got[winner] = (replace(finding, also=(*finding.also, note)), taken)
