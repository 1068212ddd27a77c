"""Shared evidence on the device: what it did, why it idled and what bounds it, as the causes read it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from unstall.model.finding import Line
from unstall.model.ledger import Activity, Device, Phase


class Idle(str, Enum):
    """Why the device had nothing to do."""

    HOST = "the host had not launched more"
    DATA = "the host waited for data"
    SYNC = "the host waited for the device, and launched nothing"
    RANK = "another rank was late"
    LATENCY = "launched, and not begun yet"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Idling:
    """Time in which the device idled, with what the host did meanwhile; over the steady steps, all ranks.

    Attributes:
        gaps: how many stretches of idle time that is.
        line: the user's line that the host was at, None where no stack was recorded; call: the operator or runtime call
            there, or "".
    """

    why: Idle
    phase: Phase
    activity: Activity
    ns: int
    gaps: int
    line: Line | None = None
    call: str = ""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Device work of one name, launched by one operator at one line; over the steady steps, all ranks.

    Attributes:
        ns: summed length; critical_ns: what of it lies on the critical path.
        operator: outermost operator that launched it, "" where none is known; detail: types and sizes of that operator's
            inputs as `trace.Calls.detail`, "" where not recorded; line: the user's line, None where no stack was.
    """

    name: str
    kind: Device
    count: int
    ns: int
    critical_ns: int
    operator: str = ""
    detail: str = ""
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of one kind made at one line, as ``Memcpy HtoD (Pageable -> Device)``; over the steady steps, all ranks.

    Attributes:
        ns: on the device; exposed_ns: while the device did nothing else; host_ns: the host was held in the call.
        phase: phase of the host's call that made it.
    """

    name: str
    count: int
    ns: int
    exposed_ns: int
    host_ns: int
    nbytes: int
    phase: Phase
    operator: str = ""
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class Syncs:
    """Waits of the host for the device of one kind at one line; over the steady steps, all ranks.

    Attributes:
        call: runtime call, as ``cudaStreamSynchronize``; operator: what asked for it, as ``aten::item``, or "".
        ns: the host waited; idle_ns: the device idled afterwards until the host had launched again, which it could have
            done before.
    """

    call: str
    operator: str
    phase: Phase
    count: int
    per_step: float
    ns: int
    idle_ns: int
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class DeviceCollectives:
    """Collectives of one name on the device; over the steady steps, all ranks.

    Attributes:
        exposed_ns: while the device computed nothing; waited_ns: from a rank's start until the last rank had come, None
            where one rank was recorded.
    """

    name: str
    count: int
    ns: int
    exposed_ns: int
    nbytes: int
    waited_ns: int | None = None
    phase: Phase = Phase.BACKWARD
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class Critical:
    """Time of the critical path: the chain of host calls and device work, each waiting for the one before, that the
    step's length is the sum of. On the host *device* is IDLE or NONE; on the device *activity* is None."""

    phase: Phase
    activity: Activity | None
    device: Device
    ns: int


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What the device did in the steady steps, all ranks.

    Attributes:
        busy_ns: some work ran (union over streams); of it compute_ns a kernel; collective_ns a collective and no kernel;
            copy_ns a copy and nothing else. idle_ns: the rest of the steps.
        launches_per_step: work launched a step, median; launch_ns: host time of one launch call, median.
        tensor_cores: whether the device has units for matrices in reduced precision; None where not known.
        dilation: as `trace.Trace.dilation`.
    """

    busy_ns: int
    compute_ns: int
    collective_ns: int
    copy_ns: int
    idle_ns: int
    idling: tuple[Idling, ...]
    kernels: tuple[Kernels, ...]
    copies: tuple[Copies, ...]
    syncs: tuple[Syncs, ...]
    collectives: tuple[DeviceCollectives, ...]
    critical: tuple[Critical, ...]
    launches_per_step: float = 0.0
    launch_ns: int = 0
    tensor_cores: bool | None = None
    dilation: float | None = None
