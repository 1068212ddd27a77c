"""Spans of a trace, gathered into the columns of `Calls` and `Work`.

Shape legend: N spans of a piece, C calls, W pieces of device work.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unstall.model.trace import NONE, Call, Calls, Work
from unstall.model.wire import Device
from unstall.readers._span import NO_JSON, AnySpan, Arguments, ExactSpan, Number

LONGEST_US = 1e15  # of one event; 30 years
FARTHEST_US = 4e15  # of a time from 1970; beyond it int64 nanoseconds would overflow
AnyInt: TypeAlias = NDArray[np.int64] | NDArray[np.int32] | NDArray[np.uint8] | NDArray[np.bool_]
_GIVEN = np.zeros(0, np.uint8)
_WORK = 8  # category codes from here on are device work: _WORK + Device
_LEFT_OUT = 255

# Names of categories over the years and the makers, in small letters. Device work is told by these and never by "it
# has a stream": a gpu_user_annotation or a cuda_sync has one as well, and is no work.
_CATEGORIES = {
    **dict.fromkeys(("cpu_op", "operator"), int(Call.OPERATOR)),
    **dict.fromkeys(
        (
            "cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "hip_driver", "mtia_runtime", "glow_runtime",
            "xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver",
        ),
        int(Call.RUNTIME),
    ),
    "user_annotation": int(Call.ANNOTATION),
    "python_function": int(Call.FRAME),
    **dict.fromkeys(("kernel", "concurrent_kernel", "mtia_ccp_events", "hpu_op"), _WORK + Device.COMPUTE),
    **dict.fromkeys(("gpu_memcpy", "gpu_memset", "memcpy", "memset"), _WORK + Device.COPY),
}  # fmt: skip
# In 2020 and 2021 the framework's own ranges were operators too.
_RANGES = re.compile(r"ProfilerStep#|Optimizer\.|enumerate\(DataLoader\)|DistributedDataParallel\.")
_COLLECTIVES = re.compile(
    r"nccl|rccl|hccl|oneccl|nvshmem|cross_device_reduce|^(?!triton_).*(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)",
    re.I,
)
_DEVICE_MARKS = re.compile(r"event_(wait|record)$")  # MTIA's markers in its queues
_DEVICE_COPIES = re.compile(r"dma_request$|__amd_rocclr_(copy|fill)Buffer")  # copies in the guise of kernels
_BYTES_OF = {
    "double": 8, "long": 8, "int64": 8, "float": 4, "int": 4, "int32": 4, "half": 2, "bfloat16": 2, "short": 2,
    "byte": 1, "char": 1, "bool": 1, "uint8": 1, "int8": 1,
}  # fmt: skip


class _Codes(dict[str, int]):
    """The code of a category as the file writes it."""

    def __missing__(self, category: str) -> int:
        code = self[category] = _CATEGORIES.get(category.lower(), _LEFT_OUT)
        return code


class _Numbers(dict[str, int]):
    """A number a text, in the order in which they are met."""

    def __missing__(self, thing: str) -> int:
        number = self[thing] = len(self)
        return number


class _Pairs(dict[tuple[Number, Number], int]):
    """The same of pairs."""

    def __missing__(self, pair: tuple[Number, Number]) -> int:
        number = self[pair] = len(self)
        return number


@dataclass(slots=True)
class Columns:
    """Columns so far, a list of arrays each, and the tables that they index.

    Attributes:
        counted: spans by category as the file writes it; dropped: spans with a time that is none (negative, NaN).
        calls, work: per piece start, end, code and what `_calls` and `_device` return, as small as they may be.
    """

    codes: _Codes = field(default_factory=_Codes)
    names: _Numbers = field(default_factory=lambda: _Numbers({"": 0}))
    threads: dict[tuple[Number, Number], int] = field(default_factory=_Pairs)
    details: dict[bytes, int] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    calls: list[list[AnyInt]] = field(default_factory=list)
    work: list[list[AnyInt]] = field(default_factory=list)

    def add(self, spans: list[AnySpan]) -> None:
        categories = [span.cat for span in spans]
        self.counted.update(categories)
        code_N = np.fromiter(map(self.codes.__getitem__, categories), np.uint8, len(spans))
        start_N, length_N, sound_N = _times(spans)
        wanted_N = code_N != _LEFT_OUT
        self.dropped += int((wanted_N & ~sound_N).sum())
        wanted_N &= sound_N
        for rows, gather, into in (
            (np.flatnonzero(wanted_N & (code_N < _WORK)), self._calls, self.calls),
            (np.flatnonzero(wanted_N & (code_N >= _WORK)), self._device, self.work),
        ):
            if rows.size:
                start = start_N[rows]
                chosen = [spans[row] for row in rows.tolist()]
                into.append([start, start + length_N[rows], code_N[rows], *gather(chosen)])

    def left_out(self, category: str) -> bool:
        """Whether spans of *category* are neither calls nor device work."""
        return self.codes[category] == _LEFT_OUT

    def _calls(self, spans: list[AnySpan]) -> tuple[AnyInt, ...]:
        """Return name, thread, correlation and detail."""
        count = len(spans)
        return (
            np.fromiter(map(self.names.__getitem__, [span.name for span in spans]), np.int32, count),
            np.fromiter(map(self.threads.__getitem__, [(span.pid, span.tid) for span in spans]), np.int32, count),
            _int64s([NONE if span.args is None else span.args.correlation for span in spans]),
            np.fromiter([0 if span.args is None else self._detail(span.args) for span in spans], np.int32, count),
        )

    def _device(self, spans: list[AnySpan]) -> tuple[AnyInt, ...]:
        """Return name, device, stream, correlation, bytes, and whether the trace itself calls it a collective."""
        none = Arguments()
        arguments = [span.args or none for span in spans]
        return (
            np.fromiter(map(self.names.__getitem__, [span.name for span in spans]), np.int32, len(spans)),
            _int64s([span.pid if a.device is None else a.device for span, a in zip(spans, arguments)]),
            _int64s([span.tid if a.stream is None else a.stream for span, a in zip(spans, arguments)]),
            _int64s([a.correlation for a in arguments]),
            _int64s([_sized(a) for a in arguments]),
            np.fromiter([bool(a.collective) for a in arguments], bool, len(spans)),
        )

    def _detail(self, known: Arguments) -> int:
        if known.stack:
            return self.names[known.stack]
        if known.types is NO_JSON and known.dims is NO_JSON:
            return 0
        types, sizes = bytes(known.types), bytes(known.dims) or bytes(known.dims_2020)
        key = types + b"\n" + sizes
        number = self.details.get(key)
        if number is None:
            number = self.details[key] = self.names[_inputs(types, sizes)]
        return number

    def table(self, base_ns: int) -> tuple[Calls, Work, tuple[str, ...]]:
        """Return the calls and the work, each by start, and the names; *base_ns* is added to every time."""
        names = tuple(self.names)
        calls = self._all_calls(base_ns, names)
        return calls, self._all_work(base_ns, names, calls), names

    def _all_calls(self, base_ns: int, names: tuple[str, ...]) -> Calls:
        if not self.calls:
            return Calls.empty()
        start, end = _stacked(self.calls, 0), _stacked(self.calls, 1)
        order = np.lexsort((-end, start))
        start, end = start[order] + base_ns, end[order] + base_ns
        call, name, thread, correlation, detail = (_stacked(self.calls, column)[order] for column in range(2, 7))
        call[_matching(_RANGES, names)[name] & (call == Call.OPERATOR)] = Call.ANNOTATION
        return Calls(start, end, thread, call, name, correlation, detail)

    def _all_work(self, base_ns: int, names: tuple[str, ...], calls: Calls) -> Work:
        if not self.work:
            return Work.empty()
        start, end, code, name, device, stream, correlation, nbytes, told = (
            _stacked(self.work, column) for column in range(9)
        )
        kind = code - _WORK
        computes = kind == Device.COMPUTE
        kind[computes & (_matching(_COLLECTIVES, names)[name] | told)] = Device.COLLECTIVE
        kind[computes & _matching(_DEVICE_COPIES, names)[name]] = Device.COPY
        order = np.argsort(start, kind="stable")
        order = order[~_matching(_DEVICE_MARKS, names)[name[order]]]
        start, correlation = start[order] + base_ns, correlation[order]
        return Work(
            start, end[order] + base_ns, device[order], stream[order], kind[order].astype(np.uint8),
            name[order].astype(np.int32), correlation, launches(calls, start, correlation), nbytes[order],
        )  # fmt: skip


def launches(calls: Calls, start_W: NDArray[np.int64], correlation_W: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the row of the runtime call that launched each piece of work, or NONE.

    One call may launch many (a replayed graph). Where several calls share a correlation (a command's parts on MTIA) it
    is the last that began before the work, or the first of all.
    """
    rows = np.flatnonzero((calls.call == Call.RUNTIME) & (calls.correlation != NONE))
    rows = rows[np.argsort(calls.correlation[rows], kind="stable")]  # of one correlation the earlier first
    joined = np.flatnonzero(np.isin(correlation_W, calls.correlation[rows]) & (correlation_W != NONE))
    first = np.searchsorted(calls.correlation[rows], correlation_W[joined])
    # runtime calls and work in one line, by correlation and start: what launched is the last call met so far
    number = np.concatenate((calls.correlation[rows], correlation_W[joined]))
    line = np.lexsort((np.arange(number.size), np.concatenate((calls.start_ns[rows], start_W[joined])), number))
    met = np.maximum.accumulate(np.where(line < rows.size, line, -1))
    last = np.full(number.size, -1)
    last[line] = met
    launched = np.full(start_W.size, NONE, np.int32)
    launched[joined] = rows[np.maximum(last[rows.size :], first)]
    return launched


def _times(spans: list[AnySpan]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return start and length in ns, and whether both are times."""
    count = len(spans)
    if count and type(spans[0]) is ExactSpan:
        pairs = [(_exact_ns(span.ts, FARTHEST_US), _exact_ns(span.dur, LONGEST_US)) for span in spans]
        sound_N = np.fromiter([s is not None and n is not None and n >= 0 for s, n in pairs], bool, count)
        start_N = np.fromiter([start or 0 for start, _ in pairs], np.int64, count)
        return start_N, np.fromiter([length or 0 for _, length in pairs], np.int64, count), sound_N
    at_N = np.fromiter([span.ts for span in spans], np.float64, count)
    long_N = np.fromiter([span.dur for span in spans], np.float64, count)
    with np.errstate(invalid="ignore"):
        sound_N = (np.abs(at_N) <= FARTHEST_US) & (long_N >= 0) & (long_N <= LONGEST_US)
    return _ns(np.where(sound_N, at_N, 0)), _ns(np.where(sound_N, long_N, 0)), sound_N


def _ns(us: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return microseconds as nanoseconds, exactly, as the whole part and the fraction each are."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def _exact_ns(us: object, most: float) -> int | None:
    number: float = us  # type: ignore[assignment]
    return round(number * 1000) if -most <= number <= most else None


def _int64s(values: list[Number]) -> NDArray[np.int64]:
    """Return whole numbers, NONE for what is none; a text counts by its last number, as ``stream 7``."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Number) -> int:
    if isinstance(value, str):
        digits = re.search(r"(0x[0-9a-fA-F]{1,15}|\d{1,18})\D*$", value)
        value = int(digits[1], 0 if digits[1][:2] == "0x" else 10) if digits else NONE
    elif isinstance(value, float):
        value = int(value) if abs(value) < 2**62 else NONE
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else NONE


def _sized(known: Arguments) -> Number:
    """Return the bytes of a copy, or of the larger side of a collective."""
    if known.bytes is not None:
        return known.bytes
    if known.sent is None and known.received is None:
        return NONE if known.size is None else known.size
    elements = max(_integer(known.sent), _integer(known.received))
    kind = (known.dtype or "").lower()
    width = 1 if kind.startswith("float8") else _BYTES_OF.get(kind)
    return elements * width if width and 0 <= elements < 2**59 else NONE


def _inputs(types: bytes, sizes: bytes) -> str:
    """Return the inputs of an operator as ``[["float", [64, 128]], ...]``, "" where nothing was recorded."""
    try:
        kinds, shapes = json.loads(types or b"[]"), json.loads(sizes or b"[]")
    except (ValueError, RecursionError):
        return ""
    if not isinstance(kinds, list) or not isinstance(shapes, list):
        return ""
    if not any(shapes) and all(kind in ("", "Scalar") for kind in kinds):  # the sizes were not recorded
        return ""
    pairs = [[kind or "", shape or []] for kind, shape in zip_longest(kinds, shapes)]
    return json.dumps(pairs)


def _stacked(pieces: list[list[AnyInt]], column: int) -> Any:
    """Return one column of all pieces, which give it up."""
    stacked = np.concatenate([piece[column] for piece in pieces])
    for piece in pieces:
        piece[column] = _GIVEN
    return stacked


def _matching(pattern: re.Pattern[str], names: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.fromiter([bool(pattern.search(name)) for name in names], bool, len(names))
