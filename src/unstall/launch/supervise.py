"""Start the training with the probes in it, watch it from outside, and end cleanly.

The child runs in our process group with our stdin, stdout and stderr.  What we add to its environment is
PYTHONPATH (our ``inject`` folder in front) and UNSTALL_RECORDING.  Once it has ended, descendants of it that still
run get two seconds, then SIGTERM, and two seconds later SIGKILL.  Left alone is who daemonised on purpose: a process
in a session of its own that never imported torch.

When we are killed (SIGKILL) the direct child gets SIGTERM from the kernel on Linux, and
samplers end within a minute; a grandchild under a shell script lives on.

Measured on 2 cores: the loop takes 0.004 s CPU a second, start included, without samplers.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import unstall
from unstall.launch import descent, recording
from unstall.launch.monitor import Monitor
from unstall.launch.roster import Record, Roster
from unstall.launch.signals import Relay
from unstall.launch.stacks import Stacks
from unstall.model.errors import UnstallError
from unstall.model.wire import RECORDING

POLL_MS = 100
GRACE_S = 2.0  # for descendants after the child's end, and again after SIGTERM
KILL_AFTER_S = 10.0  # since the first signal; the third one kills from then on
STATUS_NS = 1_000_000_000
_WRITTEN = (
    "exit_code", "signal", "reap_ns", "refused", "rank_exits", "signals", "terminated", "notes", "tool_cpu_ns",
)  # fmt: skip

Status = Callable[[float, int], None]  # seconds so far, Python processes seen


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command ended, and who took part in it.

    Attributes:
        exit_code: the command's own; 128 + n where signal n ended it.
        signal: the signal that ended it, or None.
        spawn_ns, reap_ns: `time.monotonic_ns` just before its start and when it had ended.
        seen: what each Python process with the probes in it said of itself, by pid; empty when none came up.
        hellos: the same of those that imported torch.
        trains: the same of those that closed a step or made a batch.
        refused: why stacks could not be sampled from outside, or None.
        rank_exits: when each process that imported torch ended, as far as that was seen.
        signals: the signals that we received meanwhile (SIGINT of Ctrl-C, ...), in order.
        terminated: descendants that outlived the command and were ended by us.
        notes: what could not be observed, in words.
        tool_cpu_ns: CPU time of launcher and samplers during the run.
        timed_out: whether we ended it because it ran past the limit.
    """

    exit_code: int
    signal: int | None
    pid: int
    spawn_ns: int
    reap_ns: int
    seen: Mapping[int, Record]
    hellos: Mapping[int, Record]
    trains: Mapping[int, Record]
    refused: str | None
    rank_exits: Mapping[int, int]
    signals: tuple[int, ...] = ()
    terminated: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    tool_cpu_ns: int = 0
    timed_out: bool = False


def inject_folder() -> str:
    """Return the folder that holds our sitecustomize."""
    return os.path.join(os.path.dirname(os.path.abspath(unstall.__file__)), "launch", "inject")


def injected(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return *env* with the probes in it, recording to *folder*."""
    ours = inject_folder()
    others = [part for part in env.get("PYTHONPATH", "").split(os.pathsep) if part and part != ours]
    return {**env, "PYTHONPATH": os.pathsep.join([ours, *others]), RECORDING: str(folder)}


def launch(
    argv: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    *,
    cwd: str | None = None,
    status: Status | None = None,
    sampled: bool = True,
    output: Path | None = None,
    limit_s: float | None = None,
) -> Ended:
    """Run *argv* to its end, recorded to *folder*, and return how it ended.

    Args:
        argv: as `command.resolve` gives it.
        env: the environment without the probes; they are added here.
        folder: a recording folder as `recording.create` makes it; recording.json gets the times and the exit.
        status: called about once a second.
        sampled: whether stacks are read from outside.
        output: file that gets the command's stdout and stderr; its stdin is empty then. None: ours are its own.
        limit_s: the command is ended (SIGTERM, later SIGKILL) once it has run so long.
    Raises:
        UnstallError: When the command cannot be started, or *output* not be written.
    """
    own = set(descent.descendants(os.getpid()))
    descent.adopt_orphans(True)
    try:
        with Relay() as relay:
            child, spawn_ns = _spawn(argv, injected(env, folder), cwd, output)
            watch = _Watch(child, spawn_ns, folder, relay, own, status, sampled)
            watch.until_end(limit_s)
            watch.settle()
            return watch.ended()
    finally:
        descent.adopt_orphans(False)


def _spawn(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, output: Path | None
) -> tuple[subprocess.Popen[bytes], int]:
    stdin, sink = (None, None) if output is None else (subprocess.DEVNULL, _sink(output))
    spawn_ns = time.monotonic_ns()
    try:
        child = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            preexec_fn=descent.dies_with_us(),
            stdin=stdin,
            stdout=sink,
            stderr=sink,
        )
        return child, spawn_ns
    except OSError as error:
        why = "it has no #! line that names its interpreter" if error.errno == 8 else error.strerror
        raise UnstallError(f"{argv[0]} cannot be started: {why}.\nCheck that it runs without unstall.") from error
    finally:
        if sink is not None:
            os.close(sink)


def _sink(output: Path) -> int:
    try:
        return os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnstallError(f"{output} cannot be written: {error.strerror}.") from error


class _Watch:
    """Everything that goes on while the command runs, in one loop without threads."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        spawn_ns: int,
        folder: Path,
        relay: Relay,
        own: set[int],
        status: Status | None,
        sampled: bool,
    ) -> None:
        self._child, self._spawn_ns, self._folder, self._relay = child, spawn_ns, folder, relay
        self._own, self._status, self._status_ns = own, status, spawn_ns
        self._sampled, self._timed_out = sampled, False
        self._roster = Roster(folder)
        self._stacks = Stacks(folder)
        self._monitor = Monitor(folder, spawn_ns)
        self._cpu_before_ns = time.process_time_ns()
        self._exits: dict[int, int] = {}  # pid -> when it ended
        self._watched: dict[int, int] = {}  # fd -> pid
        self._poll = select.poll()
        self._poll.register(relay.wake_fd, select.POLLIN)
        self._first_signal_s: float | None = None
        self._terminated: list[int] = []
        self._notes: list[str] = []
        self._follow(child.pid)
        self._write({"pid": child.pid, "spawn_ns": spawn_ns})

    def until_end(self, limit_s: float | None) -> None:
        """Return when the child has ended and been reaped; it is made to end after *limit_s*."""
        limit_ns = None if limit_s is None else self._spawn_ns + int(limit_s * 1e9)
        while self._child.poll() is None:
            self._tick()
            if self._relay.deliver(self._child):
                self._lose_patience()
            if limit_ns is not None and time.monotonic_ns() > limit_ns:
                (self._child.kill if self._timed_out else self._child.terminate)()
                self._timed_out, limit_ns = True, limit_ns + int(KILL_AFTER_S * 1e9)
        self._exits.setdefault(self._child.pid, time.monotonic_ns())

    def settle(self) -> None:
        """End what outlives the child, then the samplers."""
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            left = self._left()
            if not left:
                break
            if number is not None:
                self._terminated += [pid for pid in left if pid not in self._terminated]
                for pid in left:
                    descent.send(pid, number)
            until = time.monotonic() + GRACE_S
            while self._left() and time.monotonic() < until:
                self._tick()
                self._relay.deliver(self._child)
        self._roster.poll()
        self._monitor.read(self._roster.measured(), self._tool_ns())
        self._monitor.close()
        self._stacks.finish()
        descent.reap_orphans(self._ours() | {self._child.pid})

    def ended(self) -> Ended:
        """Return how it ended, and write that to recording.json."""
        for fd in self._watched:
            os.close(fd)
        code = self._child.returncode
        torch = self._roster.measured()
        ended = Ended(
            exit_code=128 - code if code < 0 else code,
            signal=-code if code < 0 else None,
            pid=self._child.pid,
            spawn_ns=self._spawn_ns,
            reap_ns=self._exits[self._child.pid],
            seen=dict(self._roster.seen),
            hellos=dict(self._roster.torch),
            trains=dict(self._roster.trains),
            refused=self._stacks.refused,
            rank_exits={pid: at for pid, at in self._exits.items() if pid in torch},
            signals=tuple(self._relay.got),
            terminated=tuple(self._terminated),
            notes=(*self._monitor.unread, *self._stacks.notes, *self._notes),
            tool_cpu_ns=self._tool_ns(),
            timed_out=self._timed_out,
        )
        self._write({name: getattr(ended, name) for name in _WRITTEN})
        return ended

    def _tick(self) -> None:
        """Wait for at most a tenth of a second, then look after everything once."""
        for fd, _ in self._poll.poll(POLL_MS if hasattr(os, "pidfd_open") else POLL_MS // 10):
            if fd in self._watched:
                self._exits.setdefault(self._watched.pop(fd), time.monotonic_ns())
                self._poll.unregister(fd)
                os.close(fd)
        now_ns = time.monotonic_ns()
        self._roster.poll()
        for pid in self._roster.measured():
            self._follow(pid)
            self._sample(pid, now_ns)
        self._stacks.tick(now_ns, self._roster.trainers())
        self._monitor.tick(now_ns, self._roster.measured() - self._exits.keys(), self._tool_ns())
        if now_ns >= self._status_ns:
            self._status_ns = now_ns + STATUS_NS
            descent.reap_orphans(self._ours() | {self._child.pid})
            if self._status is not None:
                self._status((now_ns - self._spawn_ns) / 1e9, len(self._roster.seen))

    def _follow(self, pid: int) -> None:
        """Note the moment of *pid*'s end, to the ms, where the kernel tells it (Linux 5.3)."""
        if pid in self._exits or pid in self._watched.values() or not hasattr(os, "pidfd_open"):
            return
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        self._watched[fd] = pid
        self._poll.register(fd, select.POLLIN)

    def _sample(self, pid: int, now_ns: int) -> None:
        """Sample the stacks of *pid* where it is a trainer, may become one, or is the first worker of a loader."""
        if not self._sampled or pid in self._exits or self._stacks.attached(pid):
            return
        role = self._roster.role(pid)
        trains = self._roster.trains.get(pid)
        if role == "worker":
            wanted = trains is not None and trains.get("worker") == 0
        else:  # a forked process may yet become a data worker
            wanted = trains is not None or role != "forked"
        if wanted:
            self._stacks.attach(pid, self._roster.thread(pid), role, now_ns)

    def _lose_patience(self) -> None:
        """Kill the child at the third signal, when the first has had a long grace."""
        now_s = time.monotonic()
        self._first_signal_s = self._first_signal_s or now_s
        if len(self._relay.got) >= 3 and now_s - self._first_signal_s >= KILL_AFTER_S:
            self._child.kill()

    def _left(self) -> list[int]:
        """Return the descendants that are to end."""
        descent.reap_orphans(self._ours() | {self._child.pid})
        left = descent.descendants(os.getpid(), self._ours())
        torch = self._roster.measured()
        return [pid for pid in left if pid in torch or not descent.left_group(pid)]

    def _ours(self) -> set[int]:
        """Return the processes beneath us that are no part of the training."""
        return self._own | self._stacks.pids | self._relay.helper_pids

    def _tool_ns(self) -> int:
        return time.process_time_ns() - self._cpu_before_ns + self._stacks.cpu_ns

    def _write(self, known: dict[str, object]) -> None:
        try:
            recording.update(self._folder, known)
        except OSError as error:
            self._notes.append(f"recording.json cannot be written: {error.strerror}")
