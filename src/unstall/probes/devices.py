"""What the device does, from a few short windows in which torch.profiler watches it; where there is no device, nothing.

A window is a few steady steps; its rows are marked, so that they never enter the statistics of the steps. Written from
the documentation and tried with the profiler of the CPU only: untested on hardware.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from unstall.model.wire import CLOCK_MARK, PROFILED
from unstall.probes._recorder import LOOKS_EVERY, Probe

AFTER = "torch"
WINDOWS_AT = (6 * LOOKS_EVERY, 60 * LOOKS_EVERY)  # steps; a window is as long as from look to look


def install(probe: Probe) -> None:
    Windows(probe)


def device_activities() -> list[Any]:
    """Return what to watch besides the host: nothing where no device has been used so far.

    Asked without making a context on a device, which would take memory there and time here.
    """
    found = []
    if torch.cuda.is_initialized():  # also AMD's
        found.append(ProfilerActivity.CUDA)
    xpu = getattr(torch, "xpu", None)
    if xpu is not None and xpu.is_initialized():
        found.append(ProfilerActivity.XPU)
    return found


class Windows:
    """Opens and closes the windows, at the ends of steps."""

    def __init__(self, probe: Probe, activities: Callable[[], list[Any]] = device_activities) -> None:
        self.probe, self.recorder, self.activities = probe, probe.recorder, activities
        self.watching: Any = None
        self.count = 0
        self.restore: list[tuple[type, str, Any]] = []
        self.recorder.at_step.append((probe, self.at_step))
        self.recorder.in_child.append(self.forget)

    def forget(self) -> None:
        self.watching = None

    def at_step(self, step: int) -> None:
        if self.watching is not None:
            self.close()
        elif self.recorder.flags & PROFILED:
            self.recorder.flags &= ~PROFILED  # writing the trace took time in the steps since
        elif step in WINDOWS_AT and (activities := self.activities()) and not torch.autograd._profiler_enabled():
            self.open(list(dict.fromkeys([ProfilerActivity.CPU, *activities])))

    def open(self, activities: list[Any]) -> None:
        start = time.monotonic_ns()
        watching = profile(activities=activities)
        watching.start()
        self.watching = watching
        self.recorder.flags |= PROFILED
        self.yield_to_others()
        took = time.monotonic_ns() - start
        self.tell_clock()
        self.recorder.fact({f"window:{self.count}": {"start_ns": start, "started_in_ns": took}})

    def tell_clock(self) -> None:
        with record_function(f"{CLOCK_MARK}{time.monotonic_ns()}"):
            pass

    def close(self) -> None:
        """End the window and write its trace; the time this takes belongs to steps that are marked as well."""
        watching, self.watching = self.watching, None
        for owner, name, original in self.restore:
            setattr(owner, name, original)
        self.restore = []
        end = time.monotonic_ns()
        self.tell_clock()
        watching.stop()
        path = os.path.join(self.recorder.recording, f"window-{os.getpid()}-{self.count}.json.gz")
        watching.export_chrome_trace(path)
        took = time.monotonic_ns() - end
        self.recorder.fact({f"window_end:{self.count}": {"end_ns": end, "written_in_ns": took}})
        self.count += 1

    def yield_to_others(self) -> None:
        """Close the window where the training begins to profile itself: there is one profiler a process."""
        from torch.autograd import profiler

        for owner, name in ((profile, "start"), (profiler.profile, "__enter__")):
            original = getattr(owner, name)
            self.restore.append((owner, name, original))
            setattr(owner, name, self.closing_before(original))

    def closing_before(self, original: Any) -> Any:
        def start(other: Any, *args: Any, **kwargs: Any) -> Any:
            if self.watching is not None:
                with self.probe.guard():
                    self.close()
            return original(other, *args, **kwargs)

        return start
