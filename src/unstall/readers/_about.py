"""Facts out of the head and the tail of a trace's file: the device, the process group, how it was recorded.

Names of hosts, users and jobs, which some files carry, are left where they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from unstall.model.run import Fact

_VERSIONS = {
    "cuda_runtime_version": "cuda.runtime", "cuda_driver_version": "cuda.driver", "cupti_version": "cupti",
    "hip_runtime_version": "hip.runtime", "hip_driver_version": "hip.driver", "roctracer_version": "roctracer",
    "torch_version": "torch",
}  # fmt: skip
_FLAGS = ("with_stack", "record_shapes", "profile_memory", "with_flops", "with_modules")
_DEVICE = {
    "totalGlobalMem": "gpu.memory_bytes", "numSms": "gpu.multiprocessors", "warpSize": "gpu.warp",
    "maxThreadsPerMultiprocessor": "gpu.threads_per_multiprocessor",
}  # fmt: skip
_LATEST_NS = 4 * 10**18  # of a base time; beyond it int64 nanoseconds would overflow


@dataclass(frozen=True, slots=True)
class About:
    """What surrounds the events.

    Attributes:
        base_ns: nanoseconds since 1970 that every time in the file counts from; 0 where times count from 1970
            themselves or from an unknown moment.
        rank, world_size: of the process group; None where the file does not say.
        facts: see docs/traces.md; devices: one record a device, as the file gives it.
    """

    base_ns: int
    rank: int | None
    world_size: int | None
    facts: Mapping[str, Fact]
    devices: tuple[Mapping[str, object], ...]


def about(head: bytes, tail: bytes) -> About:
    """Return what *head* (to the bracket that opens the events) and *tail* (after the one that closes them) say."""
    known = _surroundings(head, tail)
    base, group = known.get("baseTimeNanoseconds"), known.get("distributedInfo")
    group = group if isinstance(group, dict) else {}
    rank, world_size = _count(group.get("rank")), _count(group.get("world_size"))
    facts: dict[str, Fact] = {}
    for key, name in _VERSIONS.items():
        value = known.get(key)
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            facts[name] = value
    for key in _FLAGS:
        if isinstance(known.get(key), (bool, int)):
            facts[f"profiler.{key}"] = bool(known[key])
    if rank is not None:
        facts["rank"] = rank
    if world_size is not None:
        facts["world_size"] = world_size
    if isinstance(group.get("backend"), str):
        facts["backend"] = str(group["backend"])
    devices = known.get("deviceProperties")
    listed = [device for device in devices if isinstance(device, dict)] if isinstance(devices, list) else []
    whole = isinstance(base, int) and not isinstance(base, bool) and 0 <= base <= _LATEST_NS
    return About(int(str(base)) if whole else 0, rank, world_size, facts, tuple(listed))


def device_facts(known: About, used: int | None) -> dict[str, Fact]:
    """Return the facts of the device that did the work, number *used*; of the first where that is not known."""
    if not known.devices:
        return {}
    device = next((device for device in known.devices if device.get("id") == used), known.devices[0])
    facts: dict[str, Fact] = {"gpu.count": len(known.devices)}
    if isinstance(device.get("name"), str) and device["name"]:
        facts["gpu.name"] = str(device["name"])
    major, minor = _count(device.get("computeMajor")), _count(device.get("computeMinor"))
    if major is not None:
        facts["gpu.compute"] = f"{major}.{minor or 0}"
    for key, name in _DEVICE.items():
        value = _count(device.get(key))
        if value is not None:
            facts[name] = value
    return facts


def _surroundings(head: bytes, tail: bytes) -> dict[str, object]:
    """Return what both say together; where one is cut short or odd, what the other says."""
    if not head:
        return {}
    known: dict[str, object] = {}
    for text in (head + b"]}", b'{"traceEvents": []' + tail.rstrip(b" \t\r\n\0")):
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict):
            known.update(said)
    return known


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else None
