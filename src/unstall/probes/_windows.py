"""Hear of each begin and end of a compilation, for as long as the process lives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from unstall.probes._recorder import Probe


def on_windows(probe: Probe, module: Any, start: Callable[..., None], end: Callable[..., None]) -> None:
    """Call *start* and *end* around each compilation; *module* is ``torch._dynamo.callback``."""
    with probe.guard():
        handler = module.callback_handler
        forget = handler.clear

        def register() -> None:
            handler.register_start_callback(start)
            handler.register_end_callback(end)

        @functools.wraps(forget)
        def clear() -> None:
            forget()
            if probe.on:
                with probe.guard():
                    register()

        register()
        handler.clear = clear  # torch._dynamo.reset() forgets all callbacks, ours among them
