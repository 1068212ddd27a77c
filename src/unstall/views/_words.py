"""Numbers, names and places in words: what the terminal page and its parts share."""

from __future__ import annotations

from unstall.model import words
from unstall.model.finding import Command, Environment, Line, Machine, Operator, Where
from unstall.model.remedy import Safety

SAFETY = {
    Safety.SAME_BITS: "keeps every bit of the training",
    Safety.SAME_DISTRIBUTION: "differs only in random draws",
    Safety.SAME_MATH: "differs only in rounding",
    Safety.CHANGES_TRAINING: "changes the training",
}

# Phases and activities as a reader would say them; a name that is not here is shown as it is.
NAMES = {
    "startup": "start-up",
    "evaluate": "evaluation",
    "wait_data": "waiting for data",
    "load": "loading",
    "copy": "copying",
    "compile": "compiling",
    "guard": "checking guards",
    "launch": "launching",
    "sync": "waiting for the device",
    "collective": "collectives",
    "gc": "garbage collection",
    "io": "reading and writing",
    "starved": "no free core",
}
WORKING = frozenset({"compute", "launch", "launching", "backward", "forward", "optimizer"})  # what a training is for

# Stands between a number and its unit, so that no line is broken there; `finish` makes it a space. A no-break space
# will not do: the layout breaks lines at every character that Python calls a space.
GLUE = "\ue000"

_UNITS = ((3_600_000_000_000, "h"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def finish(text: str) -> str:
    """Return *text* as it is shown."""
    return text.replace(GLUE, " ")


def name(text: str) -> str:
    """Return a phase or an activity in words."""
    return NAMES.get(text.lower(), text.lower().replace("_", " ") if text.isupper() else text)


def digits(value: float) -> str:
    """Return *value* with three digits, zeros after the point left out."""
    size = abs(value)
    text = f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def unit_of(ns: float) -> tuple[int, str]:
    """Return (ns in the unit, its name) that suits a time of *ns*."""
    return next(((size, unit) for size, unit in _UNITS if abs(ns) >= size * 0.9995), _UNITS[-1])


def duration(ns: float) -> str:
    """Return a time in the unit that suits it, as ``168 ms``."""
    if not ns:
        return f"0{GLUE}s"
    size, unit = unit_of(ns)
    return f"{digits(ns / size)}{GLUE}{unit}"


def duration_range(low_ns: float, high_ns: float) -> str:
    """Return ``150-168 ms``, or one time where both read the same, or ``up to`` where the lower one is 0."""
    if duration(low_ns) == duration(high_ns):
        return duration(high_ns)
    if low_ns <= 0:
        return f"up to {duration(high_ns)}"
    size, unit = unit_of(high_ns)
    return f"{digits(low_ns / size)}-{digits(high_ns / size)}{GLUE}{unit}"


def ratio_range(low: float, high: float) -> str:
    """Return ``2.7-3.4x``, or ``up to 3.4x`` where the lower one is 1."""
    first, last = (f"{value:.1f}" if value >= 2 else f"{value:.2f}" for value in (low, high))
    if first == last:
        return f"{last}x"
    return f"up to {last}x" if first == "1.00" else f"{first}-{last}x"


def share(value: float) -> str:
    """Return a share in per cent, as ``70 %`` or ``1.4 %``."""
    points = 100 * value
    if 0 < points < 0.05:
        return f"<0.1{GLUE}%"
    return f"{points:.0f}{GLUE}%" if points >= 9.95 or points == 0 else f"{points:.1f}{GLUE}%"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 step`` or ``2 steps``, never broken at a line's end."""
    return words.count(number, noun, plural, GLUE)


def money(low: float, high: float) -> str:
    """Return a sum in the user's currency, or its bounds."""
    return f"{high:,.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:,.2f}-{high:,.2f}"


def measured(value: float, unit: str) -> str:
    """Return a value of evidence in its unit: times, shares and sizes in what suits them."""
    if unit.startswith("ns"):
        return duration(value) + unit[2:]
    if unit == "share":
        return share(value)
    if unit.startswith("bytes"):
        return size_of(value) + unit[5:]
    number = f"{value:,.0f}" if float(value).is_integer() else digits(value)
    if unit in ("", "count"):
        return number
    return f"{number}x" if unit in ("x", "ratio") else f"{number}{GLUE}{unit}"


def size_of(nbytes: float) -> str:
    """Return a size as ``3.1 MB`` (powers of ten)."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(nbytes) >= size * 0.9995:
            return f"{digits(nbytes / size)}{GLUE}{unit}"
    return f"{nbytes:.0f}{GLUE}B"


def shorten(path: str, room: int) -> str:
    """Return *path* in at most *room* columns, cut on the left: what tells files apart is their end."""
    if len(path) <= room or room < 2:
        return path
    tail = path[len(path) - room + 1 :]
    slash = tail.find("/")
    return "…" + (tail[slash:] if 0 <= slash < len(tail) // 2 else tail)


def place(where: Where, room: int = 1000) -> str:
    """Return where to look, in at most about *room* columns."""
    if isinstance(where, Line):
        number = f":{where.line}"
        return shorten(where.file, max(room - len(number), 8)) + number
    if isinstance(where, Environment):
        return f"environment variable {where.variable}"
    if isinstance(where, Command):
        return f"command: {where.command}"
    if isinstance(where, Operator):
        return ", ".join(part for part in (where.name, where.phase and f"in {where.phase}") if part)
    assert isinstance(where, Machine)
    return f"the machine: {where.what}"
