"""What runs inside the training process: one module a signal, each found by walking this folder.

A probe is a module with ``AFTER``, the module after whose import it is installed, and
``install(recorder)``.  Modules whose name starts with an underscore are shared.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

from unstall.probes._recorder import Probe, Recorder


def start(recording: str, injected_ns: int, when: Callable[[str, Callable[[ModuleType], None]], None]) -> Recorder:
    """Begin to record this process and install every probe once what it watches has been imported.

    Args:
        recording: folder to record to.
        injected_ns: when this process first ran our code.
        when: ``when(name, callback)`` calls back after the import of *name*.
    """
    recorder = Recorder(recording, injected_ns)
    recorder.when = when
    for name in _names(recorder):
        _arrange(recorder, name, when)
    os.register_at_fork(after_in_child=recorder.reset_in_child)
    recorder.announce()
    return recorder


def _names(recorder: Recorder) -> Iterator[str]:
    """Yield the modules of the probes that are wanted, by their names below this folder."""
    only = recorder.config.get("only")  # a trial's recorder is a light one
    for info in pkgutil.iter_modules(__path__):
        wanted = info.name not in recorder.without and (not isinstance(only, list) or info.name in only)
        if wanted and not info.ispkg and not info.name.startswith("_"):
            yield info.name
    if "trial" in recorder.config:
        for info in pkgutil.iter_modules([os.path.join(__path__[0], "trial")]):
            if not info.name.startswith("_"):
                yield f"trial.{info.name}"


def _arrange(recorder: Recorder, name: str, when: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
    probe = Probe(name.rpartition(".")[2], recorder)
    with probe.guard():
        module = importlib.import_module(f"{__name__}.{name}")

        def install(_: ModuleType) -> None:
            with probe.guard():
                module.install(probe)
                _hide()

        when(module.AFTER, install)


_hidden: set[str] = set()


def _hide() -> None:
    """Keep the compiler from taking our functions for the user's; torch has been imported."""
    from unstall.probes._around import hide

    for name, module in list(sys.modules.items()):
        if name not in _hidden and name.startswith((f"{__name__}.", "unstall.model.")):
            _hidden.add(name)
            hide(module)
