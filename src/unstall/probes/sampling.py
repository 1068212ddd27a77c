"""Stack samples from a thread of the training process: the fall-back where no sampler may attach from outside.

It is worse: beside C calls that hold the interpreter lock the shares are off by tens of points, and a sample costs
the training about 0.15 ms. So it is slow, starts only when the launcher says that it was refused, and weighs each
sample with the time since the one before.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType

from unstall.model import wire
from unstall.model.wire import Frame
from unstall.probes._recorder import Probe
from unstall.probes._sites import place

AFTER = "torch"
PERIOD_S = 0.06  # 17 Hz
LOOK_STEPS = 300  # steps over which the launcher's word is looked for
MOST_DEPTH = 60  # frames; deeper stacks keep the innermost
MOST_STACKS = 20_000


def install(probe: Probe) -> None:
    recorder = probe.recorder
    refused = os.path.join(recorder.recording, "stacks-refused")
    started = [False]

    def look(step: int) -> None:
        if not started[0] and (step <= LOOK_STEPS or step % LOOK_STEPS == 0) and os.path.exists(refused):
            started[0] = True
            threading.Thread(target=sample, args=(probe,), name="unstall", daemon=True).start()

    recorder.at_step.append((probe, look))


def sample(probe: Probe) -> None:
    """Sample the training thread until the recording ends."""
    recorder = probe.recorder
    pid, before, stacks = os.getpid(), time.monotonic_ns(), 0
    with probe.guard():
        while probe.on and not recorder.ended and stacks < MOST_STACKS:
            time.sleep(PERIOD_S)
            frame = sys._current_frames().get(recorder.thread)
            now = time.monotonic_ns()
            if frame is None or os.getpid() != pid:
                return
            text = recorder.text(stack_of(frame))
            del frame
            stacks = text + 1
            record = wire.STACK.pack(now, now - before, recorder.accounting.top(), text)
            recorder.write(Frame.STACKS, record)
            before = now


def stack_of(frame: FrameType | None) -> str:
    """Return the places of a stack, outermost first, one a line."""
    places: list[str] = []
    while frame is not None and len(places) < MOST_DEPTH:
        places.append(place(frame))
        frame = frame.f_back
    return "\n".join(reversed(places))
