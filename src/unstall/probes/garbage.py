"""Garbage collections, with the line that set each off."""

from __future__ import annotations

import gc
from threading import get_ident

from unstall.model.wire import Activity, Kind
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site

AFTER = "torch"
LEAST_NS = 20_000  # shorter ones are entered, and not listed


def install(probe: Probe) -> None:
    recorder = probe.recorder
    opened: list[tuple[int, int]] = []

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if not probe.on or get_ident() != recorder.thread:
            return
        with probe.guard():
            if phase == "start":
                depth = recorder.accounting.enter_activity(Activity.GC)
                opened.append((depth, recorder.accounting.last))
            elif opened:
                depth, start = opened.pop()
                end = recorder.accounting.leave(depth)
                if end - start >= LEAST_NS:
                    user, library = call_site(2)
                    generation = info.get("generation", 0)
                    recorder.span(Kind.GC, start, end, f"{user}|{library}", generation, rare=generation == 2)

    gc.callbacks.append(on_collection)
