"""Allot the ledger's time to the findings that want it: one pure function.

Causes do not see each other. Where two stand on the same time the heavier one (`finding.Weight`) gets it first, then the
one that asks for more. A line's time is part of its entry's: allotting one leaves less of both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from unstall.model.finding import Finding, Line, Machine, Scope
from unstall.model.ledger import Activity, Phase

LEAST_SHARE = 0.02  # a finding whose allotted time falls below is dropped into "also"

Entry = tuple[Phase, Activity]


def explain(found: Sequence[Finding], held: Mapping[Scope, Mapping[Entry, int]], whole_ns: Mapping[Scope, int]) -> tuple[Finding, ...]:
    """Return the findings that got time, with *spent_ns* and *share*, in order of blame.

    Args:
        found: what the causes proposed.
        held: ns that the ledger holds, by scope and entry.
        whole_ns: what a share is a share of, by scope.
    """
    left: dict[Scope, dict[Entry, int]] = {scope: dict(entries) for scope, entries in held.items()}
    taken: dict[tuple[Scope, Entry, str], int] = defaultdict(int)
    got: list[Finding] = []
    for finding in sorted(found, key=lambda f: (-int(f.weight), -f.claim_ns, f.cause)):
        scope = finding.scope
        spent = 0
        for stake in finding.stakes:
            entry = (stake.phase, stake.activity)
            want = stake.ns - (taken[(scope, entry, stake.line)] if stake.line else 0)
            part = max(0, min(want, left.get(scope, {}).get(entry, 0)))
            if part:
                left[scope][entry] -= part
                spent += part
                for line in {stake.line, _line(finding)} - {None}:
                    taken[(scope, entry, str(line))] += part
        share = spent / max(1, whole_ns[scope])
        if spent and share >= LEAST_SHARE:
            got.append(replace(finding, spent_ns=spent, share=share))
        else:
            _concede(finding, got)
    return tuple(sorted(got, key=lambda f: (not f.fault, isinstance(f.where, Machine), -f.share)))


def _line(finding: Finding) -> str | None:
    return f"{finding.where.file}:{finding.where.line}" if isinstance(finding.where, Line) else None


def _concede(loser: Finding, got: list[Finding]) -> None:
    """Name *loser* among what the winner on the same entries also explains."""
    wanted = {(stake.phase, stake.activity) for stake in loser.stakes}
    for n, winner in enumerate(got):
        if winner.scope == loser.scope and wanted & {(stake.phase, stake.activity) for stake in winner.stakes}:
            line = _line(loser)
            note = f"{loser.cause} {line}" if line else loser.cause
            if note not in winner.also and loser.fault:
                got[n] = replace(winner, also=(*winner.also, note))
            return
