"""One rank's trace with what its calls are about: of every piece of work its operator, its phase and the user's line.

Shape legend: C calls, W pieces of device work, X frames of the user's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.code import shown
from unstall.accounts.device import States
from unstall.accounts.meaning import frame, users_frame
from unstall.accounts.nesting import at_rows
from unstall.model import intervals
from unstall.model.finding import Line
from unstall.model.trace import NONE, Call, Calls, Trace, Work
from unstall.model.wire import Phase


@dataclass(frozen=True, slots=True)
class RankView:
    """A rank's trace, ready to be summed up by names.

    Attributes:
        operator: int32 (C,), name of the outermost operator that a call is or lies in; 0 (which is "") where none is.
        detail: int32 (C,), the inputs of that operator, name; 0 where they were not recorded.
        place: int32 (C,), index into *lines*: the user's innermost line at a call.
        lines: (X,), the first of them None.
        waits: intp, rows of calls on the host's threads that end when the device has done something.
        steady: bool (W,), work that begins in a steady step; work_phase: uint8 (W,), of its launch.
        work_place: int32 (W,), index into *lines*, of its launch.
    """

    trace: Trace
    states: States
    operator: NDArray[np.int32]
    detail: NDArray[np.int32]
    place: NDArray[np.int32]
    lines: tuple[Line | None, ...]
    waits: NDArray[np.intp]
    steady: NDArray[np.bool_]
    work_phase: NDArray[np.uint8]
    work_place: NDArray[np.int32]

    @property
    def calls(self) -> Calls:
        return self.trace.calls

    @property
    def work(self) -> Work:
        return self.trace.work

    @classmethod
    def of(cls, trace: Trace, states: States, project: str) -> RankView:
        """Return the view of one rank.

        Cost: O(C + W log C).
        """
        calls, work, told, host = trace.calls, trace.work, states.told, states.host
        outer = told.operator if told is not None else np.full(calls.name.size, NONE, np.int32)
        operator, detail = at_rows(outer, calls.name), at_rows(outer, calls.detail)
        detail = np.where(_matching(trace.names, "[[")[detail], detail, 0).astype(np.int32)
        texts, place = _places(trace, outer, told.frame if told is not None else outer)
        numbers = {text: n for n, text in enumerate(texts)}
        launch = work.launch
        moment = np.where(launch >= 0, at_rows(launch, calls.start_ns), work.start_ns)
        stretch = host.at(moment)
        work_place, around = at_rows(launch, place), host.frame[stretch]
        lacks = (work_place == 0) & (around >= 0)
        work_place[lacks] = place[around[lacks]]
        lines = tuple(_line(text, project) for text in numbers)
        waits = _waits(trace, states)
        steady = intervals.inside(work.start_ns, states.steady_time)
        return cls(
            trace, states, operator, detail, place, lines, waits, steady, host.phase[stretch], work_place.astype(np.int32)
        )  # fmt: skip

    def kernel_operator(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return of each piece of work the operator that launched it and that one's inputs, names; 0 for none."""
        return at_rows(self.work.launch, self.operator), at_rows(self.work.launch, self.detail)

    def stretch_place(self) -> NDArray[np.int32]:
        """Return the user's line that each stretch of the host is at, index into *lines*."""
        place = at_rows(self.states.host.call, self.place)
        return np.where(place > 0, place, at_rows(self.states.host.frame, self.place)).astype(np.int32)

    def stretch_call(self) -> NDArray[np.int32]:
        """Return what each stretch of the host calls, name: an operator, else a runtime call or a range, else 0."""
        host, told = self.states.host, self.states.told
        if told is None:
            return np.zeros(host.call.size, np.int32)
        named = np.where(
            self.operator > 0, self.operator, np.where((self.calls.call == Call.FRAME) | told.aside, 0, self.calls.name)
        )
        called = at_rows(host.call, named.astype(np.int32))
        fetches = np.unique(self.calls.name[(self.calls.call == Call.ANNOTATION) & (told.phase == Phase.FETCH)])
        if fetches.size == 1:
            called = np.where(host.phase == Phase.FETCH, fetches[0], called)
        return called.astype(np.int32)


def _matching(names: tuple[str, ...], start: str) -> NDArray[np.bool_]:
    return np.fromiter([name.startswith(start) for name in names], np.bool_, len(names))


def _places(trace: Trace, outer: NDArray[np.int32], frames: NDArray[np.int32]) -> tuple[list[str], NDArray[np.int32]]:
    """Return frames of the user's, the first of them "", and the one that each call is in: from frames that were open, or
    from the stack that was recorded with its operator."""
    calls = trace.calls
    name = at_rows(frames, calls.name)
    stacks = np.where(calls.detail > 0, calls.detail, at_rows(outer, calls.detail))
    stacks = np.where(name > 0, 0, stacks)
    texts = [""]
    number = {"": 0}
    by_name = np.zeros(max(1, len(trace.names)), np.int32)
    by_stack = by_name.copy()
    for column, table, read in ((name, by_name, str), (stacks, by_stack, users_frame)):
        for text_id in np.unique(column).tolist():
            text = read("" if trace.names[text_id].startswith("[[") else trace.names[text_id])
            if text not in number:
                number[text] = len(texts)
                texts.append(text)
            table[text_id] = number[text]
    return texts, np.where(name > 0, by_name[name], by_stack[stacks]).astype(np.int32)


def _line(text: str, project: str) -> Line | None:
    """Return the line that a frame names; not its code, since the file need not be the one that ran."""
    parts = frame(text)
    return None if parts is None else Line(shown(parts[0], project), parts[1], parts[2])


def _waits(trace: Trace, states: States) -> NDArray[np.intp]:
    """Return the calls in which the host waits for the device, on the threads that its state is made of."""
    calls, told = trace.calls, states.told
    if told is None:
        named = np.fromiter(["Synchronize" in name for name in trace.names], np.bool_, len(trace.names))
        return np.flatnonzero(named[calls.name]) if calls.name.size else np.zeros(0, np.intp)
    engines = [thread for thread, nest in told.nests.items() if told.engine[nest.row].any()]
    return np.flatnonzero(told.waits & np.isin(calls.thread, [trace.main, *engines]))
