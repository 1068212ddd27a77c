"""What `unstall fix` arrived at, to JSON; and its proofs back, so that a fix can go on where it was ended.

Enumerations are written by their names, absent values as null, as in `codec`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import NoReturn, TypeVar

from unstall.model.codec import remedy_from_json, remedy_to_json, report_to_json
from unstall.model.errors import UnstallError
from unstall.model.trial import (
    Bound,
    Compared,
    Equality,
    Fixed,
    Measure,
    Outlook,
    Proof,
    Ratio,
    Screening,
    Tried,
    Untried,
    Verdict,
)

FIX_FORMAT = "unstall-fix/1"
_Enum = TypeVar("_Enum", bound=Enum)


class NotAProof(UnstallError):
    """JSON that holds no proof of ours, or one of a newer version."""


def fixed_to_json(fixed: Fixed) -> dict[str, object]:
    """Return the result in the format "unstall-fix/1"; keys are added by later versions, never taken away.

    ``first`` and ``last`` are reports in the format "unstall-report/1"; ``last`` is null where nothing was kept.
    """
    return {
        "format": FIX_FORMAT,
        "command": list(fixed.command),
        "interrupted": fixed.interrupted,
        "noise": fixed.noise,
        "measure": fixed.measure.name,
        "total": ratio_to_json(fixed.total),
        "hours": None if fixed.hours is None else asdict(fixed.hours),
        "proofs": [proof_to_json(proof) for proof in fixed.proofs],
        "kept": [remedy_to_json(remedy) for remedy in fixed.kept],
        "untried": [asdict(untried) for untried in fixed.untried],
        "patch": fixed.patch,
        "patch_file": fixed.patch_file,
        "apply_with": fixed.apply_with,
        "exports": dict(fixed.exports),
        "applied": list(fixed.applied),
        "spent_ns": fixed.spent_ns,
        "trials": fixed.trials,
        "discarded": fixed.discarded,
        "notes": list(fixed.notes),
        "folder": fixed.folder,
        "bounds": [bound_to_json(bound) for bound in fixed.bounds],
        "first": report_to_json(fixed.first),
        "last": report_to_json(fixed.last) if fixed.kept else None,
    }


def bound_to_json(bound: Bound) -> dict[str, object]:
    return {
        "layer": bound.layer,
        "removed": bound.removed,
        "alone": ratio_to_json(bound.alone),
        "others_removed": ratio_to_json(bound.others_removed),
        "because": bound.because,
    }


def proof_to_json(proof: Proof) -> dict[str, object]:
    """Return the proof's fields; its remedy as `codec.remedy_to_json` writes it."""
    equality = proof.equality
    return {
        "cause": proof.cause,
        "where": proof.where,
        "remedy": remedy_to_json(proof.remedy),
        "verdict": proof.verdict.name,
        "measure": proof.measure.name,
        "ratio": ratio_to_json(proof.ratio),
        "start": ratio_to_json(proof.start),
        "step": ratio_to_json(proof.step),
        "equality": None
        if equality is None
        else {"how": equality.how.name, "held": equality.held, "because": equality.because, "told": equality.told},
        "tried": [asdict(tried) for tried in proof.tried],
        "predicted_low": proof.predicted_low,
        "predicted_high": proof.predicted_high,
        "p": proof.p,
        "pays_after": proof.pays_after,
        "discarded": proof.discarded,
        "because": proof.because,
        "screening": None if proof.screening is None else screening_to_json(proof.screening),
    }


def screening_to_json(screening: Screening) -> dict[str, object]:
    """Return the fields of what blocks inside one process showed; ``pairs`` of its ratio are its rounds."""
    return {
        "outlook": screening.outlook.name,
        "ratio": ratio_to_json(screening.ratio),
        "blocks": screening.blocks,
        "seed": screening.seed,
        "tried": [asdict(tried) for tried in screening.tried],
        "because": screening.because,
    }


def proof_from_json(record: object) -> Proof:
    """Return the proof that `proof_to_json` wrote; keys that are not known are passed over.

    Raises:
        NotAProof: When *record* is not such a proof. codec.NotAPlan: When its remedy is none.
    """
    given = _Given(record, "proof")
    try:
        return Proof(
            cause=given.text("cause"),
            where=given.text("where"),
            remedy=remedy_from_json(given.any("remedy")),
            verdict=given.member("verdict", Verdict),
            measure=given.member("measure", Measure),
            ratio=ratio_from_json(given.any("ratio")),
            start=ratio_from_json(given.any("start")),
            step=ratio_from_json(given.any("step")),
            equality=_equality(given.any("equality")),
            tried=tuple(_tried(one) for one in given.items("tried")),
            predicted_low=given.number_or_none("predicted_low"),
            predicted_high=given.number_or_none("predicted_high"),
            p=given.number_or_none("p"),
            pays_after=None if given.any("pays_after") is None else given.count("pays_after"),
            discarded=given.count("discarded"),
            because=given.text("because"),
            screening=_screening(given.any("screening")),
        )
    except ValueError as error:
        raise NotAProof(f"A proof contradicts itself: {error}.") from None


def ratio_to_json(ratio: Ratio | None) -> dict[str, object] | None:
    return None if ratio is None else asdict(ratio)


def ratio_from_json(record: object) -> Ratio | None:
    """Return the ratio that `ratio_to_json` wrote.

    Raises:
        NotAProof: When *record* is neither such a ratio nor null.
    """
    if record is None:
        return None
    given = _Given(record, "ratio")
    try:
        return Ratio(given.number("value"), given.number("low"), given.number("high"), given.count("pairs"))
    except ValueError as error:
        raise NotAProof(f"A ratio contradicts itself: {error}.") from None


def untried_from_json(record: object) -> Untried:
    """Return what was left untried, as ``untried`` of the format lists it.

    Raises:
        NotAProof: When *record* is not that.
    """
    given = _Given(record, "remedy that was not tried")
    return Untried(given.text("cause"), given.text("where"), given.text("title"), given.text("because"))


def _equality(record: object) -> Equality | None:
    if record is None:
        return None
    given = _Given(record, "equality")
    held = given.any("held")
    if not isinstance(held, bool):
        raise NotAProof(f"Whether an equality held is expected to be true or false, not {held!r}.")
    told = not (isinstance(record, dict) and record.get("told") is False)
    return Equality(given.member("how", Compared), held, given.text("because"), told)


def _screening(record: object) -> Screening | None:
    if record is None:
        return None
    given = _Given(record, "screening")
    return Screening(
        outlook=given.member("outlook", Outlook),
        ratio=ratio_from_json(given.any("ratio")),
        blocks=given.count("blocks"),
        seed=given.count("seed"),
        tried=tuple(_tried(one) for one in given.items("tried")),
        because=given.text("because"),
    )


def _tried(record: object) -> Tried:
    given = _Given(record, "value that was tried")
    return Tried(given.count("value"), given.number("ratio"))


class _Given:
    """The fields of a JSON object, read by name and type."""

    def __init__(self, record: object, what: str) -> None:
        if not isinstance(record, Mapping):
            raise NotAProof(f"A {what} is expected to be a JSON object, not {record!r}.")
        self.record, self.what = record, what

    def any(self, name: str) -> object:
        if name not in self.record:
            raise NotAProof(f"A {self.what} is expected to have the field {name!r}.")
        value: object = self.record[name]
        return value

    def text(self, name: str) -> str:
        value = self.any(name)
        return value if isinstance(value, str) else self._refuse(name, "a text")

    def count(self, name: str) -> int:
        value = self.any(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else self._refuse(name, "an integer")

    def number(self, name: str) -> float:
        value = self.any(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return self._refuse(name, "a number")
        return float(value)

    def number_or_none(self, name: str) -> float | None:
        return None if self.any(name) is None else self.number(name)

    def items(self, name: str) -> Sequence[object]:
        value = self.any(name)
        return value if isinstance(value, (list, tuple)) else self._refuse(name, "a list")

    def member(self, name: str, kind: type[_Enum]) -> _Enum:
        value = self.any(name)
        if isinstance(value, str) and value in kind.__members__:
            return kind.__members__[value]
        return self._refuse(name, f"one of {', '.join(kind.__members__)}")

    def _refuse(self, name: str, wanted: str) -> NoReturn:
        raise NotAProof(f"The {name} of a {self.what} is expected to be {wanted}, not {self.record[name]!r}.")
