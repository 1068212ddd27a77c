"""What the control group (v1 or v2) allows this process: CPU quota, memory, throttled time.

A limit may be set on any group above ours, so each is read from our own up to the root of the mount.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_NO_LIMIT_BYTES = 1 << 60  # v1 writes "no limit" as about 2**63


@dataclass(frozen=True, slots=True)
class Group:
    """Where one controller's files lie.

    Attributes:
        version: 1 or 2.
        folders: our group first, then those above it.
    """

    version: int
    folders: tuple[Path, ...]


def find(controller: str, root: Path = Path("/")) -> Group | None:
    """Return where *controller* (``cpu``, ``memory``) of this process lies, or None.

    Args:
        root: what stands for ``/``; /proc and the mounts are looked for under it.
    """
    path: str | None = None
    version = 2
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, at = line.split(":", 2)
        if controller in controllers.split(","):
            path, version = at, 1
            break
        if not controllers:
            path = at
    if path is None:
        return None
    for mount_root, place in _mounts(_text(root / "proc/self/mountinfo"), version, controller):
        inside = path[len(mount_root) :] if path.startswith(mount_root) else ""
        leaf = root / place.lstrip("/") / inside.strip("/")
        top = root / place.lstrip("/")
        above = [f for f in (leaf, *leaf.parents) if f == top or top in f.parents]
        return Group(version, tuple(above))
    return None


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPUs that the quota grants, as 1.5, or None where there is none."""
    group = find("cpu", root)
    if group is None:
        return None
    if group.version == 2:
        quotas = [parse_cpu_max(_text(f / "cpu.max")) for f in group.folders]
    else:
        quotas = [parse_cfs(_text(f / "cpu.cfs_quota_us"), _text(f / "cpu.cfs_period_us")) for f in group.folders]
    return min((q for q in quotas if q is not None), default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return the bytes that the group may use, or None where there is no limit."""
    group = find("memory", root)
    if group is None:
        return None
    name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
    texts = (_text(f / name).strip() for f in group.folders)
    limits = (int(t) for t in texts if t.isdigit())
    return min((limit for limit in limits if limit < _NO_LIMIT_BYTES), default=None)


def throttled_us(group: Group | None) -> int | None:
    """Return how long *group* was held back by its quota so far, us, or None where that is not told."""
    if group is None:
        return None
    return parse_throttled(_text(group.folders[0] / "cpu.stat"))


def parse_cpu_max(text: str) -> float | None:
    """Return the CPUs of a v2 ``cpu.max`` (``max 100000``, ``150000 100000``)."""
    fields = text.split()
    if len(fields) != 2 or not fields[0].isdigit() or not int(fields[1]):
        return None
    return int(fields[0]) / int(fields[1])


def parse_cfs(quota: str, period: str) -> float | None:
    """Return the CPUs of a v1 quota and period, us; a quota of -1 is no limit."""
    if not quota.strip().isdigit() or not period.strip().isdigit() or not int(period):
        return None
    return int(quota) / int(period)


def parse_throttled(text: str) -> int | None:
    """Return the throttled time in ``cpu.stat``, us: v2 gives ``throttled_usec``, v1 ``throttled_time`` in ns."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "throttled_usec":
            return int(value)
        if name == "throttled_time":
            return int(value) // 1000
    return None


def _mounts(mountinfo: str, version: int, controller: str) -> list[tuple[str, str]]:
    """Return (root within the hierarchy, mount point) of the mounts that hold *controller*."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        holds = kind[0] == "cgroup2" if version == 2 else kind[0] == "cgroup" and controller in kind[2].split(",")
        if holds:
            found.append((fields[3].rstrip("/"), fields[4]))
    return found


def _text(path: str | os.PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
