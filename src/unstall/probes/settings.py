"""Settings that no interval shows: threads, anomaly detection, precision, and who set them."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

from unstall.probes._around import is_compiling
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch"
LOOK_EVERY = 16  # steps; a look costs about 1 us
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # as this process has them: torchrun sets one itself


def install(probe: Probe) -> None:
    Settings(probe)


class Settings:
    """Looks at the settings at the end of early steps, then seldom; remembers the line that set each."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.seen: dict[str, object] = {}
        self.anomaly_steps = 0
        self.anomaly_entered = False  # switched on since the last look, perhaps for a part of the step only
        self.looks = 0
        torch.set_num_threads = self.remembering(torch.set_num_threads, "threads.set_by")
        anomaly = torch.autograd.anomaly_mode
        for kind, mode_at in ((anomaly.detect_anomaly, None), (anomaly.set_detect_anomaly, 0)):
            kind.__init__ = self.noting(kind.__init__, mode_at)
        torch.set_default_dtype = self.remembering(torch.set_default_dtype, "precision.default_by")
        torch.nn.Module.double = self.remembering(torch.nn.Module.double, "precision.double_by")
        for name in THREAD_VARIABLES:
            if name in os.environ:
                self.tell(f"threads.{name}", os.environ[name])
        if "TORCHELASTIC_RUN_ID" in os.environ:
            self.tell("threads.elastic", True)
        self.tell("vectors.capability", torch.backends.cpu.get_cpu_capability())
        self.recorder.at_step.append((probe, self.look))

    def remembering(self, original: Any, fact: str) -> Any:
        @functools.wraps(original)
        def remembered(*args: Any, **kwargs: Any) -> Any:
            if not is_compiling() and self.probe.on:
                with self.probe.guard():
                    self.tell(fact, call_site(2)[0])
            return original(*args, **kwargs)

        return remembered

    def noting(self, original: Any, mode_at: int | None) -> Any:
        """Return the ``__init__`` of a switch of anomaly detection, remembering who switches it on.

        *mode_at* is the position of its mode, None where it is always on.
        """

        @functools.wraps(original)
        def noted(switch: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_compiling() and self.probe.on:
                with self.probe.guard():
                    if mode_at is None or kwargs.get("mode", args[mode_at] if len(args) > mode_at else True):
                        user, library = call_site(2)
                        self.anomaly_entered = True
                        self.tell("anomaly.set_by", user)
                        self.tell("anomaly.through", library)
            return original(switch, *args, **kwargs)

        return noted

    def tell(self, fact: str, value: object) -> None:
        if self.seen.get(fact) != value:
            self.seen[fact] = value
            self.recorder.fact({fact: value})

    def look(self, step: int) -> None:
        if step > LOOK_EVERY and step % LOOK_EVERY:
            return
        self.looks += 1
        self.tell("threads.intra", torch.get_num_threads())
        if self.looks == 1:
            self.tell("threads.inter", torch.get_num_interop_threads())
        if torch.is_anomaly_enabled() or self.anomaly_entered:
            self.anomaly_steps += 1
        self.anomaly_entered = False
        self.tell("anomaly.share", round(self.anomaly_steps / self.looks, 2))
        self.tell("anomaly.check_nan", torch.is_anomaly_check_nan_enabled())
