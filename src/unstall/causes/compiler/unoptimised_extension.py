"""An extension in C++ was compiled without optimisation, and the training calls it in every step.

## What it is
`torch.utils.cpp_extension.load` and `load_inline` pass no `-O` to the compiler unless `extra_cflags` does, and its
default is `-O0`: each variable lives in memory, and each accessor of a tensor is a call. Or the flags of a search for an
error are left (`-O0`, `-Og`). Compiled with `-O2` or `-O3` alone, its loops use the vectors of the oldest processor
that could run them, and without `-DNDEBUG` the checks of torch's headers are compiled in.

## Why it costs
Loops over half a million floats took 1.4 to 80 times as long with `-O0` as with `-O3`. With `-O3` alone one whose
elements take a branch took 50 times as long as with `-march=native`; five others took the same with both.

## How it is told
The flags of a build are noted when it is made. Of a library that was built before they are read from what its compiler
noted in it (with `-g` or `-frecord-gcc-switches`; without, nothing is said). Stack samples do not see the extension's own
functions: its time is that of the user's lines that call it, where they call no Python, with whatever else such a line
calls. A call is known by the names that the user's modules hold it by, or by the namespace of its operators.

No optimisation is a fault where a source walks over elements itself: half of the time is claimed, the saving lies
between a quarter and all of it, and from 2 % of the step on it is told. An extension that only calls tensor operations is
left alone. Too few samples, a device, and from a tenth of the step on `-O1`, vectors of the oldest processor or checks left
in, are candidates: only a trial tells what they cost.

## Sources
PyTorch documentation, `torch.utils.cpp_extension.load` ("to compile your extension with optimizations, pass
extra_cflags=['-O3']"); GCC manual, "Options That Control Optimization". Measured: six loops over 2 MB, one thread, CPU
time, gcc 12: `-O0` 0.7-11.8 ms, `-O3` 0.04-8.5 ms, `-O3 -march=native` 0.05-8.5 ms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import is_library
from unstall.causes.compiler._extension import FUNCTION, SOURCE
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.native import Build, Native
from unstall.model.remedy import AmendList, Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

CLAIMED, LEAST_SAVED = 0.5, 0.25  # of its time; six loops lost 0.28, 0.37, 0.75, 0.93, 0.96 and 0.99 of it
LEAST_SAMPLES = 10  # on the lines that call it
LEAST_CANDIDATE = 0.1  # of the step; below it, not even a candidate where it was optimised at all
LEVELS = {"0": 0, "g": 1, "": 1, "1": 1, "s": 2, "z": 2, "2": 2, "3": 3, "fast": 3}
OLDEST = ("-march=x86-64", "-march=core2", "-march=nocona", "-march=k8")
VECTORS = ("-march=", "-mavx", "-msse4", "-xHost", "-xhost")
OPTIMISED = ("-O3", "-march=native", "-DNDEBUG")
FLAGS = '["-O3", "-march=native", "-DNDEBUG"]'
POSITIONS = {"load": 2, "load_inline": 4}  # of extra_cflags

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFBBBBO|FFFFFBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""
_BUILT = Line("train.py", 12, "<module>", 'ext = load("ext", ["ext.cpp"])')
_CALL = Line("train.py", 31, "forward", "ext.bend(x, y)")


def _given(
    *flags: str, ms: float = 4, samples: int = 40, loops: bool = True, device: bool = False, noted: bool = True
) -> Given:
    build = Build("ext", _BUILT, 6_000_000_000, Phase.STARTUP, "/kept/ext", flags, loops=loops, device=device)
    spent = ((Phase.FORWARD, Activity.COMPUTE, "train.py:31", int(ms * 1e6)),)
    native = Native(
        "ext", "/kept/ext/ext.so", flags if noted else None, build if noted else None, (_CALL,), spent, samples
    )
    return Given({"machine.architecture": "x86_64"}, {"natives": (native,), "device": None})


_BUILD = """\
folder = os.path.join(tempfile.gettempdir(), "unstall_{folder}")
os.makedirs(folder, exist_ok=True)
ext = load_inline("bending", SOURCE, no_implicit_headers=True, build_directory=folder{flags}){mark}


"""
_LOOP = """\
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Linear(64, 256)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(600):
    loss = Bend.apply(net(torch.randn(1024, 64))).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


def _script(folder: str, flags: str, mark: str) -> str:
    return SOURCE + _BUILD.format(folder=folder, flags=flags, mark=mark) + FUNCTION + _LOOP


class UnoptimisedExtension(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.SAMPLES, Sensor.EXTENSIONS})

    cases = (
        Fires(_PICTURE, 2, _given()),
        Fires(_PICTURE, 2, _given("-O3", "-g", "-O0")),
        Silent(_PICTURE, "optimised, with vectors", _given("-O3", "-march=native", "-DNDEBUG")),
        Silent(_PICTURE, "the last of two levels counts", _given("-O0", "-O3", "-mavx2", "-DNDEBUG", ms=6)),
        Silent(_PICTURE, "old vectors, in little of the step", _given("-O2", ms=1.5)),
        Silent(_PICTURE, "it only calls tensor operations", _given(loops=False)),
        Silent(_PICTURE, "its kernels are compiled by another compiler", _given(device=True)),
        Silent(_PICTURE, "its compiler noted no flags", _given(noted=False)),
    )

    planted = (
        Planted(
            before=_script("extension", "", "  # <- fault"),
            after=_script("extension", f", extra_cflags={FLAGS}", ""),
            also=frozenset({"kernels/too-few-threads"}),  # one thread, so that times are steady
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        for native in tables.natives:
            build = native.build
            if native.flags is None or (build is not None and (build.device or not build.loops)):
                continue
            where = build.line if build is not None else native.calls[0]
            level, on_device = level_of(native.flags), tables.device is not None
            if level == 0 and native.samples >= LEAST_SAMPLES and not on_device:
                yield from self._of(native, where, tables)
            elif level == 0:
                title = f"The extension {native.name} is compiled without optimisation."
                yield Candidate(self.id, title, where, "What it costs was not told apart.")
            elif native.ns >= LEAST_CANDIDATE * tables.steady_ns and not on_device:
                yield from self._could(native, where, level, run)

    def _of(self, native: Native, where: Line, tables: Tables) -> Iterator[Finding]:
        stakes = tuple(Stake(phase, activity, int(CLAIMED * ns), at) for phase, activity, at, ns in native.spent)
        if sum(stake.ns for stake in stakes) < LEAST_SHARE * tables.steady_ns:
            return
        a_step = native.ns // tables.rank_steps
        calls = ", ".join(f"{line.file}:{line.line}" for line in native.calls[:3])
        yield Finding(
            self.id,
            f"The extension {native.name} is compiled without optimisation, and called for {a_step / 1e6:.3g} ms a step.",
            where, Scope.STEADY, stakes, Weight.NEEDLESS, Basis.SAMPLED,
            (
                Evidence("on the lines that call it", a_step, "ns a step", "rank 0: stack samples x ledger"),
                Evidence("stack samples on them", native.samples, "count", "rank 0: stack samples"),
                Evidence("flags that optimise", 0, "count", "rank 0: facts extension, native"),
            ),
            Saving(int(LEAST_SAVED * a_step), a_step),
            notes=(f"called at {calls}", "an estimate: what optimising gives shows only in a trial"),
        )  # fmt: skip

    def _could(self, native: Native, where: Line, level: int, run: Run) -> Iterator[Candidate]:
        lacking = []
        if level == 1:
            lacking.append("the lowest level of optimisation")
        if run.facts.text("machine.architecture") == "x86_64" and not has_vectors(native.flags or ()):
            lacking.append("vectors of the oldest processor")
        if native.build is not None and "-DNDEBUG" not in native.build.flags:
            lacking.append("checks left in (no -DNDEBUG)")
        if lacking:
            title = f"The extension {native.name} is compiled with {', '.join(lacking)}."
            yield Candidate(self.id, title, where, f"It may be faster with {FLAGS}; only a trial tells.")

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = (
            f"pass extra_cflags={FLAGS} to load or load_inline, or extra_compile_args to CppExtension: with -march=native "
            "products are added without rounding between, and the library runs on processors like this one only"
        )
        found = (native.build for native in tables.natives if native.build is not None)
        build = next((build for build in found if build.line == finding.where), None)
        edits = optimised(build, run) if build is not None else ()
        yield Remedy(f"{self.id}#optimise", "compile the extension with optimisation", Safety.SAME_MATH, edits, (), why)


def optimised(build: Build, run: Run) -> tuple[AmendList, ...]:
    """Return the edit that gives *build* flags which optimise; () where its line calls something else, or on other processors."""
    called = re.search(r"\b(load|load_inline)\(", build.line.code)
    if called is None or is_library(build.line.file) or run.facts.text("machine.architecture") != "x86_64":
        return ()
    dropped = tuple(flag for flag in dict.fromkeys(build.flags) if flag.startswith("-O"))
    call, position = f"torch.utils.cpp_extension.{called[1]}", POSITIONS[called[1]]
    return (AmendList(build.line.file, build.line.line, call, "extra_cflags", OPTIMISED, dropped, position),)


def level_of(flags: Sequence[str]) -> int:
    """Return how much *flags* optimise, 0 to 3: the last of them counts, and none is 0."""
    levels = (LEVELS[flag[2:]] for flag in reversed(flags) if flag.startswith("-O") and flag[2:] in LEVELS)
    return next(levels, 0)


def has_vectors(flags: Sequence[str]) -> bool:
    """Return whether *flags* allow vectors that not every 64-bit processor has."""
    return any(flag.startswith(VECTORS) and flag not in OLDEST for flag in flags)
