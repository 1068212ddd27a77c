"""Bring the probes into a Python process: found through PYTHONPATH, runs before the user's code.

It reports that this process came up with us inside, then waits: nothing else happens until
``torch`` has been imported.  Standard library only; any error here leaves the process as it would be without us.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from importlib.machinery import ModuleSpec
from types import ModuleType

if False:  # typing is not imported at run time: every Python process pays for what this file imports
    from collections.abc import Callable
    from typing import Any

INJECTED_NS = time.monotonic_ns()
HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))


class AfterImport:
    """A finder that calls back when a module has been imported; it finds nothing itself but this package.

    Attributes:
        waiting: {module name: [callback]}; each callback is called once with the module.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callable[[ModuleType], None]]] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "unstall" and path is None:
            return importlib.util.spec_from_file_location(
                name, os.path.join(PACKAGE, "__init__.py"), submodule_search_locations=[PACKAGE]
            )
        if name not in self.waiting:
            return None
        spec = self._real_spec(name, path, target)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            try:
                del loader.exec_module  # so that a reload finds the loader as it was
            except AttributeError:
                pass
            # Only now: a spec may be looked up without an import (`importlib.util.find_spec`), and an import may fail.
            for callback in self.waiting.pop(name, ()):
                callback(module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader of someone's own with fixed attributes: this process is not recorded
            return None
        return spec

    def _real_spec(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def when(self, name: str, callback: Callable[[ModuleType], None]) -> None:
        """Call ``callback(module)`` when *name* has been imported; at once where it has been already."""
        module = sys.modules.get(name)
        if module is None:
            self.waiting.setdefault(name, []).append(callback)
        elif getattr(module.__spec__, "_initializing", False):  # it imports torch: its own names are not all there yet
            _once_ready(module, callback)
        else:
            callback(module)


def _once_ready(module: ModuleType, callback: Callable[[ModuleType], None]) -> None:
    """Call back when the import of *module*, which goes on, has ended well: importlib notes its end in the spec."""
    spec: Any = module.__spec__
    kind: Any = type(spec)

    class Watched(kind):  # type: ignore[misc]
        def __setattr__(self, name: str, value: object) -> None:
            ended = name == "_initializing" and not value
            if ended:
                self.__class__ = kind
            kind.__setattr__(self, name, value)
            if ended and sys.modules.get(module.__name__) is module:  # a failed import takes it out
                callback(module)

    spec.__class__ = Watched


def chain() -> None:
    """Run the sitecustomize that this one hides, as the interpreter would have."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def report(recording: str) -> None:
    with open("/proc/self/stat") as file:
        start_ticks = int(file.read().rpartition(")")[2].split()[19])
    seen = {
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "argv": sys.orig_argv,
        "executable": sys.executable,
        "python": sys.version.split()[0],
        "injected_ns": INJECTED_NS,
        "start_ticks": start_ticks,
    }
    with open(os.path.join(recording, "seen", str(os.getpid())), "w") as file:
        json.dump(seen, file)


def begin() -> None:
    recording = os.environ.get("UNSTALL_RECORDING")
    if not recording or not os.path.isdir(recording):
        return
    report(recording)
    if any("compile_worker" in word for word in sys.orig_argv):  # compiles on behalf of a training; trains nothing
        return
    imports = AfterImport()
    sys.meta_path.insert(0, imports)

    def acting(act: Callable[[], None], failed: str) -> Callable[[ModuleType], None]:
        def acts(module: ModuleType) -> None:
            try:
                act()
            except Exception as error:
                sys.stderr.write(f"unstall: {failed}: {type(error).__name__}: {error}\n")

        return acts

    def start() -> None:
        from unstall.probes import start as start_probes

        start_probes(recording, INJECTED_NS, imports.when)

    imports.when("torch", acting(start, "not recording this process"))
    plan = os.environ.get("UNSTALL_PLAN")
    if not plan:
        return

    def edit() -> None:
        from unstall.remedies.carried import carry_out

        carry_out(plan, recording, imports.when)

    with open(plan, encoding="utf-8") as file:
        early = '"os.environ.' in file.read()  # a script sets variables before it imports torch
    imports.when("os" if early else "torch", acting(edit, "the edits are not in force here"))


try:
    chain()
finally:
    try:
        begin()
    except Exception as error:  # a process must never fail because of us
        sys.stderr.write(f"unstall: not recording this process: {type(error).__name__}: {error}\n")
