"""Sample the stacks of the training from outside, with py-spy.

A process that trains gets three samplers a window; a data worker one:

    stacks-PID-N.all.json    every thread, idle ones too: chrometrace, ``ts`` in us since ``spawn_ns``
    stacks-PID-N.gil.txt     holders of the interpreter lock: raw
    stacks-PID-N.active.txt  threads on a CPU: raw
    stacks-PID-N.json        {"pid", "thread", "role", "spawn_ns", "hz", "gil_hz", "active_hz", "seconds", "part"}

``spawn_ns`` is `time.monotonic_ns` just before the start of the ``all`` sampler, whose own clock starts a few ms
later.  The outermost frame of every stack is ``thread (TID): NAME`` with the native id (before Python 3.11
the thread's address, in hexadecimal).  A raw line is
``frame;frame;... COUNT``, a frame ``function (file:line)``.  A worker's ``all`` leaves idle samples out.

py-spy writes when it ends, so samples are taken in windows: the first is of 30 s at 100, 50 and 50 a second, the
others of 60 s at 25, 20 and 20; one after the other for the first ten minutes of a process, then one at the start of
each ten minutes.  A data worker gets one window, and at most 32 workers do.

Measured at a small MLP on 2 cores: 0.017 s CPU a second for the three samplers of a process, and 3 MB a window, so
some 33 MB in the first ten minutes and 18 MB in each hour after them, a process; deeper stacks take more.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from unstall.launch.monitor import process_cpu_ns
from unstall.launch.recording import write_json

WINDOW_S = 60
DENSE_S = 600  # windows without gaps for so long, then one each so often
MOST_PROCESSES = 16  # sampled as trainers at once; a machine with more ranks shows the same on any of them
MOST_WORKERS = 32  # windows of data workers; each epoch may bring a new one
_RETRY_NS = 500_000_000
_COMMON = ("--nonblocking", "-t", "--full-filenames")


@dataclass(frozen=True, slots=True)
class Rates:
    """Samples a second of a window, and its length.

    Attributes:
        hz: of all stacks; gil_hz: of lock holders; active_hz: of threads on a CPU.
    """

    hz: int
    gil_hz: int
    active_hz: int
    seconds: int

    def options(self, role: str) -> dict[str, tuple[str, ...]]:
        """Return the samplers' options by the file that each writes."""
        if role == "worker":
            return {"all.json": ("-f", "chrometrace", "-r", str(self.hz))}
        return {
            "all.json": ("-i", "-f", "chrometrace", "-r", str(self.hz)),
            "gil.txt": ("--gil", "-f", "raw", "-r", str(self.gil_hz)),
            "active.txt": ("-f", "raw", "-r", str(self.active_hz)),
        }


FIRST = Rates(100, 50, 50, 30)  # many short runs are over within it, and 25 a second leave a line of theirs one sample
LATER = Rates(25, 20, 20, WINDOW_S)


@dataclass(slots=True)
class _Sampler:
    """One py-spy process and what it says on stderr."""

    process: subprocess.Popen[bytes]
    errors: Path
    cpu_ns: int = 0

    def has_ended(self) -> bool:
        if self.process.returncode is None:  # read before the status is taken: then it is gone
            self.cpu_ns = process_cpu_ns(self.process.pid) or self.cpu_ns
        return self.process.poll() is not None


@dataclass(slots=True)
class _Target:
    """A process that is being sampled."""

    pid: int
    thread: int
    role: str
    attached_ns: int
    window: int = -1
    next_ns: int = 0
    failed: set[int] = field(default_factory=set)
    samplers: list[_Sampler] = field(default_factory=list)


class Stacks:
    """The samplers of a run; `attach` adds a process, `tick` is called often, `finish` ends them.

    Attributes:
        refused: why stacks could not be sampled from outside, or None.
        notes: what was left out, in words.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._targets: dict[int, _Target] = {}
        self._workers = 0
        self._spent_ns = 0
        self.refused: str | None = None
        self.notes: list[str] = []
        self._binary = find_binary()
        if self._binary is None:
            self._refuse("py-spy was not found beside unstall's Python, nor on PATH")

    def attach(self, pid: int, thread: int, role: str, now_ns: int) -> None:
        """Sample *pid* from now on; nothing where it is sampled already or sampling was refused."""
        if self.refused is not None or pid in self._targets:
            return
        worker = role == "worker"
        if worker and self._workers >= MOST_WORKERS:
            self._note(f"stacks of more than {MOST_WORKERS} data workers")
            return
        if not worker and sum(1 for t in self._targets.values() if t.samplers and t.role != "worker") >= MOST_PROCESSES:
            self._note(f"stacks of more than {MOST_PROCESSES} processes at once")
            return
        self._workers += worker
        self._targets[pid] = _Target(pid, thread, role, now_ns)
        self._open(self._targets[pid], now_ns)

    def attached(self, pid: int) -> bool:
        return pid in self._targets

    def tick(self, now_ns: int, trainers: set[int]) -> None:
        """Look after the samplers: refusals, the next window of those in *trainers* (of all where it is empty)."""
        for target in list(self._targets.values()):
            if self.refused is not None:
                return
            self._look(target, now_ns)
            wanted = target.role != "worker" and (not trainers or target.pid in trainers)
            if now_ns >= target.next_ns and (wanted or target.failed == {target.window}):
                self._open(target, now_ns)

    def finish(self, wait_s: float = 2.0) -> None:
        """Let the samplers write and end: they do by themselves when their process has, else they are told to."""
        self._wait(wait_s)
        for sampler in self._running():
            sampler.process.send_signal(signal.SIGINT)
        self._wait(1.0)
        for sampler in self._running():
            sampler.process.kill()
        self._wait(1.0)
        for target in self._targets.values():
            self._look(target, time.monotonic_ns())
        for left in self._folder.glob("stacks-*.err"):
            left.unlink(missing_ok=True)

    @property
    def pids(self) -> set[int]:
        """The samplers' own pids."""
        return {s.process.pid for t in self._targets.values() for s in t.samplers}

    @property
    def cpu_ns(self) -> int:
        """CPU time of all samplers so far, ns."""
        return self._spent_ns + sum(s.cpu_ns for t in self._targets.values() for s in t.samplers)

    def _open(self, target: _Target, now_ns: int) -> None:
        """Start the samplers of the next window."""
        target.window += 1
        target.next_ns = now_ns + (
            _gap_ns(now_ns - target.attached_ns) if target.window else FIRST.seconds * 1_000_000_000
        )
        stem = f"stacks-{target.pid}-{target.window}"
        spawn_ns = time.monotonic_ns()
        rates = FIRST if target.window == 0 else LATER
        try:
            for part, options in rates.options(target.role).items():
                target.samplers.append(self._start(target.pid, f"{stem}.{part}", (*options, "-d", str(rates.seconds))))
            write_json(self._folder / f"{stem}.json", _sidecar(target, spawn_ns, rates))
        except OSError as error:
            self._refuse(f"py-spy cannot be started: {error.strerror}")

    def _start(self, pid: int, name: str, options: tuple[str, ...]) -> _Sampler:
        assert self._binary is not None
        errors = self._folder / f"{name}.err"
        argv = [self._binary, "record", "-p", str(pid), *_COMMON, *options]
        argv += ["-o", str(self._folder / name)]
        with open(errors, "wb") as out:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=out,
                start_new_session=True,  # Ctrl-C is for the training
            )
        return _Sampler(process, errors)

    def _look(self, target: _Target, now_ns: int) -> None:
        """Take the samplers that have ended, and what they said."""
        for sampler in [s for s in target.samplers if s.has_ended()]:
            target.samplers.remove(sampler)
            self._spent_ns += sampler.cpu_ns
            said = sampler.errors.read_text("utf-8", "replace") if sampler.errors.exists() else ""
            sampler.errors.unlink(missing_ok=True)
            if sampler.process.returncode > 0 and _is_alive(target.pid):
                self._failed(target, said, now_ns)

    def _failed(self, target: _Target, said: str, now_ns: int) -> None:
        """A sampler could not read a process that lives: unless that is forbidden try one window more, then give up."""
        target.failed.add(target.window)
        if _is_forbidden(said) or len(target.failed) > 1:
            self._refuse(_why(said))
        target.next_ns = now_ns + _RETRY_NS

    def _refuse(self, why: str) -> None:
        if self.refused is None:
            self.refused = why
            try:
                (self._folder / "stacks-refused").write_text(why + "\n", "utf-8")
            except OSError:
                pass

    def _running(self) -> list[_Sampler]:
        return [s for t in self._targets.values() for s in t.samplers if not s.has_ended()]

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._running() and time.monotonic() < until:
            time.sleep(0.01)

    def _note(self, what: str) -> None:
        if what not in self.notes:
            self.notes.append(what)


def find_binary() -> str | None:
    """Return the py-spy that was installed with us, else the one on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def _gap_ns(age_ns: int) -> int:
    """Return how long after a window's start the next one starts, for a process attached *age_ns* ago."""
    dense = age_ns + WINDOW_S * 1_000_000_000 < (DENSE_S + WINDOW_S // 2) * 1_000_000_000
    return (WINDOW_S if dense else DENSE_S) * 1_000_000_000


def _sidecar(target: _Target, spawn_ns: int, rates: Rates) -> dict[str, object]:
    return {
        "pid": target.pid,
        "thread": target.thread,
        "role": target.role,
        "part": target.window,
        "spawn_ns": spawn_ns,
        "hz": rates.hz,
        "gil_hz": rates.gil_hz,
        "active_hz": rates.active_hz,
        "seconds": rates.seconds,
    }


def _is_forbidden(said: str) -> bool:
    return "permission denied" in said.lower() or "not permitted" in said.lower()


def _why(said: str) -> str:
    """Return the reason in words that end "not observed: ..."."""
    if _is_forbidden(said):
        scope = _ptrace_scope()
        rule = f"Yama ptrace_scope is {scope}" if scope else "the container or another user's process forbids it"
        return f"py-spy may not read the training's memory ({rule})"
    errors = [line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("Error:")]
    return f"py-spy failed: {errors[0] if errors else said.strip()[:200] or 'it ended without a word'}"


def _ptrace_scope() -> str:
    try:
        return Path("/proc/sys/kernel/yama/ptrace_scope").read_text("ascii").strip().strip("0")
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    """Return whether *pid* runs: neither gone nor a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
