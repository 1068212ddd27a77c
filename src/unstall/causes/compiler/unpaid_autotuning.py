"""The compiler tries several kernels for each matrix product, and the steps do not win back what that takes.

## What it is
`torch.compile(mode="max-autotune")`, or `max_autotune` and `max_autotune_gemm` in Inductor's settings: for each matrix
product, convolution or attention of a graph, kernels are written by several templates, compiled, and timed beside the
library's own, and the fastest is taken.

## Why it costs
Each candidate is compiled by the C++ compiler or by Triton, seconds each. Where the library's kernel is as fast as any, as
it often is for large matrices and on a CPU, nothing is won. A job that is restarted pays again where the cache of compiled
code does not last.

## How it is told
The time of each search is told by the compiler, with the time of each kernel in it: what is won is the library's time less
that of the one that was taken, once for each such operator of the graphs, a step. Told are searches of a second or more in
all that take a tenth of the loop recorded so far, where the steps of the run have not won them back. Where the run was
ended by us the job is longer: then it is a finding only if a million steps would not do, and else a candidate that says how
many do. Named is the call of `torch.compile` that asked for it, the variable, or the line that sets it. Triton's own search
over block sizes, which runs when a kernel is first called on a GPU, is not timed here.

## Sources
PyTorch documentation, `torch.compile` (modes) and tutorial, "Using Max-Autotune Compilation on CPU". Measured on 2 cores,
torch 2.13: two batched products, 4 x 32 x 64 by 4 x 64 x 64, took 6.2 s of 21 s of compiling to search, 11.2 s on a busier
machine, and the library's kernel was taken for both: 0.019 and 0.013 ms, against 0.024 ms for the template's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from unstall.causes._cause import Cause
from unstall.causes._configured import is_library
from unstall.causes.compiler._asked import set_where_asked
from unstall.causes.compiler._settings import ENVIRON, INDUCTOR, without
from unstall.causes.compiler._starts import is_paid_back
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Environment, Evidence, Finding, Line, Saving, Scope, Stake, Weight, Where
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Edit, Remedy, Safety, SetEnvironment
from unstall.model.run import Fact, Facts, Run, Sensor
from unstall.model.tables import Compile, Tables

MOST_STEPS = 1_000_000  # of a job whose length is not known; what they do not win back is not
VARIABLES = ("TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM")
SETTINGS = ("max_autotune_gemm", "max_autotune")

_PICTURE = f"""
    step   |{"s" * 3300}|ssssssssss
    main   |{"F" * 3300}|FFFFFFFFBO
    host   |{"r" * 3200}{"." * 100}|..........
"""
_SET = Line("train.py", 4, "", "torch._inductor.config.max_autotune = True")


def _given(
    ms: int = 2000, best: float = 0.02, usual: float | None = 0.02, steady_ms: int = 10, mode: str = "max-autotune", *,
    stopped: str = "", set_at: Line | None = None,
) -> Given:  # fmt: skip
    search: dict[str, Fact] = {
        "operator": "bmm", "choices": 2, "ns": ms * 1_000_000, "best_ms": best, "usual_ms": usual, "uses": 1,
        "phase": "FORWARD",
    }  # fmt: skip
    settings: dict[str, Fact] = {"mode": mode} if mode else {}
    asked: dict[str, Fact] = {"site": "train.py:20:main", "settings": settings}
    window = Compile(0, 3_200_000_000, 0, "0/0", None, None, phase=Phase.FORWARD)
    uses: dict[str, Fact] = {"uses": 3}
    return Given(
        {"tuned:0": search, "tuned_uses:0": uses, "compile:0": asked, "stopped": stopped},
        {"compiles": (window,), "steady_ns": steady_ms * 1_000_000, "set_at": lambda name: set_at},
    )


_PLANTED = """\
import os
import shutil
import tempfile
import torch
from torch import nn

FOLDER = os.path.join(tempfile.gettempdir(), "inductor_of_a_first_start")
shutil.rmtree(FOLDER, ignore_errors=True)
os.environ["TORCHINDUCTOR_CACHE_DIR"] = FOLDER


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 64, 64) / 8)

    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(torch.bmm(x, self.weight))
        return x


torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
net.compile(mode="{mode}"){mark}
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(60):
    loss = net(torch.randn(4, 32, 64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


@dataclass(frozen=True, slots=True)
class _Searches:
    """All searches of the run: ns by phase, operators, and ns that a step wins by what was found."""

    spent: tuple[tuple[Phase, int], ...]
    count: int
    won_ns: float

    @property
    def ns(self) -> int:
        return sum(ns for _, ns in self.spent)

    @property
    def steps(self) -> float:
        """Return after how many steps they are won back; infinite where nothing was won."""
        return self.ns / self.won_ns if self.won_ns > 0 else float("inf")


class UnpaidAutotuning(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER})

    cases = (
        Fires(_PICTURE, 2000, _given()),
        Fires(_PICTURE, 2000, _given(best=0.019)),
        Fires(_PICTURE, 2000, _given(stopped="20 steady steps")),
        Fires(_PICTURE, 2000, _given(mode="", set_at=_SET)),
        Fires(_PICTURE, 0, _given(best=0.019, stopped="20 steady steps")),
        Silent(_PICTURE, "searched in a moment, or found in a cache", _given(ms=600)),
        Silent(_PICTURE, "the steps have won it back", _given(usual=700.0)),
        Silent(_PICTURE, "the loop has run for long: it is little beside it", _given(steady_ms=60_000)),
        Silent(_PICTURE, "there is no kernel of a library to fall back to", _given(usual=None)),
        Silent(_PICTURE, "nobody of the user's asked for it", _given(mode="")),
    )

    planted = (
        Planted(
            before=_PLANTED.format(mode="max-autotune-no-cudagraphs", mark="  # <- fault"),
            after=_PLANTED.format(mode="default", mark=""),
            also=frozenset({"compiler/long-cold-start", "kernels/too-few-threads"}),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        searches = _searches(run.ranks[0].facts, tables)
        if searches is None or is_paid_back(searches.ns, tables) or searches.steps <= tables.steady_steps:
            return
        where = _where(run, tables)
        if where is None:
            return
        if run.facts.text("stopped") and searches.steps <= MOST_STEPS:
            title = f"The search for the fastest kernels took {searches.ns / 1e9:.3g} s."
            yield Candidate(self.id, title, where, f"It is won back after {searches.steps:.2g} steps.")
        else:
            yield self._of(where, searches, tables)

    def _of(self, where: Where, searches: _Searches, tables: Tables) -> Finding:
        won_ns = int(searches.won_ns * tables.steady_steps)
        won = f"is won back after {searches.steps:.2g} steps" if searches.won_ns > 0 else "won nothing"
        return Finding(
            self.id, f"The search for the fastest kernels took {searches.ns / 1e9:.3g} s and {won}.", where,
            Scope.STARTUP, tuple(Stake(phase, Activity.COMPILE, ns) for phase, ns in searches.spent), Weight.TIMED,
            Basis.MEASURED,
            (
                Evidence("in searches", searches.ns, "ns", "rank 0: facts tuned"),
                Evidence("operators searched for", searches.count, "count", "rank 0: facts tuned"),
                Evidence("won by what was found", searches.won_ns, "ns a step", "rank 0: facts tuned"),
            ),
            Saving(max(0, searches.ns - won_ns), searches.ns),
            notes=("paid once a start, where no cache of an earlier one holds what was found",),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = "other kernels of the same products round differently; search once, and keep the cache, where it pays"
        edits: tuple[Edit, ...] = without(
            finding.where, *(INDUCTOR + name for name in SETTINGS), *(ENVIRON + name for name in VARIABLES)
        )
        title = "compile without the search"
        if isinstance(finding.where, Environment):
            edits = (SetEnvironment(finding.where.variable, "0"),)
        for line, mode in _asked_for(run, tables):
            if line == finding.where and mode and not is_library(line.file):
                other = "reduce-overhead" if mode == "max-autotune" and tables.device is not None else "default"
                edits, title = (set_where_asked(line, "mode", other),), f'mode="{other}"'
        yield Remedy(f"{self.id}#mode", title, Safety.SAME_MATH, edits, (), why)


def _searches(facts: Facts, tables: Tables) -> _Searches | None:
    """Return the searches; None where there was none, or for one of them no library's kernel is known."""
    found, uses = facts.family("tuned"), facts.family("tuned_uses")
    spent: dict[Phase, int] = defaultdict(int)
    won_ns = 0.0
    for number, one in found.items():
        best_ms, usual_ms, phase = one.number("best_ms"), one.number("usual_ms"), one.text("phase") or ""
        if best_ms is None or usual_ms is None or phase not in Phase.__members__:
            return None
        again = uses[number].number("uses") if number in uses else one.number("uses")
        won_ns += 1e6 * max(0.0, usual_ms - best_ms) * (again or 1)
        spent[Phase[phase]] += int(one.number("ns") or 0)
    compiled: dict[Phase, int] = defaultdict(int)
    for window in tables.compiles:
        if not window.steady:
            compiled[window.phase] += window.ns
    within = tuple((phase, min(ns, compiled[phase])) for phase, ns in sorted(spent.items()) if compiled[phase])
    return _Searches(within, len(found), won_ns) if within else None


def _asked_for(run: Run, tables: Tables) -> Iterator[tuple[Line, str]]:
    """Yield the lines that ask for compilation with a search, and the mode; "" where the options say so."""
    for one in run.ranks[0].facts.family("compile").values():
        settings = one.known.get("settings")
        line = tables.place(one.text("site") or "")
        if line is None or not isinstance(settings, dict):
            continue
        mode = str(settings.get("mode", ""))
        if mode.startswith("max-autotune"):
            yield line, mode
        elif "max_autotune" in str(settings.get("options", "")):
            yield line, ""


def _where(run: Run, tables: Tables) -> Where | None:
    """Return what asks for the search: a call that compiles, a variable, or a line that sets it."""
    asked = next((line for line, _ in _asked_for(run, tables)), None)
    given = (Environment(name) for name in VARIABLES if run.facts.text(f"env.{name}") not in (None, "", "0"))
    return (
        asked
        or next(given, None)
        or next((at for name in (*VARIABLES, *SETTINGS) if (at := tables.set_at(name))), None)
    )
