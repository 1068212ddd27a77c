"""Test cases a cause carries: plain data, so that causes never import the test tools.

A timeline is drawn, one character a millisecond; `testing/timeline.py` lists the letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unstall.model.run import Fact, Sensor


@dataclass(frozen=True, slots=True)
class Given:
    """What a drawn case knows besides the timeline.

    Attributes:
        facts: facts of rank 0, by name.
        tables: attributes of `tables.Tables` to replace, by name.
        missing: sensors that were off; all others are taken as on.
    """

    facts: Mapping[str, Fact] = field(default_factory=dict)
    tables: Mapping[str, object] = field(default_factory=dict)
    missing: frozenset[Sensor] = frozenset()


@dataclass(frozen=True, slots=True)
class Fires:
    """A timeline the cause must find; *spent_ms* is what it must ask for over the steady steps (or its scope).

    It is 0 where the cause is to name a candidate, which asks for no time.
    """

    timeline: str
    spent_ms: float
    given: Given = Given()


@dataclass(frozen=True, slots=True)
class Silent:
    """A timeline near enough to tempt the cause, in which it must keep silent."""

    timeline: str
    why: str
    given: Given = Given()


@dataclass(frozen=True, slots=True)
class Planted:
    """A small real training with the fault, and the same one without it.

    The line to blame ends in the comment ``# <- fault``; several lines may carry it, and any of them is right.

    Attributes:
        before, after: whole scripts.  Where the remedy is an edit, it turns *before* into *after*.
        also: other causes that may be found in *after* or besides this one in *before*.
        edited: False where the remedy is advice, and *after* was made by hand.
        candidate: the fault costs no time in so small a training: a candidate is to name it, and no finding.
    """

    before: str
    after: str
    also: frozenset[str] = frozenset()
    edited: bool = True
    candidate: bool = False
