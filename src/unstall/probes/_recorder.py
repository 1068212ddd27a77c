"""The recorder of one process: the accounting, the rows it closes and the file they go to."""

from __future__ import annotations

import functools
import json
import os
import struct
import sys
import threading
import time
from array import array
from collections.abc import Callable
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING

from unstall.model import wire
from unstall.model.exclusive import MOST_MARKS
from unstall.model.wire import Activity, Frame, Phase, cell
from unstall.probes._accounting import Accounting
from unstall.probes._limits import Limits

if TYPE_CHECKING:
    from unstall.probes.loaders import Loaders
    from unstall.probes.trial.capture import Losses

DETAILED_STEPS = 4000  # steps recorded one by one; later only in windows, so that a long run stays small
WINDOW_NS, EVERY_NS = 20_000_000_000, 200_000_000_000  # one window of single steps in every so much time
ROLLED_NS = 1_000_000_000  # outside the windows a row covers at least this much
FLUSH_NS = 200_000_000  # a killed process loses at most this much, and the step it was in; a write takes it 50 to 90 us
EARLY_STEPS, EARLY_NS = 64, 50_000_000  # it writes so often at first: a training that soon dies is to be told of
MOST_SPANS = 200_000  # 33 bytes each: 6.6 MB a process
IN_BETWEEN = cell(Phase.BETWEEN, Activity.UNKNOWN)
BETWEEN = int(Phase.BETWEEN)  # a plain number: an enumeration's member costs a call of Python code in 3.11
TELL_EVERY = 32  # backward passes after the first ones: the probes hear of one in so many
# Of which steps' ends the probes hear: of each until, then of one in so many, and from then on seldom.
LOOKS_UNTIL, LOOKS_EVERY, SELDOM_FROM, LOOKS_SELDOM = 32, 8, 512, 32


@functools.lru_cache(maxsize=4096)
def _row_struct(numbers: int) -> struct.Struct:
    return struct.Struct(f"{wire.HEAD.format}{numbers}q")


def _packed(
    first: int,
    steps: int,
    closer: int,
    flags: int,
    start: int,
    end: int,
    cpu: int,
    spent: dict[int, int],
    marks: list[int],
) -> bytes:
    """Return the frame of a row: *spent* ns by cell, *marks* as `Accounting.marks`."""
    if len(marks) >= MOST_MARKS:  # a long evaluation between two steps
        marks = []
    head = (first, steps, closer, flags, start, end, cpu, len(spent), len(marks) // 2)
    row = _row_struct(wire.ROW_HEAD + 2 * len(spent) + len(marks))
    return row.pack(Frame.ROW, row.size - wire.HEAD.size, *head, *spent, *spent.values(), *marks)


def _events_packed(begun: int, base: int, cpu: int, cuts: list[int], noted: list[int]) -> bytes:
    """Return the frame of *noted* events, rows from base to base, whose ends are *cuts*."""
    numbers = array("q", [begun, base, cpu, len(cuts) // wire.CUT_FIELDS, *cuts, *noted])
    if sys.byteorder == "big":
        numbers.byteswap()
    return wire.HEAD.pack(Frame.EVENTS, 8 * len(numbers)) + numbers.tobytes()


def _spans_packed(spans: list[tuple[int, int, int, int, str, int]], text: Callable[[str], int]) -> bytes:
    """Return the frame of *spans*, each (kind, step, start, end, name, value); *text* numbers a name."""
    pack = wire.SPAN.pack
    packed = [pack(kind, step, start, end, text(name), value) for kind, step, start, end, name, value in spans]
    return wire.HEAD.pack(Frame.SPANS, wire.SPAN.size * len(spans)) + b"".join(packed)


class Recorder:
    """What this process does, as far as the probes tell.

    Attributes:
        config: the launcher's config.json.
        accounting: the training thread's exclusive-time stack.
        without: probes that are not wanted.
        thread: identifier of the training thread.
        step: steps closed so far.
        begun: whether the loop has begun: a batch was taken, or a forward made with gradients.
        detailed: whether single steps and spans are being written now.
        flags: `wire.PROFILED` while what is recorded is not to enter statistics.
        role: "main", "forked" (a child by fork that has not trained yet), "worker".
        saw_batch: hears of the arguments of a forward with gradients while *wants_batch*; set by who looks for where they
            come from.
        at_backward: hear of the arguments of a backward pass: of each of the first, then of one in *tell_every*.
        at_end: are called once, the last one first, before the recording ends in good order; what each returns is gathered
            in *captured*. The training may still be stopped at a step then, or have ended by itself.
    """

    when: Callable[[str, Callable[[ModuleType], None]], None]
    loaders: Loaders | None = None  # set by the probe of the loaders
    losses: Losses | None = None  # set by the probe that captures them
    tell_every = TELL_EVERY
    saw_batch: Callable[[tuple[object, ...], dict[str, object]], None] | None = None

    def __init__(self, recording: str, injected_ns: int) -> None:
        self.recording = recording
        with open(os.path.join(recording, "config.json"), encoding="utf-8") as file:
            self.config: dict[str, object] = json.load(file)
        self.at_step: list[tuple[Probe, Callable[[int], None]]] = []
        self.at_backward: list[tuple[Probe, Callable[..., None]]] = []
        self.at_end: list[tuple[Probe, Callable[[], dict[str, object]]]] = []
        self.in_child: list[Callable[[], None]] = []  # called in a forked child, by probes that hold a state
        without = self.config.get("without")
        self.without = frozenset(without) if isinstance(without, list) else frozenset()
        self.said: set[str] = set()
        self.limits = Limits(self.config, recording, injected_ns)
        self._begin(injected_ns, "main")
        cpu = min(time.thread_time_ns(), max(0, time.monotonic_ns() - injected_ns))
        # Imports up to torch's: no sampler was there yet, so the CPU clock tells running from waiting for the disk.
        self.accounting.add(cell(Phase.STARTUP, Activity.PYTHON), cpu)
        self.accounting.add(cell(Phase.STARTUP, Activity.IO), max(0, time.monotonic_ns() - injected_ns - cpu))

    def _begin(self, origin_ns: int, role: str) -> None:
        self.role = role
        self.origin_ns = origin_ns
        self.thread = threading.get_ident()
        self.accounting = Accounting(origin_ns)
        self.step = 0
        self._next_look = 1  # step whose end the probes hear of
        self.detailed = True
        self.flags = 0
        self.ended = False
        self.told_end = False
        self.captured: dict[str, object] = {}
        self.trains = False
        self.begun = False
        self.wants_batch = True
        self.claimed = False  # a backward pass or an optimizer step has shown which thread trains
        self.loop_steps = (
            0  # steps closed by the optimizer that closes; alike on every rank, unlike `step` after a fork
        )
        self.closer: int | None = None  # the optimizer that closes steps; BACKWARD_CLOSES where none does
        self._row_start = origin_ns
        self._pending: list[bytes] = []
        self._spans: list[tuple[int, int, int, int, str, int]] = []
        self._span_count = 0
        # `wire.CUT_FIELDS` numbers for each row that was cut and is not settled, the last one whether `detailed`
        self._cut: list[int] = []
        self._rolled = 0
        self._flushed = origin_ns
        self._cpu = self._settled_cpu = 0
        self._rolled_spent: dict[int, int] = {}
        self._writer: wire.Writer | None = None

    # ------------------------------------------------------------ this process

    def announce(self) -> None:
        """Say who this process is, and that it imported torch; write the file's head."""
        try:
            self._open()
        except OSError as error:
            self._lose(error)
        if self.role != "worker":
            self._note("torch")
        import atexit

        atexit.register(self.end)

    def _open(self) -> wire.Writer:
        """Return the file of this process, made with its head the first time.

        Raises:
            OSError: When it cannot be made or its head cannot be written.
        """
        if self._writer is None:
            torch = sys.modules.get("torch")
            self._writer = wire.Writer(os.path.join(self.recording, f"{os.getpid()}-{self.origin_ns}.wire"))
            env = os.environ
            self._writer.json(
                Frame.HELLO,
                {
                    "pid": os.getpid(),
                    "ppid": os.getppid(),
                    "role": self.role,
                    "origin_ns": self.origin_ns,
                    "thread": threading.get_native_id(),
                    "python": sys.version.split()[0],
                    "torch": getattr(torch, "__version__", None),
                    "rank": env.get("RANK"),
                    "local_rank": env.get("LOCAL_RANK"),
                    "world_size": env.get("WORLD_SIZE"),
                    "argv": sys.argv,
                },
            )
        return self._writer

    def _note(self, folder: str, **more: object) -> None:
        record = {"pid": os.getpid(), "thread": threading.get_native_id(), "role": self.role, **more}
        try:
            with open(os.path.join(self.recording, folder, str(os.getpid())), "w", encoding="utf-8") as file:
                json.dump(record, file)
        except OSError as error:
            self._lose(error)

    def reset_in_child(self) -> None:
        """Forget the parent's state in a forked child; it stays silent until it trains or loads."""
        self._writer = None  # the parent's descriptor stays open here, unused: it is the parent's file
        self._begin(time.monotonic_ns(), "forked")
        for reset in self.in_child:
            reset()

    def become_worker(self, worker: int) -> None:
        """Take this process for a data worker."""
        self.role = "worker"
        self._note("torch", worker=worker)
        self._note("trains", worker=worker)

    def mine(self) -> bool:
        """Return whether the caller is the training thread; adopt the thread that trains if no step was closed yet."""
        return threading.get_ident() == self.thread

    def adopt(self) -> bool:
        """Make the calling thread the training thread, where none that is still alive has trained so far.

        A forked child becomes a training process of its own here.
        """
        if threading.get_ident() != self.thread:
            if self.claimed and any(thread.ident == self.thread for thread in threading.enumerate()):
                if self.say("two threads train in one process; only the first one is recorded"):
                    self.fact({"second_thread": True})
                return False
            self._settle()
            self.thread, self._cpu = threading.get_ident(), time.thread_time_ns()
            self._settled_cpu = self._cpu
            self.accounting.leave(1)
            self.fact({"thread": threading.get_native_id()})
        if self.role == "forked":
            self.role = "main"
            self._note("torch")
        return True

    def _end_with_child(self) -> None:
        """Arrange for `end` in a child of multiprocessing, which runs finalizers as it ends, and no atexit callbacks.

        Not earlier than at the first step: the child forgets all finalizers after it has imported the main module.
        """
        from multiprocessing import process, util

        if process.parent_process() is not None:
            util.Finalize(None, self.end, exitpriority=-100)

    # ------------------------------------------------------------ what probes report

    def fact(self, facts: dict[str, object]) -> None:
        """Report *facts*; those of a loop that trains are written with its next rows."""
        if self.role != "forked":
            later = self.trains and get_ident() == self.thread
            (self.write_later if later else self.write)(Frame.FACTS, json.dumps(facts, default=str).encode())

    def write(self, kind: int, payload: bytes) -> None:
        """Append a frame, unless the recording has ended; where it cannot be written, it ends here."""
        if self.ended:
            return
        try:
            self._open().frame(kind, payload)
        except OSError as error:
            self._lose(error)

    def write_later(self, kind: int, payload: bytes) -> None:
        """Append a frame with the next rows: no system call now."""
        if not self.ended:
            self._pending.append(wire.HEAD.pack(kind, len(payload)) + payload)

    def text(self, text: str) -> int:
        """Return the id of *text* in the file; 0 once the recording has ended."""
        try:
            return 0 if self.ended else self._open().text(text)
        except OSError as error:
            self._lose(error)
            return 0

    def _lose(self, error: OSError) -> None:
        """Record no more, say so once, and let the training go on."""
        self.ended = True
        self.say(f"the recording ends here, the training goes on: {error.strerror or error} ({self.recording})")
        lost = os.path.join(self.recording, f"lost-{os.getpid()}-{error.errno or 5}")  # EIO
        try:  # for the report: an empty file needs no room on a full disk
            os.close(os.open(lost, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except OSError:
            pass

    def span(self, kind: int, start: int, end: int, name: str = "", value: int = 0, *, rare: bool = False) -> None:
        """Record a span on the training thread's lane; *rare* ones are kept outside the detailed windows too."""
        if (self.detailed or rare) and self._span_count < MOST_SPANS and not self.ended:
            self._span_count += 1
            self._spans.append((kind, self.step, start, end, name, value))

    def say(self, message: str) -> bool:
        """Say *message* on stderr, once; return whether this was the first time."""
        if message in self.said:
            return False
        self.said.add(message)
        try:
            sys.stderr.write(f"unstall: {message}\n")
        except Exception:  # the training closed or replaced it
            pass
        return True

    # ------------------------------------------------------------ steps

    def _stop(self, because: str) -> None:
        """End the training here, as `sys.exit(0)` in its own code would: its ``finally`` blocks run."""
        self._tell_end()
        self.write(Frame.STEPPED_DOWN, json.dumps({"because": because, "step": self.loop_steps}).encode())
        self.flush()
        raise SystemExit(0)

    def claim(self) -> None:
        """Take this thread for the one that trains: a backward pass or an optimizer step was made on it."""
        if self.role == "forked":
            self.adopt()
        self.claimed = True
        self.begin_loop()

    def begin_loop(self) -> None:
        """End the start-up here, at the first batch or forward with gradients."""
        if not self.begun:
            self.begun = True
            self._row(0, wire.ENDS_OUTSIDE)
            self.accounting.set_base(BETWEEN)

    def unwind(self) -> None:
        """Close all that is open on the training thread's stack."""
        self.accounting.leave(1)

    def close_step(self, closer: int, depth: int = 0) -> None:
        """End a step here; *closer* is the optimizer's number, or BACKWARD_CLOSES, *depth* as `Accounting.cut` takes it."""
        if not self.ended:
            if not self.trains:
                self._first_step()
            self.step += 1
            self._row(1, closer, depth)
            if self.accounting.base != IN_BETWEEN:
                self.accounting.set_base(BETWEEN)
            if self.step >= self._next_look:
                self._tell_step()
        elif depth:
            self.accounting.leave(depth)
        if closer == self.closer:
            self.loop_steps += 1
            if self.limits.any and (because := self.limits.reached(self.loop_steps)):
                self._stop(because)

    def _first_step(self) -> None:
        self.trains = True
        self._note("trains", rank=os.environ.get("RANK"))
        self._end_with_child()

    def look_next(self) -> None:
        """Have the probes hear of the end of the next step; for one that hears of a step now."""
        self._next_look = self.step + 1

    def _tell_step(self) -> None:
        every = 1 if self.step < LOOKS_UNTIL else LOOKS_EVERY if self.step < SELDOM_FROM else LOOKS_SELDOM
        self._next_look = self.step - self.step % every + every
        for probe, act in self.at_step:
            if probe.on:
                with probe:
                    act(self.step)

    def _tell_end(self) -> None:
        if not self.told_end:
            self.told_end = True
            for probe, act in reversed(self.at_end):
                if probe.on:
                    with probe:
                        self.captured.update(act())

    def _row(self, steps: int, closer: int, depth: int = 0) -> None:
        if get_ident() == self.thread:
            self._cpu = time.thread_time_ns()
        self._cut += (self.step, steps, closer, self.flags, self._cpu, self.detailed)
        now = self.accounting.cut(depth)
        if self.step > DETAILED_STEPS:
            self.detailed = (now - self.origin_ns) % EVERY_NS < WINDOW_NS
        if now - self._flushed > (FLUSH_NS if self.step > EARLY_STEPS else EARLY_NS):
            self.flush(now)

    def _settle(self) -> None:
        """Make frames of what was noted, for many steps at once: of all of it as it is, or of rows."""
        cuts, self._cut = self._cut, []
        if (
            cuts
            and not self._rolled
            and all(cuts[wire.CUT_FIELDS - 1 :: wire.CUT_FIELDS])
            and (taken := self.accounting.take())
        ):
            begun, base, noted = taken
            self._pending.append(_events_packed(begun, base, self._settled_cpu, cuts, noted))
            self._row_start, self._settled_cpu = self.accounting.settled.last, cuts[-2]
            return
        numbers = iter(cuts)
        each = zip(*[numbers] * wire.CUT_FIELDS, strict=True)
        for (end, spent, marks), (step, steps, closer, flags, cpu, detailed) in zip(self.accounting.rows(), each):
            if detailed and not self._rolled:
                self._pend(step - steps, steps, closer, flags, end, cpu, spent, marks)
                continue
            self._rolled += steps
            for number, ns in spent.items():
                self._rolled_spent[number] = self._rolled_spent.get(number, 0) + ns
            if end - self._row_start >= ROLLED_NS or detailed or closer == wire.ENDS_OUTSIDE:
                self._pend(step - self._rolled, self._rolled, closer, flags, end, cpu, self._rolled_spent, [])
                self._rolled, self._rolled_spent = 0, {}

    def _pend(
        self,
        first: int,
        steps: int,
        closer: int,
        flags: int,
        end: int,
        cpu: int,
        spent: dict[int, int],
        marks: list[int],
    ) -> None:
        taken = max(0, cpu - self._settled_cpu)
        self._pending.append(_packed(first, steps, closer, flags, self._row_start, end, taken, spent, marks))
        self._row_start, self._settled_cpu = end, cpu

    def flush(self, now: int | None = None) -> None:
        """Write what is pending."""
        self._settle()
        spans, self._spans = self._spans, []
        pending, self._pending = self._pending, []
        if (spans or pending) and not self.ended:
            try:
                writer = self._open()
                if spans:
                    pending.insert(0, _spans_packed(spans, writer.text))
                writer.raw(b"".join(pending))
            except OSError as error:
                self._lose(error)
        self._flushed = now or time.monotonic_ns()

    def end(self) -> None:
        """Write the rest of the time and the end mark; called when the process ends in good order."""
        if self.ended or self.role not in ("main",):
            return
        self._tell_end()
        self._row(0, wire.ENDS_OUTSIDE)
        self.flush()
        self.write(Frame.BYE, json.dumps({"at_ns": self._row_start}).encode())
        self.ended = True


class Probe:
    """A probe's switch: on until it errs.

    Attributes:
        on: False once it has switched itself off.
    """

    def __init__(self, name: str, recorder: Recorder) -> None:
        self.name = name
        self.recorder = recorder
        self.on = True

    def switch_off(self, error: Exception) -> None:
        """Record nothing more of this signal, say so once, and let the training go on."""
        if self.on:
            self.on = False
            reason = f"{type(error).__name__}: {error}"
            self.recorder.say(f"probe {self.name} switched itself off, the training goes on: {reason}")
            self.recorder.write(Frame.TROUBLE, json.dumps({"probe": self.name, "error": reason}).encode())

    def guard(self) -> Probe:
        """Return a context that switches the probe off where its body errs; entered several times a step."""
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self.switch_off(error)
            return True
        return False
