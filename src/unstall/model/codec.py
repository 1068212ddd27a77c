"""Edits, remedies and reports to JSON, and edits and remedies back.

A plan is read inside the training process, so this module needs the standard library only until a
report is written.  Enumerations are written by their names, absent values as null.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from unstall.model.errors import UnstallError
from unstall.model.remedy import (
    AddCall,
    AmendList,
    CallFirst,
    CallMethod,
    Decorate,
    Edit,
    Knob,
    ListItems,
    Members,
    Named,
    Remedy,
    RemoveCall,
    RemoveSetting,
    Safety,
    SetAttribute,
    SetEnvironment,
    SetKeyword,
    Switch,
    WrapCall,
)

if TYPE_CHECKING:
    from unstall.model.finding import Calibrated, Candidate, Finding, Saving, Where
    from unstall.model.ledger import Ledger
    from unstall.model.report import DeviceSummary, Report, Share

REPORT_FORMAT = "unstall-report/1"
PLAN_FORMAT = "unstall-plan/1"

_KINDS: dict[str, type[Edit]] = {
    "set-keyword": SetKeyword,
    "list-items": ListItems,
    "amend-list": AmendList,
    "remove-setting": RemoveSetting,
    "remove-call": RemoveCall,
    "call-first": CallFirst,
    "add-call": AddCall,
    "set-attribute": SetAttribute,
    "wrap-call": WrapCall,
    "call-method": CallMethod,
    "decorate": Decorate,
    "set-environment": SetEnvironment,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_Kind = TypeVar("_Kind")


class NotAPlan(UnstallError):
    """JSON that holds no edits, remedies or plan of ours, or of a newer version."""


def edit_to_json(edit: Edit) -> dict[str, object]:
    """Return the edit's fields and its ``kind``: one of `_KINDS`."""
    return {"kind": _NAMES[type(edit)], **asdict(edit)}


def edit_from_json(record: object) -> Edit:
    """Return the edit that `edit_to_json` wrote.

    Raises:
        NotAPlan: When *record* is not such an edit.
    """
    fields = _fields(record, "edit")
    kind = _KINDS.get(str(fields.pop("kind", None)))
    if kind is None:
        raise NotAPlan(f"An edit is expected to be one of {', '.join(_KINDS)}; this is none: {record!r}")
    for name in ("arguments", "dropped", "items"):
        if isinstance(fields.get(name), list):
            fields[name] = tuple(_items(fields[name], name))
    if "keywords" in fields:
        fields["keywords"] = tuple(_keyword(pair) for pair in _items(fields["keywords"], "keywords"))
    if isinstance(fields.get("value"), Mapping):
        paths = _items(_fields(fields["value"], "value").get("paths", ()), "paths")
        fields["value"] = _made(Members, {"paths": tuple(str(path) for path in paths)})
    return _made(kind, fields)


def _keyword(pair: object) -> tuple[str, object]:
    """Return the name and the value of a keyword, a value that is named read."""
    name, value = pair if isinstance(pair, (list, tuple)) and len(pair) == 2 else (None, None)
    if isinstance(value, Mapping):
        value = _made(Named, _fields(value, "value"))
    elif not _fits(value, "Scalar"):
        name = None
    if not isinstance(name, str):
        raise NotAPlan(f"A keyword is expected to be a name and a value, not {pair!r}.")
    return name, value


def remedy_to_json(remedy: Remedy) -> dict[str, object]:
    """Return ``{"id", "title", "safety", "edits", "knobs", "why", "switch"}``; ``switch`` is null where there is none."""
    return {
        "id": remedy.id,
        "title": remedy.title,
        "safety": remedy.safety.name,
        "edits": [edit_to_json(edit) for edit in remedy.edits],
        "knobs": [asdict(knob) for knob in remedy.knobs],
        "why": remedy.why,
        "switch": None if remedy.switch is None else asdict(remedy.switch),
    }


def remedy_from_json(record: object) -> Remedy:
    """Return the remedy that `remedy_to_json` wrote.

    Raises:
        NotAPlan: When *record* is not such a remedy.
    """
    fields = _fields(record, "remedy")
    safety = fields.pop("safety", None)
    if safety not in Safety.__members__:
        raise NotAPlan(f"The safety of a remedy is one of {', '.join(Safety.__members__)}, not {safety!r}.")
    edits = tuple(edit_from_json(edit) for edit in _items(fields.pop("edits", ()), "edits"))
    knobs = tuple(_made(Knob, _fields(knob, "knob")) for knob in _items(fields.pop("knobs", ()), "knobs"))
    given = fields.pop("switch", None)  # absent in what an earlier version wrote
    switch = None if given is None else _switch(_fields(given, "switch"))
    return _made(Remedy, {**fields, "safety": Safety[str(safety)], "edits": edits, "knobs": knobs, "switch": switch})


def _switch(fields: dict[str, object]) -> Switch:
    tuples: dict[str, object] = {name: tuple(_items(fields[name], name)) for name in ("reads", "on") if name in fields}
    return _made(Switch, {**fields, **tuples})


def plan_to_json(remedies: Sequence[Remedy]) -> dict[str, object]:
    """Return ``{"format": "unstall-plan/1", "remedies": [...]}``, to be sent to a process that carries it out."""
    return {"format": PLAN_FORMAT, "remedies": [remedy_to_json(remedy) for remedy in remedies]}


def plan_from_json(record: object) -> tuple[Remedy, ...]:
    """Return the remedies that `plan_to_json` wrote.

    Raises:
        NotAPlan: When *record* is not such a plan, or one of another version.
    """
    fields = _fields(record, "plan")
    if fields.get("format") != PLAN_FORMAT:
        raise NotAPlan(f"A plan of the format {PLAN_FORMAT} is expected, not {fields.get('format')!r}.")
    return tuple(remedy_from_json(remedy) for remedy in _items(fields.get("remedies", ()), "remedies"))


def report_to_json(report: Report) -> dict[str, object]:
    """Return the report in the format "unstall-report/1"; equal reports give equal JSON, key for key.

    Keys are added by later versions, never taken away. ``run.step_ns`` is null where no steady step was seen, and a
    ``speedup`` where the saving is the whole time, ``calibrated`` where the saving's bounds are those of its basis, and
    ``overhead.share`` where nobody measured it; ``device`` where none was observed, and ``trace`` for a live run. The
    ledger is summed over the steps; the entries of a rank add up to its ``rank_wall_ns`` exactly.
    """
    return {
        "format": REPORT_FORMAT,
        "command": list(report.command),
        "exit_code": report.exit_code,
        "stopped_by_us": report.stopped_by_us,
        "stop_reason": report.stop_reason,
        "run": _run(report),
        "overhead": {"share": report.overhead_share, "how": report.overhead_how},
        "ledger": [] if report.ledger is None else _ledger(report.ledger, _rank_numbers(report)),
        "findings": [_finding(report, n) for n in range(len(report.findings))],
        "candidates": [_candidate(candidate) for candidate in report.candidates],
        "abstained": [asdict(abstained) for abstained in report.abstained],
        "warnings": list(report.warnings),
        "observed": [sensor.name for sensor in report.observed],
        "missing": {sensor.name: why for sensor, why in sorted(report.missing.items())},
        "facts": dict(sorted(report.facts.known.items())),
        "job": asdict(report.job),
        "projection": asdict(report.projection) if report.projection else None,
        "recording": report.recording,
        "device": None if report.device is None else _device(report.device),
        "trace": None if report.traced is None else asdict(report.traced),
        "graphs": [asdict(graph) for graph in report.graphs],
    }


def _device(device: DeviceSummary) -> dict[str, object]:
    return {
        "states": [_share(share) for share in device.states],
        "by_phase": [_share(share) for share in device.by_phase],
        "critical_path": [_share(share) for share in device.critical],
        "launches_per_step": device.launches_per_step,
        "launch_ns": device.launch_ns,
        "dilation": device.dilation,
    }


def _run(report: Report) -> dict[str, object]:
    return {
        "wall_ns": report.wall_ns,
        "rank_wall_ns": list(report.rank_wall_ns),
        "ranks": len(report.rank_wall_ns),
        "steps": report.steps,
        "steady_steps": report.steady_steps,
        "warmup_steps": report.warmup_steps,
        "step_ns": asdict(report.step_ns) if report.step_ns else None,
        "step_parts": [_share(share) for share in report.step_parts],
        "outside": [_share(share) for share in report.outside],
        "bound_by": report.bound_by,
        "unknown_share": report.unknown_share,
        "edges_ns": report.edges_ns,
        "by_rank": [asdict(rank) for rank in report.ranks],
        "machine_load": report.machine_load,
    }


def _share(share: Share) -> dict[str, object]:
    parts = [_share(part) for part in share.parts]
    return {"name": share.name, "ns": share.ns, "share": share.share, "parts": parts}


def _rank_numbers(report: Report) -> Sequence[int]:
    """Return the number of each rank of the ledger: its place, unless the summaries say otherwise."""
    numbers = [rank.rank for rank in report.ranks]
    return numbers if len(numbers) == len(report.rank_wall_ns) else range(len(report.rank_wall_ns))


def _ledger(ledger: Ledger, ranks: Sequence[int]) -> list[dict[str, object]]:
    """Return the entries summed over the steps, ordered by rank, phase, activity, device and basis."""
    from unstall.model.ledger import Activity, Basis, Device, Phase  # numpy: only to write a report

    columns = (ledger.rank, ledger.phase, ledger.activity, ledger.device, ledger.basis, ledger.ns)
    spent: defaultdict[tuple[int, ...], int] = defaultdict(int)
    for *key, ns in zip(*(column.tolist() for column in columns), strict=True):
        spent[tuple(key)] += ns
    return [
        {
            "rank": ranks[rank],
            "phase": Phase(phase).name,
            "activity": Activity(activity).name,
            "device": Device(device).name,
            "basis": Basis(basis).name,
            "ns": ns,
            "share": ns / int(ledger.wall_R[rank]),
        }
        for (rank, phase, activity, device, basis), ns in sorted(spent.items())
        if ns
    ]


def _finding(report: Report, n: int) -> dict[str, object]:
    finding = report.findings[n]
    remedies = report.remedies[n] if n < len(report.remedies) else ()
    return {
        "cause": finding.cause,
        "layer": finding.layer,
        "fault": finding.fault,
        "title": finding.title,
        "share": finding.share,
        "spent_ns": finding.spent_ns,
        "per_step_ns": _a_step(report, finding),
        "scope": finding.scope.name,
        "basis": finding.basis.name,
        "weight": finding.weight.name,
        "where": _where(finding.where),
        "evidence": [asdict(evidence) for evidence in finding.evidence],
        "saving": _saving(report, finding, finding.saving) if finding.saving else None,
        "also": list(finding.also),
        "notes": list(finding.notes),
        "remedies": [remedy_to_json(remedy) for remedy in remedies],
    }


def _steps_of(report: Report, finding: Finding) -> int:
    """Return the steps over which the finding's time is spread."""
    from unstall.model.finding import Scope

    return report.steady_steps if finding.scope is Scope.STEADY else report.steps


def _a_step(report: Report, finding: Finding) -> int:
    """Return the finding's time a step of one rank, ns; 0 where there is no step."""
    steps = _steps_of(report, finding) * max(len(report.rank_wall_ns), 1)
    return finding.spent_ns // steps if steps else 0


def _saving(report: Report, finding: Finding, saving: Saving) -> dict[str, object]:
    """Return the saving a step, and what it gives: of the mean step, or of the run where it is not every step's."""
    from unstall.model.finding import Scope

    of_step = finding.scope is Scope.STEADY
    whole = report.mean_step_ns if of_step else report.wall_ns
    steps = 1 if of_step else report.steps
    return {
        "per_step_ns_low": saving.low_ns // steps if steps else 0,
        "per_step_ns_high": saving.high_ns // steps if steps else 0,
        "run_ns_low": saving.low_ns * report.steady_steps if of_step else saving.low_ns,
        "run_ns_high": saving.high_ns * report.steady_steps if of_step else saving.high_ns,
        "speedup_low": _speedup(whole, saving.low_ns),
        "speedup_high": _speedup(whole, saving.high_ns),
        "basis": saving.basis,
        "calibrated": None if saving.calibrated is None else _calibrated(saving.calibrated, steps),
    }


def _calibrated(calibrated: Calibrated, steps: int) -> dict[str, object]:
    """Return what the bounds of a saving rest on, and what they were before."""
    return {
        "coverage": calibrated.coverage,
        "of": calibrated.of,
        "family": calibrated.family,
        "claimed_per_step_ns_low": calibrated.low_ns // steps if steps else 0,
        "claimed_per_step_ns_high": calibrated.high_ns // steps if steps else 0,
    }


def _speedup(whole_ns: int, saved_ns: int) -> float | None:
    """Return how many times faster; None where nothing would be left, so no ratio bounds it."""
    if not saved_ns:
        return 1.0
    return whole_ns / (whole_ns - saved_ns) if saved_ns < whole_ns else None


def _candidate(candidate: Candidate) -> dict[str, object]:
    return {
        "cause": candidate.cause,
        "title": candidate.title,
        "where": _where(candidate.where),
        "because": candidate.because,
        "remedies": [remedy_to_json(remedy) for remedy in candidate.remedies],
    }


def _where(where: Where) -> dict[str, object]:
    """Return the place's fields and its ``kind``: line, environment, command or machine."""
    return {"kind": type(where).__name__.lower(), **asdict(where)}


def _fields(record: object, what: str) -> dict[str, object]:
    if not isinstance(record, Mapping):
        raise NotAPlan(f"A {what} is expected to be a JSON object, not {record!r}.")
    return {str(key): value for key, value in record.items()}


def _items(value: object, what: str) -> Sequence[object]:
    if not isinstance(value, (list, tuple)):
        raise NotAPlan(f"The {what} are expected to be a JSON list, not {value!r}.")
    return value


def _made(kind: type[_Kind], fields: dict[str, object]) -> _Kind:
    """Return the record of *kind*, unknown, missing and mistyped fields refused."""
    try:
        made = kind(**fields)
    except TypeError as error:
        raise NotAPlan(f"{kind.__name__}: {error}.") from None
    annotations: Mapping[str, str] = kind.__annotations__
    for name, value in fields.items():
        if not _fits(value, annotations[name]):
            raise NotAPlan(f"{kind.__name__}: {name} is expected to be {annotations[name]}, not {value!r}.")
    return made


def _fits(value: object, annotation: str) -> bool:
    """Return whether a JSON value is of the annotated type; containers, records and enumerations were read before."""
    if annotation == "Scalar":
        return value is None or isinstance(value, (bool, int, float, str))
    if annotation == "Scalar | Members":
        return isinstance(value, Members) or _fits(value, "Scalar")
    if annotation in ("tuple[Scalar, ...]", "tuple[str, ...]"):
        one = annotation.removeprefix("tuple[").partition(",")[0]
        return isinstance(value, tuple) and all(_fits(each, one) for each in value)
    plain = {"str": str, "int": int, "bool": bool, "float": float, "None": type(None)}
    kinds = [plain.get(name.strip()) for name in annotation.split("|")]
    if None in kinds:
        return isinstance(value, (tuple, Enum, Switch)) or (value is None and type(None) in kinds)
    return type(value) in kinds
