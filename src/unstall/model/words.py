"""How amounts are put into words, alike in every stage."""

from __future__ import annotations


def count(number: float, noun: str, plural: str = "", glue: str = " ") -> str:
    """Return ``1 step`` or ``2 steps``; *glue* stands between the number and the noun."""
    shown = number if isinstance(number, int) else f"{number:g}"
    return f"{shown}{glue}{noun if number == 1 else plural or noun + 's'}"
