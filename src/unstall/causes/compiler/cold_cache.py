"""Compiled code is kept in a folder, or under a key, that each start makes anew: none finds what one before has compiled.

## What it is
`TORCHINDUCTOR_CACHE_DIR` names a temporary folder, or one with the number of the job, of the process or of the rank in
its name. Nothing is ever found in it. Or the folder lasts, but a Python number that the compiled function reads is another
one at each start, as a scale that is drawn at random or a time: it is part of the program, and so of the key.

## Why it costs
Inductor writes its kernels and calls the C++ compiler or Triton for each graph, at every start, and with a folder for
each rank, once for each of them. With a folder that lasts, a second start traces the model and loads the rest.

## How it is told
The compiler tells of each look into its caches whether it found the graph. Told are first compilations of a second or
more that take a tenth of the loop recorded so far, with no graph found, in a folder that a variable names, in which
nothing is older than this run, and whose name, or the line that sets it, shows that the next run's will be another
one. The usual folder in its first use is left alone. Named is the variable, where the command was started with it,
else the line that sets it. A cache that serves saves what Inductor itself took, as the compiler tells (0.85 to 1 of
it); where it does not, between 0.5 and 0.9 of the windows.

In a folder that lasts, where no graph was found, the code that is written for one is held against what earlier starts left
there. Told are two or more that differ from it in their fractions alone; one may be of an edit, and is a candidate. Named
is the line at which the graph has the number. A key that changes with a whole number, as a size, or with a setting is not
told: those are often meant. It takes three starts to be seen: tests/probes/test_earlier.py makes them.

## Sources
PyTorch tutorial, "Compile Time Caching in torch.compile", and `torch.compiler.save_cache_artifacts`.
Measured with a scale drawn at each start (torch 2.13, CPU): two graphs compiled anew each time, 16 and 26 KB of code, which
differed in one number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from unstall.causes._cause import Cause
from unstall.causes.compiler._drifting import Drifting, drifting
from unstall.causes.compiler._folders import is_passing, is_volatile
from unstall.causes.compiler._settings import ENVIRON, without
from unstall.causes.compiler._starts import PICTURE, TRAINING, Cache, cache_in
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Environment, Evidence, Finding, Line, Scope, Weight, Where
from unstall.model.ledger import Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import Compile, Tables

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
OFTEN = 2  # earlier starts with another number in the graph, from which on one more is no chance


def _given(
    folder: str = "/scratch/job_4711", fresh: bool = True, hits: int = 0, steady_ms: int = 10, earlier: int = 0,
    at: str = "train.py:12:f", frame: str = "train.py:9:f",
) -> Given:  # fmt: skip
    cache: dict[str, Fact] = {
        "off": False, "folder": folder, "set": True, "fresh": fresh, "hit": hits, "miss": 2
    }  # fmt: skip
    graph: dict[str, Fact] = {"at": at, "frame": frame, "now": "0.93", "then": "1.07"}
    graph |= {"earlier": earlier} if earlier else {}
    window = Compile(0, 1_200_000_000, 0, "0/0", None, None, phase=Phase.FORWARD)
    asked: dict[str, Fact] = {"site": "train.py:20:main"}
    return Given(
        {"compile_cache": cache, "compile:0": asked, "fusion:0": graph},
        {"compiles": (window,), "steady_ns": steady_ms * 1_000_000},
    )


_HEAD = """\
import os
import tempfile
import torch
from torch import nn

{set}


"""


class ColdCache(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER})

    cases = (
        Fires(PICTURE, 1200, _given()),
        Fires(PICTURE, 1200, _given("/tmp/tmpk3v9x2qa")),
        Fires(PICTURE, 1200, _given("/kept", False, earlier=2)),
        Fires(PICTURE, 1200, _given("/kept", False, earlier=2, at="")),
        Fires(PICTURE, 0, _given("/kept", False, earlier=1)),
        Silent(PICTURE, "another number in the graph, but the cache served", _given("/kept", False, 1, earlier=2)),
        Silent(PICTURE, "another number, paid back", _given("/kept", False, steady_ms=60_000, earlier=2)),
        Silent(
            PICTURE,
            "the number is in no function of the user's",
            _given("/kept", False, earlier=2, at="", frame="/lib/python3.11/site-packages/a/b.py:3:f"),
        ),
        Silent(PICTURE, "a folder that lasts, in its first use", _given("/home/someone/.cache/inductor")),
        Silent(PICTURE, "there is older work in it", _given(fresh=False)),
        Silent(PICTURE, "it served", _given(hits=2)),
        Silent(PICTURE, "the loop has run for long: it is paid back", _given(steady_ms=60_000)),
    )

    planted = (
        Planted(
            before=_HEAD.format(set=f'os.environ["{VARIABLE}"] = tempfile.mkdtemp()  # <- fault') + TRAINING,
            after=_HEAD.format(
                set=f'os.environ["{VARIABLE}"] = os.path.join(tempfile.gettempdir(), "inductor_of_this_project")'
            )
            + TRAINING,
            also=frozenset({"compiler/long-cold-start"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        cache = cache_in(run, tables)
        if cache is None or cache.off or cache.hits or not cache.misses:
            return
        where = _where(cache, run, tables) if cache.named and cache.fresh else None
        number = drifting(run, tables)
        if where is not None:
            title = f"No start finds what another has compiled: this one compiled for {cache.ns / 1e9:.3g} s."
            yield self._of(where, title, cache, f"the folder of this run: {os.path.basename(cache.folder)}")
        elif number is not None and number.starts >= OFTEN:
            title = (
                f"A number in the graph differs at each start, and this one compiled anew for {cache.ns / 1e9:.3g} s."
            )
            yield self._of(number.line, title, cache, f"the number: {number.said}", number)
        elif number is not None:
            title = f"A number in the graph differs from that of an earlier start: {number.said}."
            because = "Where it differs at each start, none finds what another has compiled."
            yield Candidate(self.id, title, number.line, because)

    def _of(self, where: Where, title: str, cache: Cache, note: str, number: Drifting | None = None) -> Finding:
        evidence = cache.evidence
        if number is not None:
            evidence += (Evidence("earlier ones with another number", number.starts, "count", "rank 0: facts fusion"),)
        return Finding(
            self.id, title, where, Scope.STARTUP, tuple(cache.stakes), Weight.NEEDLESS, Basis.MEASURED, evidence,
            cache.saving,
            notes=(note, "paid once a start, from the second on"),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        number = drifting(run, tables)
        if number is not None and number.line == finding.where:
            why = (
                "hold the number in a tensor (register_buffer, or an argument of the compiled function), which is read at "
                "run time, or make it the same at each start"
            )
            yield Remedy(f"{self.id}#tensor", "keep the number out of the graph", Safety.SAME_MATH, (), (), why)
            return
        why = (
            f"set {VARIABLE} to a folder that lasts and that all ranks of a machine share; or carry it over with "
            "torch.compiler.save_cache_artifacts and load_cache_artifacts"
        )
        edits = without(finding.where, ENVIRON + VARIABLE)
        if edits:
            why = f"the usual folder lasts, as long as the machine's temporary folder does; or {why}"
        yield Remedy(f"{self.id}#keep", "keep compiled code in a folder that lasts", Safety.SAME_BITS, edits, (), why)


def _where(cache: Cache, run: Run, tables: Tables) -> Where | None:
    """Return what makes the folder another one at each start; None where it looks as if it lasts."""
    passing = is_passing(cache.folder)
    if run.facts.text(f"env.{VARIABLE}"):
        return Environment(VARIABLE) if passing else None
    line: Line | None = tables.set_at(VARIABLE)
    if line is not None:
        return line if passing or is_volatile(line.code) else None
    asked = run.ranks[0].facts.family("compile").values()
    return next((at for one in asked if (at := tables.place(one.text("site") or ""))), None) if passing else None
