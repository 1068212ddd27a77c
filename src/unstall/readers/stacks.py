"""Read stack samples that py-spy took from outside.

They are a Chrome trace of all stacks, and raw counts of those that hold the interpreter lock and of those that run.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from unstall.model.run import Place, Samples

_RAW = re.compile(r"^(?P<function>.*) \((?P<file>.*):(?P<line>\d+)\)$")
_THREAD = re.compile(r"thread \((\w+)\)(?:: (.*))?")
_MOST_NATIVE = (
    1 << 32
)  # a larger number is an address: before Python 3.11 py-spy knows no native id of a running thread

Stack = tuple[Place, ...]


@dataclass
class Gathered:
    """Samples of one thread from several windows.

    Attributes:
        at, weight: ns; stack: index into *stacks* by `number`.
    """

    hz: float = 0.0
    at: list[int] = field(default_factory=list)
    weight: list[int] = field(default_factory=list)
    stack: list[int] = field(default_factory=list)
    number: dict[Stack, int] = field(default_factory=dict)
    gil: Counter[Stack] | None = None
    active: Counter[Stack] | None = None
    gil_hz: float = 0.0
    active_hz: float = 0.0

    def add(self, start_ns: int, end_ns: int, stack: Stack, period_ns: int) -> None:
        """Enter the samples of a stretch in which *stack* was seen at every tick."""
        known = self.number.setdefault(stack, len(self.number))
        for at in range(start_ns, end_ns, period_ns):
            self.at.append(at)
            self.weight.append(min(period_ns, end_ns - at))
            self.stack.append(known)

    def samples(self) -> Samples:
        order = np.argsort(np.array(self.at, np.int64), kind="stable")
        return Samples(
            np.array(self.at, np.int64)[order], np.array(self.weight, np.int64)[order],
            np.array(self.stack, np.int32)[order],
            tuple(self.number), self.hz, self.gil, self.gil_hz, self.active, self.active_hz,
        )  # fmt: skip


def read(folder: Path, threads: Mapping[int, int]) -> tuple[dict[int, Samples], dict[int, Samples]]:
    """Return the samples of training threads and of data workers, each by pid. Unreadable windows are left out.

    Args:
        threads: native id of the training thread by pid, where it was not yet known when sampling began.
    """
    trainers: dict[int, Gathered] = {}
    workers: dict[int, Gathered] = {}
    for sidecar in sorted(folder.glob("stacks-*-*.json")):
        if sidecar.name.endswith(".all.json"):
            continue
        try:
            about = json.loads(sidecar.read_text())
            stem = str(sidecar)[: -len(".json")]
            into = workers if about.get("role") == "worker" else trainers
            about["thread"] = threads.get(int(about["pid"]), about["thread"])
            _window(into.setdefault(int(about["pid"]), Gathered()), about, Path(stem + ".all.json"), stem)
        except (OSError, ValueError, KeyError):  # a window cut short by a kill holds nothing that can be read
            continue
    return tuple({pid: g.samples() for pid, g in found.items() if g.at} for found in (trainers, workers))  # type: ignore[return-value]


def _window(into: Gathered, about: dict[str, float], trace: Path, stem: str) -> None:
    thread, spawn_ns = int(about["thread"]), int(about["spawn_ns"])
    hz = about["hz"]
    into.hz, into.gil_hz = into.hz or hz, into.gil_hz or about["gil_hz"]
    into.active_hz = into.active_hz or about["active_hz"]
    period = int(1e9 / hz)
    is_main = thread == int(about["pid"])
    for start, end, stack in _stretches(json.loads(trace.read_text()), thread, is_main):
        into.add(spawn_ns + start, spawn_ns + end, stack, period)
    for name in ("gil", "active"):
        path = Path(f"{stem}.{name}.txt")
        if path.exists():
            counts = getattr(into, name) or Counter()
            scale = (
                getattr(into, f"{name}_hz") / about[f"{name}_hz"]
            )  # a count stands for the same time in every window
            for stack, count in _counts(path.read_text(errors="replace").splitlines(), thread, is_main).items():
                counts[stack] += round(count * scale)
            setattr(into, name, counts)


def _is_of(label: re.Match[str], thread: int, is_main: bool) -> bool:
    """Return whether *label* names *thread*: by its native id or, where py-spy knows none, as the main thread."""
    number = int(label.group(1), 0)
    return number == thread or (is_main and number >= _MOST_NATIVE and label.group(2) == "MainThread")


def _stretches(events: list[dict[str, object]], thread: int, is_main: bool = False) -> Iterable[tuple[int, int, Stack]]:
    """Yield (start ns, end ns, stack) of each stretch in which the thread's stack did not change."""
    tid = None
    for event in events:
        label = _THREAD.match(str(event.get("name", "")))
        if label and event.get("ph") == "B" and _is_of(label, thread, is_main):
            tid = event["tid"]
            break
    stack: list[Place] = []
    since = 0
    for event in events:
        if event.get("tid") != tid or event.get("ph") not in ("B", "E"):
            continue
        at = int(float(str(event["ts"])) * 1000)
        if at > since and len(stack) > 1:  # the first entry is the thread itself
            yield since, at, tuple(stack[1:])
        since = at
        if event["ph"] == "E":
            if stack:
                stack.pop()
        else:
            args = event.get("args") or {}
            assert isinstance(args, dict)
            stack.append(Place(_file(str(args.get("filename", ""))), int(args.get("line", 0) or 0), str(event["name"])))


def _file(name: str) -> str:
    """Return a file as a frame names it; "" where the name was read while it changed and holds what no name can."""
    return "" if "\0" in name else name


def _counts(lines: Iterable[str], thread: int, is_main: bool = False) -> Counter[Stack]:
    counts: Counter[Stack] = Counter()
    for line in lines:
        frames, _, count = line.rpartition(" ")
        parts = frames.split(";")
        label = _THREAD.match(parts[0])
        if not count.isdigit() or (label and not _is_of(label, thread, is_main)):
            continue
        places = []
        for part in parts[1:] if label else parts:
            match = _RAW.match(part)
            places.append(
                Place(_file(match["file"]), int(match["line"]), match["function"]) if match else Place("", 0, part)
            )
        if places:
            counts[tuple(places)] += int(count)
    return counts
