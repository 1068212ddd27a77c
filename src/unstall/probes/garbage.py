"""Garbage collections, with the line that set each off."""

from __future__ import annotations

import gc
from threading import get_ident

from unstall.model.wire import Kind
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch"
LEAST_NS = 20_000  # shorter ones are entered, and not listed


def install(probe: Probe) -> None:
    recorder = probe.recorder
    begun = 0

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal begun
        if not probe.on or get_ident() != recorder.thread:
            return
        with probe.guard():
            if phase == "start":
                begun = recorder.accounting.clock()
            elif begun:
                start, begun, end = begun, 0, recorder.accounting.clock()
                recorder.accounting.collected(start, end)
                if end - start >= LEAST_NS:
                    user, library = call_site(2)
                    generation = info.get("generation", 0)
                    recorder.span(Kind.GC, start, end, f"{user}|{library}", generation, rare=generation == 2)

    gc.callbacks.append(on_collection)
