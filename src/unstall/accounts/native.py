"""Builds of C++ extensions, and the time on the lines that call an extension: its own frames are not sampled."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from unstall.accounts.code import line_at, shown
from unstall.model.finding import Line
from unstall.model.ledger import Activity, Phase
from unstall.model.native import Build, Native
from unstall.model.run import Facts, Place
from unstall.model.tables import HotLine

_TARGETS = re.compile(r"^\s*(?:[\w.]+\.)?(\w+)\s*(?::[^=]+)?=(?!=)")
_THROUGH_TORCH = "torch._ops."


def builds(facts: Facts, project: str) -> tuple[Build, ...]:
    """Return the builds and loads of extensions, in order; those without a line of the user's left out."""
    found = [_build(told, project) for told in facts.family("extension").values()]
    return tuple(build for build in _named_alike(facts, found) if build is not None)


def _build(told: Facts, project: str) -> Build | None:
    place = Place.parse(told.text("site") or "")
    phase = told.text("phase") or ""
    if place is None or phase not in Phase.__members__:
        return None
    return Build(
        told.text("name") or "", line_at(place, project, told.text("library")), int(told.number("build_ns") or 0),
        Phase[phase], told.text("folder") or "", _texts(told, "flags"), told.text("named") or "",
        bool(told.flag("inline")), bool(told.flag("rebuilt")), bool(told.flag("had")), int(told.number("builds") or 0),
        bool(told.flag("rewritten")), bool(told.flag("edited")), 0, bool(told.flag("loops")), bool(told.flag("device")),
    )  # fmt: skip


def _named_alike(facts: Facts, found: Sequence[Build | None]) -> list[Build | None]:
    """Return the builds with their namesakes counted: torch gives the second one of a name a library ``NAME_v1``."""
    files: dict[tuple[str, str], set[str]] = defaultdict(set)
    for told in facts.family("extension").values():
        files[told.text("folder") or "", told.text("name") or ""].add(told.text("file") or "")
    return [b and replace(b, namesakes=len(files[b.folder, b.name]) - 1) for b in found]


def _texts(told: Facts, name: str) -> tuple[str, ...]:
    value = told.known.get(name)
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def natives(facts: Facts, lines: Sequence[HotLine], project: str) -> tuple[Native, ...]:
    """Return the extensions that hot lines of the steady steps call, the one with the most time first."""
    built = {told.text("file") or "": told for told in facts.family("extension").values()}
    loaded = {told.text("file") or "": told for told in facts.family("native").values()}
    found = []
    for file in dict.fromkeys([*built, *loaded]):
        told, seen = built.get(file), loaded.get(file, Facts())
        build = _build(told, project) if told is not None else None
        noted = _texts(seen, "flags") if seen.flag("noted") else None
        name = (told.text("name") if told is not None else None) or os.path.basename(file).partition(".")[0]
        calls = _Calls(_names(name, build, _texts(seen, "names")), _texts(told, "spaces") if told is not None else ())
        flags = build.flags if build is not None else noted
        found.append(_used(Native(name, shown(file, project), flags, build), calls, lines))
    return tuple(sorted((one for one in found if one.samples), key=lambda one: -one.ns))


def _names(name: str, build: Build | None, told: Iterable[str]) -> set[str]:
    """Return by what the user's code may call it: modules' names, and functions' that end in a bracket."""
    target = _TARGETS.match(build.line.code) if build is not None else None
    return {name, *told, *([target[1]] if target is not None else [])}


class _Calls:
    """Tells whether a line calls an extension, and which part of its time is below no Python."""

    def __init__(self, names: Iterable[str], spaces: Iterable[str]) -> None:
        modules = "|".join(re.escape(name) for name in names if not name.endswith("("))
        functions = "|".join(re.escape(name[:-1]) for name in names if name.endswith("("))
        self.own = re.compile(
            rf"\b(?:{modules})\.\w+\s*\(" + (rf"|(?<![\w.])(?:{functions})\s*\(" if functions else "")
        )
        self.ops = re.compile(rf"\bops\.(?:{'|'.join(map(re.escape, spaces))})\.\w+") if tuple(spaces) else None

    def share(self, hot: HotLine) -> float:
        code = hot.line.code
        if self.ops is not None and self.ops.search(code):
            return sum(share for names, share in hot.paths if names and names[-1].startswith(_THROUGH_TORCH))
        return sum(share for names, share in hot.paths if not names) if self.own.search(code) else 0.0


def _used(native: Native, calls: _Calls, lines: Sequence[HotLine]) -> Native:
    spent: Counter[tuple[Phase, Activity, str]] = Counter()
    by_line: Counter[Line] = Counter()
    samples = 0.0
    for hot in lines:
        share = calls.share(hot)
        if share <= 0:
            continue
        by_line[hot.line] += int(hot.spent_ns * share)
        samples += hot.samples * share
        for activity, ns in hot.parts:
            spent[hot.phase, activity, f"{hot.line.file}:{hot.line.line}"] += int(ns * share)
    return replace(
        native,
        calls=tuple(line for line, _ in by_line.most_common()),
        spent=tuple((*key, ns) for key, ns in spent.items() if ns),
        samples=round(samples),
    )
