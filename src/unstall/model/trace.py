"""What a profiler's trace holds of one rank: calls on the host's threads, and work on the device's streams.

Shape legend: C calls, W pieces of device work, T threads.  Integer nanoseconds on the rank's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

NONE = -1  # of a row that has no such thing: no correlation, no launch, no size


class Call(IntEnum):
    """What a call on the host is."""

    OPERATOR = 0  # of the framework, as ``aten::mm``
    RUNTIME = 1  # of the device's runtime or driver, as ``cudaLaunchKernel``
    ANNOTATION = 2  # a range that the framework or the user names, as ``ProfilerStep#3``
    FRAME = 3  # a Python function, as ``train.py(41): main``, or an ``nn.Module: ...``


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls on the host, by start; of calls that begin together the longer first.

    Attributes:
        start_ns, end_ns: int64 (C,).
        thread: int32 (C,), index into `Trace.threads`.
        call: uint8 (C,), values of `Call`.
        name: int32 (C,), index into `Trace.names`.
        correlation: int64 (C,), joins a runtime call to the work it launched; NONE where it has none.
        detail: int32 (C,), index into `Trace.names`: for an operator the types and sizes of its inputs where they were
            recorded, as the JSON ``[["float", [64, 128]], ...]``; for a call with a recorded stack that stack; 0 is "".
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    thread: NDArray[np.int32]
    call: NDArray[np.uint8]
    name: NDArray[np.int32]
    correlation: NDArray[np.int64]
    detail: NDArray[np.int32]

    def __post_init__(self) -> None:
        _check("calls", self.start_ns, self.end_ns)

    @classmethod
    def empty(cls) -> Calls:
        i64, i32 = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return cls(i64, i64, i32, np.zeros(0, np.uint8), i32, i64, i32)


@dataclass(frozen=True, slots=True)
class Work:
    """Work on the device's streams, by start.

    Attributes:
        start_ns, end_ns: int64 (W,).
        device, stream: int64 (W,), numbers as the runtime gives them.
        kind: uint8 (W,), `wire.Device` COMPUTE, COPY (memory copies and fills) or COLLECTIVE.
        name: int32 (W,), index into `Trace.names`.
        correlation: int64 (W,), or NONE. The kernels of one replayed graph share theirs.
        launch: int32 (W,), row of `Calls` that launched it, or NONE where the trace has no such call.
        nbytes: int64 (W,), of a copy or collective; NONE where not known.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    device: NDArray[np.int64]
    stream: NDArray[np.int64]
    kind: NDArray[np.uint8]
    name: NDArray[np.int32]
    correlation: NDArray[np.int64]
    launch: NDArray[np.int32]
    nbytes: NDArray[np.int64]

    def __post_init__(self) -> None:
        _check("device work", self.start_ns, self.end_ns)

    @classmethod
    def empty(cls) -> Work:
        i64, i32 = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return cls(i64, i64, i64, i64, np.zeros(0, np.uint8), i32, i64, i32, i64)


@dataclass(frozen=True, slots=True)
class Trace:
    """One rank's trace.

    Attributes:
        threads: a label a thread, ``PID/TID``; main: index of the one that trains (its annotations name the steps, or
            it calls the most operators outside the autograd engine).
        names: interned; names[0] is "".
        path: the file it was read from.
        cut_at: bytes that were read where the file ends in the middle or goes wrong; None where it was whole.
        dilation: how many times longer a step took under the profiler than without it; None where not known.
    """

    calls: Calls
    work: Work
    names: tuple[str, ...] = ("",)
    threads: tuple[str, ...] = ("main",)
    main: int = 0
    path: str = ""
    cut_at: int | None = None
    dilation: float | None = None


def _check(what: str, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> None:
    if start_ns.size != end_ns.size or (np.diff(start_ns) < 0).any() or (end_ns < start_ns).any():
        raise ValueError(f"{what} out of order, or one piece ends before it starts")
