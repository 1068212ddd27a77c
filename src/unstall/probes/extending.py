"""C++ extensions: where each is built or loaded, with which flags, for how long; and those that the user's code calls.

Only what happens at a build is wrapped. What the compiler of a module that was built elsewhere noted in it is read once,
in step 8.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, ModuleType
from typing import Any

from unstall.model.wire import ACTIVITIES, Activity, Phase
from unstall.probes._around import around
from unstall.probes._elf import noted_flags
from unstall.probes._recorder import Probe
from unstall.probes._sites import call_site, is_users

AFTER = "torch"
BUILDS = "torch.utils.cpp_extension"
LOOK_AT = 8  # step at whose end it is looked for the extensions that the user's code calls, once
MOST_BUILDS = 50
MOST_NATIVE = 20
MOST_FLAGS = 60
MOST_ENTRIES = 500  # of a folder of sources, looked at for their age
MOST_SOURCE = 1_000_000  # bytes of a source, looked through for loops
_LOOP = re.compile(r"\b(?:for|while)\s*\(|parallel_for|\baccessor<|data_ptr|mutable_data")
_LIBRARY = (".so", ".pyd", ".dylib")
_HEADER = (".h", ".hpp", ".hh", ".hxx", ".cuh", ".inl")


def install(probe: Probe) -> None:
    Extending(probe)


@dataclass
class _Build:
    """One call of ``load`` or ``load_inline`` that is under way; *libraries* are those of the folder, with their age."""

    told: dict[str, object]
    folder: str
    name: str
    libraries: dict[str, int]
    operators: frozenset[str]
    build_ns: int = 0
    phase: int = 0
    began_ns: int = 0
    depths: list[int] = field(default_factory=list)


class Extending:
    """Hears of builds by ``torch.utils.cpp_extension``, and looks for extension modules that the user's code names."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.recorder = probe, probe.recorder
        self.origin_ns = time.time_ns() - (time.monotonic_ns() - self.recorder.origin_ns)
        self.open: list[_Build] = []
        self.builds = 0
        self.built: set[str] = set()
        self.version: Callable[[str], object] = lambda name: None
        self.recorder.when(BUILDS, self.watch)
        self.recorder.at_step.append((probe, self.look))

    def watch(self, module: Any) -> None:
        with self.probe.guard():
            signature = inspect.signature(module._jit_compile)
            self.version = module.JIT_EXTENSION_VERSIONER.get_version

            def before(*args: Any, **kwargs: Any) -> None:
                self.begin(signature.bind(*args, **kwargs).arguments, module.get_default_build_root())

            module._jit_compile = around(self.probe, module._jit_compile, before, self.end)
            module._run_ninja_build = around(self.probe, module._run_ninja_build, self.compiles, self.compiled)

    def begin(self, given: dict[str, Any], usual: str) -> None:
        site, library = call_site(3)
        folder, sources = os.path.abspath(given["build_directory"]), [os.path.abspath(one) for one in given["sources"]]
        inline = all(os.path.dirname(one) == folder for one in sources)
        libraries = dict(libraries_in(folder, given["name"]))
        last_ns = libraries.get(given["name"], 0)
        own = [] if inline else sources
        told = {
            "name": given["name"], "site": site, "library": library, "inline": inline, "folder": folder,
            "named": named_by(folder, usual), "flags": [str(one) for one in given["extra_cflags"] or ()][:MOST_FLAGS],
            "had": bool(libraries), "builds": builds_of(folder, given["name"]), "device": bool(given.get("with_cuda")),
            "rewritten": any(changed_ns(one) >= self.origin_ns for one in own),
            "edited": bool(last_ns) and any(last_ns < at < self.origin_ns for at in ages(own, given)),
            "loops": any(map(has_loop, sources)),
        }  # fmt: skip
        self.open.append(_Build(told, folder, given["name"], libraries, operators()))

    def compiles(self, *args: Any, **kwargs: Any) -> None:
        if self.open:
            build, accounting = self.open[-1], self.recorder.accounting
            build.phase = accounting.here() // ACTIVITIES
            build.depths.append(accounting.enter_activity(Activity.COMPILE))
            build.began_ns = accounting.at

    def compiled(self, _: None) -> None:
        if self.open and self.open[-1].depths:
            build = self.open[-1]
            build.build_ns += self.recorder.accounting.leave(build.depths.pop()) - build.began_ns

    def end(self, _: None) -> None:
        build = self.open.pop()
        version = self.version(build.name)
        stem = f"{build.name}_v{version}" if isinstance(version, int) and version > 0 else build.name
        now = dict(libraries_in(build.folder, build.name))
        if stem not in now or self.builds >= MOST_BUILDS:
            return  # it failed, and the training has heard of it
        file = os.path.join(build.folder, stem + suffix_in(build.folder, stem))
        self.built.add(file)
        self.recorder.fact(
            {
                f"extension:{self.builds}": {
                    **build.told, "file": file, "rebuilt": now[stem] != build.libraries.get(stem),
                    "build_ns": build.build_ns, "phase": Phase(build.phase).name, "step": self.recorder.step,
                    "spaces": sorted({name.partition("::")[0] for name in operators() - build.operators}),
                }
            }
        )  # fmt: skip
        self.builds += 1

    def look(self, step: int) -> None:
        if step != LOOK_AT:
            return
        found: dict[str, set[str]] = {}
        for file, name in called_natives():
            found.setdefault(file, set()).add(name)
        for number, (file, names) in enumerate(list(found.items())[:MOST_NATIVE]):
            flags = [] if file in self.built else noted_flags(file)
            told = {"file": file, "names": sorted(names), "flags": flags[:MOST_FLAGS], "noted": bool(flags)}
            self.recorder.fact({f"native:{number}": told})


def libraries_in(folder: str, name: str) -> Iterator[tuple[str, int]]:
    """Yield (stem, ns since the epoch) of the libraries of the extension *name*, ``name`` and ``name_vN``."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, suffix = os.path.splitext(entry.name)
                if suffix in _LIBRARY and (stem == name or re.fullmatch(re.escape(name) + r"_v\d+", stem)):
                    yield stem, entry.stat().st_mtime_ns
    except OSError:
        return


def suffix_in(folder: str, stem: str) -> str:
    return next((one for one in _LIBRARY if os.path.exists(os.path.join(folder, stem + one))), "")


def named_by(folder: str, usual: str) -> str:
    """Return what names the folder: "variable", "argument", or "" where it is torch's own choice."""
    given = os.environ.get("TORCH_EXTENSIONS_DIR", "")
    if given and folder.startswith(os.path.join(os.path.abspath(given), "")):
        return "variable"
    return "" if folder.startswith(os.path.join(os.path.abspath(usual), "")) else "argument"


def builds_of(folder: str, name: str) -> int:
    """Return how often the library was linked in this folder before, as ninja noted it: a line each time."""
    try:
        with open(os.path.join(folder, ".ninja_log"), encoding="utf-8", errors="replace") as opened:
            outputs = [line.split("\t")[3] for line in opened.readlines(MOST_SOURCE) if line.count("\t") >= 4]
    except OSError:
        return 0
    return sum(os.path.splitext(one)[0] == name and one.endswith(_LIBRARY) for one in outputs)


def changed_ns(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


def ages(sources: Sequence[str], given: dict[str, Any]) -> Iterator[int]:
    """Yield when what a build rests on was changed: the user's modules, the sources, headers beside them, torch."""
    yield from map(changed_ns, sources)
    yield from (changed_ns(file) for file, _ in users_modules())
    folders = {os.path.dirname(one) for one in sources} | set(map(str, given.get("extra_include_paths") or ()))
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for _, entry in zip(range(MOST_ENTRIES), entries):
                    if entry.name.endswith(_HEADER):
                        yield entry.stat().st_mtime_ns
        except OSError:
            continue
    yield changed_ns(getattr(sys.modules.get("torch.version"), "__file__", None) or "")


def has_loop(source: str) -> bool:
    """Return whether the source walks over elements itself; where it only calls tensor operations its flags cost nothing."""
    try:
        with open(source, encoding="utf-8", errors="replace") as opened:
            return bool(_LOOP.search(opened.read(MOST_SOURCE)))
    except OSError:
        return False


def operators() -> frozenset[str]:
    """Return the names of all operators that are registered, as ``space::name``; a few ms."""
    known = getattr(sys.modules["torch"]._C, "_dispatch_get_all_op_names", None)
    return frozenset(known()) if known is not None else frozenset()


def called_natives() -> Iterator[tuple[str, str]]:
    """Yield (file of an extension module, a name by which a module of the user's calls it or a function of it)."""
    for file, module in users_modules():
        for name, value in list(vars(module).items()) if not file.endswith(_LIBRARY) else ():
            # by its type alone: a proxy may err where its class is asked for
            owner = value if issubclass(type(value), ModuleType) else None
            if type(value) is BuiltinFunctionType:
                owner = sys.modules.get(value.__module__ or "")
            held = file_of(owner)
            if held.endswith(_LIBRARY) and is_users(held):
                yield os.path.abspath(held), name if owner is value else f"{name}("


def users_modules() -> Iterator[tuple[str, ModuleType]]:
    """Yield the user's own modules that are imported, each with its file."""
    for module in list(sys.modules.values()):
        if (file := file_of(module)) and is_users(file):
            yield file, module


def file_of(module: object) -> str:
    """Return the module's file, "" for none; a lazy one is not made to import anything."""
    file = vars(module).get("__file__") if issubclass(type(module), ModuleType) else None
    return file if isinstance(file, str) else ""
