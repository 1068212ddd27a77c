"""`torch.compile` is called within the loop, and what it makes is compiled anew each time.

## What it is
The call stands in the body of an epoch or of a step, or in a function that is called from there, together with what
makes the compiler forget: `torch._dynamo.reset()`, a function that is defined anew and holds another value, another
backend object or options.

## Why it costs
A compilation takes from a tenth of a second to minutes, and the loop waits for it each time. Compiled once, the
program is kept for all later steps.

## How it is told
Each call of `torch.compile` and `Module.compile` is noted with its line and the step it was made in. Named is a line
that asked in three steps or more, if compile windows of what it asked for opened in three steps or more. Those after
the first step count. A call in the loop that finds its program again costs next to nothing, and is not told; nor are
many calls before the loop, as one for each block.

## Sources
PyTorch documentation, "torch.compile Troubleshooting" and `torch.compiler.reset`; measured with torch 2.13: calling
`torch.compile` on the same module each step finds the program again, with `torch._dynamo.reset()` each takes 0.2 s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import Compile, Tables

LEAST_STEPS = 3  # in which it was asked for, and in which something was compiled
OFTEN = 2.0  # steps between calls, up to which the time is every step's
LEAST_SAVED = 0.8  # of the time: what is compiled once may take longer, with sizes left open

_SITE = Line("train.py", 12, "main", "step = torch.compile(step)")
_PICTURE = """
    step   |ssssssssss|ssssssssss|ssssssssss|ssssssssss
    main   |FFFFFFFBBO|FFFFFFFBBO|FFFFFFFBBO|FFFFFFFBBO
    host   |rrrrr.....|rrrrr.....|rrrrr.....|rrrrr.....
"""


def _given(asked: Sequence[int], compiled: Sequence[int]) -> Given:
    facts: dict[str, Fact] = {f"compile:{n}": {"site": "train.py:12:main", "step": at} for n, at in enumerate(asked)}
    windows = tuple(Compile(n * 10_000_000, 5_000_000, 0, "0/0", None, _SITE, step=n, steady=True) for n in compiled)
    return Given(facts=facts, tables={"compiles": windows})


_PLANTED = """\
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
{once}

def train_epoch(data):
{body}
        loss = fast(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss


for epoch in range(12):
    print(epoch, train_epoch(torch.randn(10, 8, 32)).item())
"""
_EACH = """\
    torch._dynamo.reset()
    fast = torch.compile(net, backend="aot_eager")  # <- fault
    for x in data:"""


class CompileInLoop(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER})

    cases = (
        Fires(_PICTURE, 15, _given((0, 1, 2, 3), (0, 1, 2, 3))),
        Silent(_PICTURE, "the program is found again", _given((0, 1, 2, 3), (0,))),
        Silent(_PICTURE, "each block is compiled before the loop", _given((0, 0, 0, 0), (0, 1, 2, 3))),
        Silent(_PICTURE, "asked for once: a storm has other reasons", _given((0,), (0, 1, 2, 3))),
    )

    planted = (
        Planted(
            before=_PLANTED.format(once="", body=_EACH),
            after=_PLANTED.format(once='fast = torch.compile(net, backend="aot_eager")\n', body="    for x in data:"),
            also=frozenset({"compiler/debug-backend"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        asked: dict[str, set[int]] = defaultdict(set)
        for told in run.ranks[0].facts.family("compile").values():
            asked[told.text("site") or ""].add(int(told.number("step") or 0))
        for site, steps in asked.items():
            line = tables.place(site) if site else None
            if line is not None and len(steps) >= LEAST_STEPS:
                finding = self._of(line, sorted(steps), tables)
                if finding is not None:
                    yield finding

    def _of(self, site: Line, asked: Sequence[int], tables: Tables) -> Finding | None:
        windows = [w for w in tables.compiles if w.site and (w.site.file, w.site.line) == (site.file, site.line)]
        if len({window.step for window in windows}) < LEAST_STEPS:
            return None
        again = [window for window in windows if window.step > min(w.step for w in windows)]
        often = (asked[-1] - asked[0]) / (len(asked) - 1) <= OFTEN
        scope = Scope.STEADY if often else Scope.PERIODIC
        counted = [window for window in again if window.steady] if often else again
        spent_ns = sum(window.ns for window in counted)
        if spent_ns < LEAST_SHARE * tables.steady_ns:
            return None
        phases: dict[Phase, int] = defaultdict(int)
        for window in counted:
            phases[window.phase] += window.ns
        per = max(1, tables.steady_steps) if often else 1
        times = len({window.step for window in again})
        return Finding(
            self.id,
            f"Compiled anew in {times} steps, because torch.compile is called within the loop: {spent_ns / 1e9:.3g} s.",
            site,
            scope,
            tuple(Stake(phase, Activity.COMPILE, ns) for phase, ns in sorted(phases.items())),
            Weight.TIMED,
            Basis.MEASURED,
            (
                Evidence("steps in which compilation was asked for", len(asked), "count", "rank 0: facts compile"),
                Evidence("steps in which it was compiled again", times, "count", "rank 0: events COMPILE"),
                Evidence("time in them", spent_ns, "ns", "rank 0: events COMPILE"),
            ),
            Saving(int(LEAST_SAVED * spent_ns / per), spent_ns // per),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = (
            "call torch.compile once, before the loop; hand over what changes as a tensor argument, and do not call "
            "torch._dynamo.reset() between epochs"
        )
        yield Remedy(f"{self.id}#once", "compile once, before the loop", Safety.SAME_MATH, (), (), why)
