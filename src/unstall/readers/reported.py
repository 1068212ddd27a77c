"""Read a report that was written as JSON, as far as it is compared with another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from unstall.model.codec import REPORT_FORMAT
from unstall.model.compared import Entry, Side, Told
from unstall.model.errors import NotARecording
from unstall.model.finding import Line
from unstall.model.fusion import Apart, Graph
from unstall.model.report import StepTimes

HEAD = 4096  # characters looked at for the format, which is the first key that is written
STARVED = "starved of CPU"
Record = Mapping[str, object]


def is_report(path: Path) -> bool:
    """Return whether *path* is a file of JSON that unstall wrote, of whichever version or kind."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            head = file.read(HEAD).lstrip()
    except OSError:
        return False
    return head.startswith("{") and '"unstall-' in head.partition(",")[0]


def read(path: Path) -> Record:
    """Return the report in *path*.

    Raises:
        NotARecording: When it cannot be read, or is of another kind or version.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotARecording(f"{path} cannot be read: {error}.\nWrite it again with --json.") from None
    made = record.get("format") if isinstance(record, dict) else None
    if made != REPORT_FORMAT:
        raise NotARecording(
            f"{path}: its format is {made}, and {REPORT_FORMAT} is what can be compared.\n"
            "Give the folder of a recording, or what `unstall run` or `unstall diagnose` wrote with --json."
        )
    return dict(record)


def side_of(record: Record, name: str) -> Side:
    """Return what is compared of a report.

    Args:
        record: in the format "unstall-report/1"; keys that a later version added may be absent.
        name: the path that the user gave.
    Raises:
        NotARecording: When a part of it is of another kind than the format says.
    """
    try:
        return _side(record, name)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotARecording(
            f"{name}: the report is damaged ({type(error).__name__}: {error}).\nWrite it again with --json."
        ) from None


def _side(record: Record, name: str) -> Side:
    run = _dict(record["run"])
    times = run["step_ns"]
    parts = _records(run["step_parts"])
    graphs = record.get("graphs") if record.get("trace") is None else None  # a trace does not tell what was compiled
    return Side(
        name, tuple(map(str, _list(record["command"]))), _int(run["steady_steps"]), _int(run["ranks"]),
        None if times is None else StepTimes(*(_int(_dict(times)[key]) for key in ("p10", "median", "p90"))),
        tuple(entry for part in parts for entry in _entries(part)),
        tuple(Entry(str(part["name"]), _int(part["ns"])) for part in _records(run["outside"])),
        (*_faults(record), *_candidates(record)),
        None if graphs is None else tuple(map(_graph, _records(graphs))),
        _dict(record["facts"]), str(run.get("machine_load") or ""), _starved(parts),
    )  # fmt: skip


def _entries(part: Record) -> Iterator[Entry]:
    """Yield the parts of a phase; what they leave of it under its own name."""
    left = _int(part["ns"])
    for inner in _records(part["parts"]):
        left -= _int(inner["ns"])
        yield Entry(f"{part['name']} · {inner['name']}", _int(inner["ns"]))
    if left:
        yield Entry(str(part["name"]), left)


def _starved(parts: list[Record]) -> float:
    return sum(
        _float(inner["share"]) for part in parts for inner in _records(part["parts"]) if inner["name"] == STARVED
    )


def _faults(record: Record) -> Iterator[Told]:
    for found in _records(record["findings"]):
        if found["fault"]:
            place, code = _place(_dict(found["where"]))
            yield Told(str(found["cause"]), str(found["title"]), place, code, _int(found["per_step_ns"]))


def _candidates(record: Record) -> Iterator[Told]:
    for found in _records(record["candidates"]):
        place, code = _place(_dict(found["where"]))
        yield Told(str(found["cause"]), str(found["title"]), place, code, None, False)


def _place(where: Record) -> tuple[str, str]:
    """Return what is to blame, and the text by which it is known again."""
    if where["kind"] == "line":
        return f"{where['file']}:{where['line']}", str(where.get("code") or "")
    said = " ".join(str(value) for key, value in where.items() if key != "kind" and value)
    return said, f"{where['kind']} {said}"


def _graph(record: Record) -> Graph:
    nodes = record["nodes"]
    return Graph(
        str(record["file"]), str(record["function"]), str(record["kind"]), _int(record["kernels"]), _int(record["externs"]),
        None if nodes is None else _int(nodes), _int(record["moved"]), _int(record["least"]),
        _counted(record["patterns"]), _counted(record["libraries"]),
        tuple(
            Apart(str(one["operator"]), _line(one["line"]), *(_int(one[what]) for what in ("calls", "taken", "given")))
            for one in _records(record["apart"])
        ),
    )  # fmt: skip


def _line(value: object) -> Line | None:
    if value is None:
        return None
    record = _dict(value)
    return Line(str(record["file"]), _int(record["line"]), str(record["function"]), str(record["code"]))


def _counted(value: object) -> tuple[tuple[str, int], ...]:
    return tuple((str(_list(pair)[0]), _int(_list(pair)[1])) for pair in _list(value))


def _dict(value: object) -> Record:
    if not isinstance(value, dict):
        raise TypeError(f"an object is expected, not {value!r:.40}")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"a list is expected, not {value!r:.40}")
    return list(value)


def _records(value: object) -> list[Record]:
    return [_dict(one) for one in _list(value)]


def _int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a whole number is expected, not {value!r:.40}")
    return value


def _float(value: object) -> float:
    if not isinstance(value, (int, float)):
        raise TypeError(f"a number is expected, not {value!r:.40}")
    return float(value)
