"""One event of a trace as it is decoded: only the fields that are wanted, typed, so that msgspec skips the rest."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, TypeAlias, Union

import msgspec

from unstall.model.trace import NONE

EXACT_BELOW_US = 2.0**43  # below it a float64 of microseconds tells every nanosecond (half a unit is 0.49 ns)
_OTHERS = "MisftbneBECIPNODSTpFRcv()="  # phases of events that have no duration, and are left out

Number: TypeAlias = int | float | str | None
NO_JSON = msgspec.Raw()  # of a field that an event lacks


class Arguments(msgspec.Struct, gc=False):
    """What is wanted of an event's `args`."""

    correlation: Number = NONE
    stream: Number = None
    device: Number = None
    bytes: Number = None
    size: Number = None
    types: msgspec.Raw = msgspec.field(name="Input type", default=NO_JSON)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NO_JSON)
    dims_2020: msgspec.Raw = msgspec.field(name="Input dims", default=NO_JSON)
    stack: str | None = msgspec.field(name="Call stack", default="")
    collective: str | None = msgspec.field(name="Collective name", default="")
    sent: Number = msgspec.field(name="In msg nelems", default=None)
    received: Number = msgspec.field(name="Out msg nelems", default=None)
    dtype: str | None = ""


class Span(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event with a duration; times in microseconds."""

    ts: float
    name: str = ""
    cat: str = ""
    dur: float = 0.0
    pid: Number = None
    tid: Number = None
    args: Arguments | None = None


class ExactSpan(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """The same, every digit kept: for fractions of a microsecond since 1970, which a float64 rounds to 0.25 us."""

    ts: Decimal
    name: str = ""
    cat: str = ""
    dur: Decimal = Decimal(0)
    pid: Number = None
    tid: Number = None
    args: Arguments | None = None


AnySpan: TypeAlias = Span | ExactSpan
_UNTIMED = tuple(msgspec.defstruct(f"Untimed{i}", [], tag_field="ph", tag=c, gc=False) for i, c in enumerate(_OTHERS))


def _decoder(spans: type[AnySpan]) -> msgspec.json.Decoder[list[AnySpan]]:
    kinds: Any = Union[(spans, *_UNTIMED)]
    return msgspec.json.Decoder(list[kinds])


FAST, EXACT = _decoder(Span), _decoder(ExactSpan)
_ARGUMENTS = {field.encode_name: field for field in msgspec.structs.fields(Arguments)}


def plain(event: object) -> ExactSpan:
    """Return a decoded object as a span; fields of odd types are let pass where they are not needed.

    Raises:
        ArithmeticError, KeyError, TypeError, ValueError: When it is no object, or has a name, a category or a time
            that is none.
    """
    if not isinstance(event, dict):
        raise TypeError("not an object")
    known = event.get("args")
    arguments = {name: known[name] for name in _ARGUMENTS if name in known} if isinstance(known, dict) else {}
    return ExactSpan(
        _finite(event["ts"]),
        _text(event.get("name") or ""),
        _text(event.get("cat") or ""),
        _finite(event.get("dur") or 0),
        _number(event.get("pid")),
        _number(event.get("tid")),
        _arguments(arguments),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value.encode("utf-8", "replace").decode()  # bytes that were no UTF-8, and halves of pairs, become "?"


def _finite(value: Any) -> Decimal:
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError("no time")
    return number


def _number(value: object) -> Number:
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, (int, float, str)) else None


def _arguments(known: dict[str, Any]) -> Arguments:
    made = Arguments()
    for name, value in known.items():
        attribute = _ARGUMENTS[name].name
        if attribute in ("types", "dims", "dims_2020"):
            value = msgspec.Raw(json.dumps(value, default=float).encode())
        elif attribute in ("stack", "collective", "dtype"):
            value = _text(value) if isinstance(value, str) else ""
        else:
            value = _number(value)
        setattr(made, attribute, value)
    return made
