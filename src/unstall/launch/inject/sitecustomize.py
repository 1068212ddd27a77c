"""Bring the probes into a Python process: found through PYTHONPATH, runs before the user's code.

It reports that this process came up with us inside, then waits: nothing else happens until
``torch`` has been imported.  Standard library only; any error here leaves the process as it would be without us.
"""

import importlib.machinery
import importlib.util
import json
import os
import sys
import time

INJECTED_NS = time.monotonic_ns()
HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))


class AfterImport:
    """A finder that calls back when a module has been imported; it finds nothing itself but this package.

    Attributes:
        waiting: {module name: [callback]}; each callback is called once with the module.
    """

    def __init__(self):
        self.waiting = {}

    def find_spec(self, name, path=None, target=None):
        if name == "unstall" and path is None:
            return importlib.util.spec_from_file_location(
                name, os.path.join(PACKAGE, "__init__.py"), submodule_search_locations=[PACKAGE]
            )
        if name not in self.waiting:
            return None
        spec = self._real_spec(name, path, target)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return None
        loader, execute, callbacks = spec.loader, spec.loader.exec_module, self.waiting.pop(name)

        def exec_module(module):
            execute(module)
            try:
                del loader.exec_module  # so that a reload finds the loader as it was
            except AttributeError:
                pass
            for callback in callbacks:
                callback(module)

        loader.exec_module = exec_module
        return spec

    def _real_spec(self, name, path, target):
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def when(self, name, callback):
        """Call ``callback(module)`` when *name* has been imported; at once where it has been already."""
        if name in sys.modules:
            callback(sys.modules[name])
        else:
            self.waiting.setdefault(name, []).append(callback)


def chain():
    """Run the sitecustomize that this one hides, as the interpreter would have."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def report(recording):
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


def begin():
    recording = os.environ.get("UNSTALL_RECORDING")
    if not recording or not os.path.isdir(recording):
        return
    report(recording)
    if any("compile_worker" in word for word in sys.orig_argv):  # compiles on behalf of a training; trains nothing
        return
    imports = AfterImport()
    sys.meta_path.insert(0, imports)

    def start(module):
        try:
            from unstall.probes import start as start_probes

            start_probes(recording, INJECTED_NS, imports.when)
        except Exception as error:
            sys.stderr.write(f"unstall: not recording this process: {type(error).__name__}: {error}\n")

    imports.when("torch", start)


try:
    chain()
finally:
    try:
        begin()
    except Exception as error:  # a process must never fail because of us
        sys.stderr.write(f"unstall: not recording this process: {type(error).__name__}: {error}\n")
