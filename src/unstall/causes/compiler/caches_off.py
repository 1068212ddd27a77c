"""The compiler's caches are switched off, and each start of the program compiles all anew.

## What it is
`TORCHINDUCTOR_FORCE_DISABLE_CACHES=1`, `TORCHINDUCTOR_FX_GRAPH_CACHE=0`, `torch._inductor.config.force_disable_caches`
or `fx_graph_cache = False` is left from a measurement of compile time, or from a search for an error.

## Why it costs
Inductor writes its kernels and calls the C++ compiler or Triton for each graph, at every start: a job that is restarted
ten times, or a search with a hundred short runs, pays it each time. With the caches a second start traces the model
and loads the rest.

## How it is told
The settings are read when Inductor makes its first graph, and compile windows are timed. Told are first compilations
of a second or more that take a tenth of the loop recorded so far; below that they have been paid back. Named is the
variable, where the command was started with it, else the line that sets it. A cache that serves saves what Inductor
itself took, as the compiler tells (0.85 to 1 of it); where it does not, between 0.5 and 0.9 of the windows.

## Sources
PyTorch tutorial, "Compile Time Caching in torch.compile". The model of the planted case took 30 s to compile
without caches and 3 s with them (torch 2.13, CPU, on a machine that others used as well).
"""

from __future__ import annotations

from collections.abc import Iterator

from unstall.causes._cause import Cause
from unstall.causes.compiler._settings import ENVIRON, INDUCTOR, without
from unstall.causes.compiler._starts import PICTURE, TRAINING, cache_in
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Environment, Finding, Scope, Weight, Where
from unstall.model.ledger import Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety, SetEnvironment
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import Compile, Tables

VARIABLES = {  # what switches the caches off -> what leaves them on
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "0",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
}
SETTINGS = ("force_disable_caches", "fx_graph_cache")


def _given(off: bool = True, ms: int = 1200, steady_ms: int = 10, number: int = 0) -> Given:
    cache: dict[str, Fact] = {"off": off, "folder": "/cache", "set": False}
    asked: dict[str, Fact] = {"site": "train.py:20:main"}
    window = Compile(0, ms * 1_000_000, number, f"0/{number}", None, None, phase=Phase.FORWARD)
    return Given(
        {"compile_cache": cache, "compile:0": asked}, {"compiles": (window,), "steady_ns": steady_ms * 1_000_000}
    )


_HEAD = """\
import torch
from torch import nn
{off}

"""


class CachesOff(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER})

    cases = (
        Fires(PICTURE, 1200, _given()),
        Silent(PICTURE, "they are on: a first start has to compile", _given(off=False)),
        Silent(PICTURE, "compiled in a moment", _given(ms=600)),
        Silent(PICTURE, "the loop has run for long: it is paid back", _given(steady_ms=60_000)),
        Silent(PICTURE, "recompilations are another fault", _given(number=1)),
    )

    planted = (
        Planted(
            before=_HEAD.format(off="torch._inductor.config.force_disable_caches = True  # <- fault\n") + TRAINING,
            after=_HEAD.format(off="") + TRAINING,
            also=frozenset({"compiler/long-cold-start"}),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        cache = cache_in(run, tables)
        where = _where(run, tables) if cache is not None and cache.off else None
        if cache is None or where is None:
            return
        yield Finding(
            self.id, f"The compiler's caches are off: this start compiled for {cache.ns / 1e9:.3g} s.", where,
            Scope.STARTUP, tuple(cache.stakes), Weight.NEEDLESS, Basis.MEASURED, cache.evidence[:1],
            cache.saving,
            notes=("paid once a start, from the second on: a first start fills the cache",),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = "the same code is compiled, or loaded"
        if isinstance(finding.where, Environment):
            variable = finding.where.variable
            edit = SetEnvironment(variable, VARIABLES[variable])
            yield Remedy(f"{self.id}#on", f"start without {variable}", Safety.SAME_BITS, (edit,), (), why)
        else:
            edits = without(
                finding.where, *(ENVIRON + name for name in VARIABLES), *(INDUCTOR + name for name in SETTINGS)
            )
            yield Remedy(f"{self.id}#on", "take out what switches the caches off", Safety.SAME_BITS, edits, (), why)


def _where(run: Run, tables: Tables) -> Where | None:
    for variable, on in VARIABLES.items():
        if run.facts.text(f"env.{variable}") not in (None, "", on):
            return Environment(variable)
    asked = run.ranks[0].facts.family("compile").values()
    sites = (line for one in asked if (line := tables.place(one.text("site") or "")))
    return next((line for name in (*VARIABLES, *SETTINGS) if (line := tables.set_at(name))), None) or next(sites, None)
