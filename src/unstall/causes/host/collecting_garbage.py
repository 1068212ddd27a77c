"""The loop stops to look for garbage: it asks for a collection, or keeps so many objects that each one is dear.

## What it is
Either `gc.collect()` is called in the loop (by the training, or by a library on its behalf), or the interpreter
starts full collections by itself, over a great many live objects.

## Why it costs
Objects are freed when the last reference to them goes; the collector only finds cycles. To do that a full collection
visits every container that is alive, whatever there is to free: with a corpus of a million small objects in
memory it takes a third of a second, each time. On a GPU `torch.cuda.empty_cache()`, which often stands beside the call,
adds to it: the device is waited for, and the memory is allocated anew.

## How it is told
Every collection is timed by the interpreter's own callback, with the line on which it began. On a line that calls
`collect` it was asked for; elsewhere it came by itself. Named from 2 % of the step on.

## Sources
Python documentation, `gc`: `freeze`, `set_threshold`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import head_file
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import AddCall, Remedy, RemoveCall, Safety, Switch
from unstall.model.run import Run, Sensor
from unstall.model.tables import Collections, Tables

FULL = 2  # the generation that holds all that lived long
LEAST_FULL = 3  # collections that came by themselves; fewer are chance
THRESHOLDS = (
    50_000,
    20,
    100,
)  # of Python's 700 (2,000 since 3.13), 10 and 10: a full collection for 100 million new objects
_STATEMENT = re.compile(r"^(?:\w+\.)*collect\(\s*\)\s*(?:#.*)?$")
_MS = 1_000_000

_PICTURE = """
    step   |ssssssssss|ssssssssss|ssssssssss
    main   |bbbbFFBBBO|bbbbFFBBBO|bbbbFFBBBO
    host   |gggg......|gggg......|gggg......
"""
_ASKED = Collections(Line("train.py", 20, code="gc.collect()"), True, 3, 12 * _MS, FULL, Phase.BETWEEN)
_BY_ITSELF = Collections(Line("train.py", 17, code="rows.append(row)"), False, 3, 12 * _MS, FULL, Phase.BETWEEN)


class CollectingGarbage(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.GARBAGE})

    cases = (
        Fires(_PICTURE, spent_ms=12, given=Given(tables={"collections": (_ASKED,)})),
        Fires(_PICTURE, spent_ms=12, given=Given(tables={"collections": (_BY_ITSELF,)})),
        Silent(
            "step   |ssssssssss|ssssssssss\nmain   |DFFFFBBBBO|DFFFFBBBBO",
            "collections in every step, in next to no time",
            Given(tables={"collections": (Collections(Line("train.py", 20), True, 2, 300_000, FULL, Phase.BETWEEN),)}),
        ),
        Silent(
            """
            step   |ssssssssss|ssssssssss
            main   |bbbFFFBBBO|DDDFFFBBBO
            host   |ggg.......|..........
            """,
            "one full collection that came by itself",
            Given(tables={"collections": (Collections(Line("train.py", 17), False, 1, 3 * _MS, FULL, Phase.BETWEEN),)}),
        ),
    )

    planted = (
        Planted(
            before='''\
import gc
import torch
from torch import nn

torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
corpus = [{"text": [i, i + 1], "label": i % 10} for i in range(20_000)]
net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(15):
    rows = [corpus[(37 * step + i) % len(corpus)] for i in range(16)]
    x = torch.tensor([row["text"] for row in rows]) / len(corpus)
    loss = nn.functional.cross_entropy(net(x), torch.tensor([row["label"] for row in rows]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    gc.collect()  # <- fault
print(round(loss.item(), 4))
''',
            after='''\
import gc
import torch
from torch import nn

torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
corpus = [{"text": [i, i + 1], "label": i % 10} for i in range(20_000)]
net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(15):
    rows = [corpus[(37 * step + i) % len(corpus)] for i in range(16)]
    x = torch.tensor([row["text"] for row in rows]) / len(corpus)
    loss = nn.functional.cross_entropy(net(x), torch.tensor([row["label"] for row in rows]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(round(loss.item(), 4))
''',
            also=frozenset({"kernels/too-few-threads", "data/starved-loader"}),
        ),
        Planted(
            before='''\
import torch
from torch import nn

torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
seen = []
for step in range(160):
    x = torch.randn(256, 8)
    loss = (net(x) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    rows = x.tolist()
    seen += [{"value": [v, i], "step": [step]} for row in rows for i, v in enumerate(row)]  # <- fault
print(round(loss.item(), 4), len(seen))
''',
            after='''\
import torch
from torch import nn

torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
seen = []
for step in range(160):
    x = torch.randn(256, 8)
    loss = (net(x) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    seen.append(x)
print(round(loss.item(), 4), len(seen))
''',
            also=frozenset({"kernels/too-few-threads", "memory/graph-kept-alive", "host/hot-line"}),
            edited=False,
        ),
    )  # fmt: skip

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        asked: dict[Line, list[Collections]] = {}
        for group in tables.collections:
            if group.explicit:
                asked.setdefault(_in_loop(group.line, tables), []).append(group)
        for line, groups in asked.items():
            if sum(group.spent_ns for group in groups) >= LEAST_SHARE * tables.steady_ns:
                yield self._asked(line, groups, ledger, tables)
        by_itself = [group for group in tables.collections if not group.explicit]
        full = sum(group.count for group in by_itself if group.generation == FULL)
        spent = sum(group.spent_ns for group in by_itself if group.generation == FULL)
        if full >= LEAST_FULL and spent >= LEAST_SHARE * tables.steady_ns:
            yield self._by_itself(by_itself, ledger, tables)

    def _asked(self, line: Line, groups: Sequence[Collections], ledger: Ledger, tables: Tables) -> Finding:
        count, spent = sum(group.count for group in groups), sum(group.spent_ns for group in groups)
        steps = max(1, tables.steady_steps)
        asks = groups[0].line
        where = Line(line.file, line.line, line.function, line.code, groups[0].called or line.framework, line.key)
        through = () if _same(line, asks) else (f"the collection is asked for at {asks.file}:{asks.line}",)
        return Finding(
            self.id,
            f"The loop collects garbage {count / steps:.2g} times a step, each time for {spent / count / 1e6:.3g} ms.",
            where, Scope.STEADY, _stakes(groups[0].phase, spent, ledger, tables), Weight.TIMED, Basis.MEASURED,
            _evidence(count, spent), Saving(int(0.85 * spent / steps), int(spent / steps)), notes=through,
        )  # fmt: skip

    def _by_itself(self, groups: Sequence[Collections], ledger: Ledger, tables: Tables) -> Finding:
        full = [group for group in groups if group.generation == FULL]
        count, spent = sum(group.count for group in full), sum(group.spent_ns for group in full)
        steps = max(1, tables.steady_steps)
        lines: dict[Line, int] = {}
        for group in full:
            lines[group.line] = lines.get(group.line, 0) + group.spent_ns
        where = max(lines, key=lambda line: lines[line])
        in_fetch = sum(group.spent_ns for group in full if group.phase is Phase.FETCH)
        # what makes the objects of a batch tells more, where a cause knows it
        weight = Weight.NEEDLESS if 2 * in_fetch > spent else Weight.TIMED
        return Finding(
            self.id,
            f"The interpreter made {count} full garbage collections of {spent / count / 1e6:.3g} ms each "
            f"in {steps} steps: a great many objects are alive.",
            where, Scope.STEADY, _stakes(Phase.BETWEEN, spent, ledger, tables), weight, Basis.MEASURED,
            (
                *_evidence(count, spent),
                Evidence("lines on which they began", len(lines), "count", "rank 0: events GC"),
                Evidence("of their time, this line", lines[where] / spent, "share", "rank 0: events GC"),
            ),
            Saving(int(0.5 * spent / steps), int(spent / steps)),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        line = finding.where
        assert isinstance(line, Line)
        asked = [g for g in tables.collections if g.explicit and _same(_in_loop(g.line, tables), line)]
        if not asked:
            yield Remedy(
                f"{self.id}#freeze", "freeze what is alive before the loop, and make fewer objects in it",
                Safety.SAME_BITS,
                why="Call gc.collect(); gc.freeze() after the data and the model are made: what is alive then is never "
                "visited again. Where the loop itself makes the objects, keep arrays instead of many small objects, or "
                "raise gc.set_threshold.",
            )  # fmt: skip
            file = head_file(run, tables)
            yield Remedy(
                f"{self.id}#seldom", "let the interpreter collect garbage less often", Safety.SAME_BITS,
                (AddCall(file, "gc.set_threshold", THRESHOLDS),) if file is not None else (),
                why="what no cycle holds is freed as before; cycles, and the memory that they hold, are kept for longer",
                switch=_seldom(tables) if file is not None else None,
            )  # fmt: skip
            return
        asks = asked[0].line
        if _STATEMENT.match(asks.code):
            yield Remedy(
                f"{self.id}#remove", "remove gc.collect() from the loop", Safety.SAME_BITS,
                (RemoveCall(asks.file, asks.line, "gc.collect"),),
                why="what no cycle holds is freed without it; cycles wait for the collector itself",
            )  # fmt: skip
            return
        yield Remedy(
            f"{self.id}#seldom", "collect once an epoch, or not at all", Safety.SAME_BITS,
            why=f"The call is made by {line.framework or line.code}: turn it off there, or call it less often.",
        )  # fmt: skip


def _seldom(tables: Tables) -> Switch:
    """Return the switch of the thresholds; what is not collected while they are high is so just after: once a block."""
    full = sum(g.count for g in tables.collections if not g.explicit and g.generation == FULL)
    return Switch("gc.set_threshold", ("gc.get_threshold",), THRESHOLDS, max(1.0, tables.steady_steps / max(1, full)))


def _in_loop(line: Line, tables: Tables) -> Line:
    """Return the line of the loop of the steps that leads to *line*, as far as samples show it; else *line* itself.

    A function that frees memory is no fault; calling it in every step is.
    """
    chain = next((hot.chain for hot in tables.lines if hot.chain and _same(hot.line, line)), ())
    loops = [loop for hot in tables.lines for loop in hot.loops if loop.turns]
    inside = [at for at in chain if any(loop.file == at.file and loop.first <= at.line <= loop.last for loop in loops)]
    return inside[-1] if inside else line


def _same(one: Line, other: Line) -> bool:
    return (one.file, one.line) == (other.file, other.line)


def _evidence(count: int, spent: int) -> tuple[Evidence, ...]:
    return (
        Evidence("full collections in the steady steps", count, "count", "rank 0: events GC"),
        Evidence("a collection, mean", spent / count, "ns", "rank 0: events GC"),
    )


def _stakes(phase: Phase, spent: int, ledger: Ledger, tables: Tables) -> tuple[Stake, ...]:
    """Return *spent* on the ledger's GC entries: of *phase* first, then of the phase with the most of it."""
    held = {p: ledger.total_ns(phase=p, activity=Activity.GC) for p in Phase}
    stakes = []
    for p in sorted(held, key=lambda p: (p is not phase, -held[p])):
        part = min(spent, held[p])
        if part:
            stakes.append(Stake(p, Activity.GC, part))
            spent -= part
    return tuple(stakes)
