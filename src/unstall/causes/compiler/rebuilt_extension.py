"""An extension in C++ is compiled at each start, though nothing of it has changed.

## What it is
`torch.utils.cpp_extension.load` and `load_inline` compile when the script runs, and keep the library in a folder. The
next start only loads it, if it finds the folder and in it what was compiled from the same sources with the same flags.
It does not where the folder is a temporary one or bears the number of the job, where the script writes the source file
anew, where a flag or the text differs from start to start (a time, the number of the process, the order of a set), or
where two texts have one name and take each other's place.

## Why it costs
The headers of torch alone take the compiler the better part of a minute. It compiles before the first step, at every
start; each rank does so where the folders differ, and waits for the others where they do not.

## How it is told
The time in the compiler is measured. Told is a build of a second or more that takes a tenth of the loop recorded so
far, and of which one of these is known: its folder was named by the script or by TORCH_EXTENSIONS_DIR, is empty, and
its name or the line that names it shows that the next run's will be another one; the run itself wrote the source; the
same run built another one of that name there, from text; or it had been built there twice or more and was built again,
though the user's code, the sources and torch are all older than the library. Where it had been built there only once,
that is a candidate. The first build in a folder that lasts, and one after an edit, are left alone. The folder that
torch chooses is taken to last; in a container it may not.

## Sources
PyTorch documentation, `torch.utils.cpp_extension.load`, and its `_jit_compile`: ninja compiles what is older than its
sources, or was compiled by another command. The planted extension takes 6 s, without headers of torch; a line of C++
with `torch/extension.h` took 52 s on a busy machine (torch 2.13, gcc 12).
"""

from __future__ import annotations

from collections.abc import Iterator

from unstall.causes._cause import Cause
from unstall.causes.compiler._extension import FUNCTION, SOURCE
from unstall.causes.compiler._folders import is_passing, is_volatile
from unstall.causes.compiler._settings import ENVIRON, without
from unstall.causes.compiler._starts import is_paid_back
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Environment, Evidence, Finding, Line, Saving, Scope, Stake, Weight, Where
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.native import Build
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Tables

VARIABLE = "TORCH_EXTENSIONS_DIR"
LEAST_SAVED = 0.9  # of a build; loading takes ninja and the linker some tenths of a second
OFTEN = 2  # builds in a folder before this one, from which on one more is no chance

_PICTURE = f"""
    step   |{"s" * 2000}|ssssssssss
    main   |{"u" * 2000}|FFFFFBBBBO
    host   |{"r" * 1900}{"." * 100}|..........
"""
_LINE = Line("train.py", 12, "<module>", 'ext = load("ext", ["ext.cpp"], build_directory=folder)')
_SET = Line("train.py", 3, "<module>", f'os.environ["{VARIABLE}"] = tempfile.mkdtemp()')


def _given(
    folder: str = "/tmp/tmpk3v9x2qa", named: str = "argument", ms: int = 1900, steady_ms: int = 10, *,
    rebuilt: bool = True, had: bool = False, builds: int = 0, rewritten: bool = False, edited: bool = False,
    namesakes: int = 0, inline: bool = False, line: Line = _LINE, env: str = "", set_at: Line | None = None,
) -> Given:  # fmt: skip
    build = Build(
        "ext", line, ms * 1_000_000, Phase.STARTUP, folder, (), named, inline, rebuilt, had, builds, rewritten, edited,
        namesakes,
    )  # fmt: skip
    return Given(
        {f"env.{VARIABLE}": env} if env else {},
        {"builds": (build,), "steady_ns": steady_ms * 1_000_000, "set_at": lambda name: set_at},
    )


_BUILD = """\
{folder}
flags = ["-O3", "-march=native", "-DNDEBUG"]
ext = load_inline("bending", SOURCE, no_implicit_headers=True, extra_cflags=flags, build_directory=folder){mark}


"""
_LOOP = """\
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Linear(64, 64)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(60):
    loss = Bend.apply(net(torch.randn(32, 64))).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""
_LASTS = (
    'folder = os.path.join(tempfile.gettempdir(), "extensions_of_this_project")\nos.makedirs(folder, exist_ok=True)'
)


def _script(folder: str, mark: str) -> str:
    return SOURCE + _BUILD.format(folder=folder, mark=mark) + FUNCTION + _LOOP


class RebuiltExtension(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.EXTENSIONS})

    cases = (
        Fires(_PICTURE, 1900, _given()),
        Fires(_PICTURE, 1900, _given("/scratch/build/ext", had=True, rewritten=True)),
        Fires(_PICTURE, 1900, _given("/scratch/build/ext", had=True, builds=3)),
        Fires(_PICTURE, 1900, _given("/home/someone/ext", "", had=True, inline=True, namesakes=1)),
        Fires(_PICTURE, 1900, _given("/scratch/job_4711/ext", "variable", env="/scratch/job_4711")),
        Fires(_PICTURE, 1900, _given("/tmp/tmpk3v9x2qa/ext", "variable", set_at=_SET)),
        Silent(_PICTURE, "a folder that lasts, in its first use", _given("/scratch/build/ext")),
        Silent(_PICTURE, "the folder that torch chose, in its first use", _given("/home/someone/run_1", "")),
        Silent(_PICTURE, "it was only loaded", _given(rebuilt=False, had=True)),
        Silent(_PICTURE, "built again after an edit", _given("/scratch/build/ext", had=True, builds=3, edited=True)),
        Silent(_PICTURE, "of one name, from files of their own", _given("/home/someone/ext", "", namesakes=1)),
        Silent(_PICTURE, "compiled in a moment", _given(ms=600)),
        Silent(_PICTURE, "the loop has run for long: it is paid back", _given(steady_ms=60_000)),
    )

    planted = (
        Planted(
            before=_script("folder = tempfile.mkdtemp()", "  # <- fault"),
            after=_script(_LASTS, ""),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        for build in tables.builds:
            if not build.rebuilt or is_paid_back(build.ns, tables):
                continue
            where, why = _because(build, run, tables)
            title = f"The extension {build.name} is compiled at each start: {build.ns / 1e9:.3g} s in this one."
            if where is not None:
                yield self._of(build, where, title, why)
            elif build.had and not build.edited:
                because = "Nothing that it rests on is newer than the library that its folder held."
                yield Candidate(
                    self.id, f"The extension {build.name} was compiled again for {build.ns / 1e9:.3g} s.", build.line, because
                )  # fmt: skip

    def _of(self, build: Build, where: Where, title: str, why: str) -> Finding:
        return Finding(
            self.id, title, where, Scope.STARTUP, (Stake(build.phase, Activity.COMPILE, build.ns),),
            Weight.TIMED, Basis.MEASURED,
            (
                Evidence("in the compiler", build.ns, "ns", "rank 0: facts extension"),
                Evidence("built in that folder before", build.builds, "count", "rank 0: facts extension"),
            ),
            Saving(int(LEAST_SAVED * build.ns), build.ns),
            notes=(why, "paid once a start, from the second on"),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = (
            f"build it in a folder that lasts (build_directory, or {VARIABLE}), under a name of its own, from sources and "
            "flags that are the same at each start; or build it once, by setup.py with BuildExtension, and import it"
        )
        edits = without(finding.where, ENVIRON + VARIABLE)
        yield Remedy(
            f"{self.id}#keep", "let the next start find what this one has built", Safety.SAME_BITS, edits, (), why
        )


def _because(build: Build, run: Run, tables: Tables) -> tuple[Where | None, str]:
    """Return what makes the next start build it again, and in words why; None where nothing is known to."""
    if build.rewritten:
        return build.line, "the script wrote its source anew in this run, so it is newer than any library"
    if build.namesakes and build.inline:  # both are compiled from one file, main.cpp
        return build.line, f"another extension is called {build.name} in this run, and each takes the other's place"
    if build.named and not build.had:
        line = tables.set_at(VARIABLE) if build.named == "variable" else build.line
        code = line.code if line is not None else ""
        if is_passing(build.folder) or is_volatile(code):
            given = build.named == "variable" and run.facts.text(f"env.{VARIABLE}")
            where = Environment(VARIABLE) if given else line or build.line
            return where, f"the folder of this run: {build.folder}"
    if build.had and not build.edited and build.builds >= OFTEN:
        return build.line, "nothing that it rests on was edited since: its text or its flags differ from start to start"
    return None, ""
