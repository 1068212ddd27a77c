"""Pass on the signals that unstall gets, so that the training gets each exactly once.

The training runs in our process group.  Ctrl-C in a terminal, ``kill -TERM -GROUP`` and
timeout(1) reach it by themselves; ``kill -TERM unstall`` does not.  The two look the same from
a Python handler, so a canary sits in the same group: a ``cat`` that reads a pipe of ours, and dies of any signal
to the group.  It dies with us too, for then its pipe closes.  It costs one sleeping process of 1 MB.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from types import FrameType, TracebackType

PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
_CANARY_WAIT_S = 0.05  # a signal to the group is pending in the canary at once; this is for a busy machine


class Relay:
    """Takes signals in the main thread while it is entered; `deliver` passes on what has come.

    A signal that was ignored when we started (nohup, a background job) is left ignored, for us and for the training.

    Attributes:
        got: the numbers of the signals received, in order.
        wake_fd: readable when one has come.
    """

    def __init__(self) -> None:
        self.got: list[int] = []
        self.wake_fd, self._wake_end = os.pipe()
        os.set_blocking(self.wake_fd, False)
        self._before: dict[int, object] = {}
        self._canary: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Relay:
        if threading.current_thread() is threading.main_thread():
            for number in PASSED_ON:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._take)
            self._canary = _canary()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        _end(self._canary)
        os.close(self.wake_fd)
        os.close(self._wake_end)

    @property
    def helper_pids(self) -> set[int]:
        return {self._canary.pid} if self._canary else set()

    def deliver(self, child: subprocess.Popen[bytes]) -> int:
        """Pass on to *child* what has come and did not reach its group.  Return how many signals had come."""
        numbers = self._taken()
        for number in dict.fromkeys(numbers):
            if not self._reached_group(number):
                _send(child, number)
            else:  # one signal may be sent to us and then to the group, as timeout(1) does
                numbers += [n for n in self._taken() if n != number]
        self.got += numbers
        return len(numbers)

    def _take(self, number: int, frame: FrameType | None) -> None:
        os.write(self._wake_end, bytes([number]))

    def _taken(self) -> list[int]:
        try:
            return list(os.read(self.wake_fd, 64))
        except BlockingIOError:
            return []

    def _reached_group(self, number: int) -> bool:
        """Return whether the canary got the signal too; if so there is a new canary."""
        if self._canary is None:  # no cat: what a terminal sends is what reaches the group
            return number in (signal.SIGINT, signal.SIGQUIT) and os.isatty(0)
        until = time.monotonic() + _CANARY_WAIT_S
        while not (died := self._canary.poll() is not None or _is_dying(self._canary.pid)):
            if time.monotonic() >= until:
                break
            time.sleep(0.002)
        if died:
            _end(self._canary)
            self._canary = _canary()
        return died


def _canary() -> subprocess.Popen[bytes] | None:
    quiet = subprocess.DEVNULL
    try:
        return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, cwd="/")
    except OSError:
        return None


def _end(canary: subprocess.Popen[bytes] | None) -> None:
    if canary is not None:
        canary.kill()
        canary.wait()
        if canary.stdin:
            canary.stdin.close()


def _is_dying(pid: int) -> bool:
    """Return whether a fatal signal is pending in *pid*, which a busy machine has not let die yet."""
    fatal = 1 << (signal.SIGKILL - 1)  # the kernel marks a process that a signal ends with SIGKILL
    for number in PASSED_ON:
        fatal |= 1 << (number - 1)
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            pending = [line for line in file if line.startswith(("SigPnd:", "ShdPnd:"))]
    except OSError:
        return False
    return any(int(line.split()[1], 16) & fatal for line in pending)


def _send(child: subprocess.Popen[bytes], number: int) -> None:
    try:
        child.send_signal(number)
    except ProcessLookupError:
        pass
