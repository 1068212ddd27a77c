"""The loop stops to write: metrics, prints, histograms, plots or files, at every step.

## What it is
What is computed and written for people to look at (`print`, `logging`, a `SummaryWriter`, wandb and its like, JSON,
CSV, plots, histograms of the weights) takes a real part of the step.

## Why it costs
The training waits while numbers are turned into text or pictures and written. Most of it is Python, which no
accelerator helps. Where the whole history is written anew each time, every step costs more than the one before.

## How it is told
Stack samples put the time on lines. A line is said to write when it is inside a library that writes, when its
statement writes or computes what only such statements read, or when it is in a function that returns nothing, writes
and changes nothing else; never where the samples lead on into a module, a backward, an optimizer or a loader. At
least 5 samples and two standard errors are asked for, and 2 % of the step. The line named is the one that does most of
the work; the call in the loop stands beside it.

## Sources
PyTorch Lightning, `Trainer(log_every_n_steps=50)`; Hugging Face, `TrainingArguments(logging_steps=500)`: what these
hold to be often enough.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import setting
from unstall.causes.io._writing import Source, by_library, trains
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import HotLine, Tables

PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.BETWEEN)
LEAST_SAMPLES = 5
STANDARD_ERRORS = 2.0
LEFT_SHARE = 0.01  # of the step; what the advised interval leaves of the writing
LEAST_GROWTH = 0.2  # of the first steps' length; how much the step must have grown for the history to be blamed
_WAITS_FOR_DEVICE = re.compile(r"\.(item|cpu|tolist|numpy)\(|\bfloat\(")
# part of the outermost library function -> the key that says how often it writes
_KEYS = (
    ("transformers.trainer", "TrainingArguments.logging_steps"),
    ("lightning.pytorch.trainer", "Trainer.log_every_n_steps"),
    ("pytorch_lightning.trainer", "Trainer.log_every_n_steps"),
)

_MS = 1_000_000
_LOOP = Line("train.py", 30, "main", "history.log(loss=loss.item())")
_DUMP = Line("train.py", 12, "log", "json.dump(self.rows, f)")
_PICTURE = """
    step   |ssssssssss|ssssssssss|ssssssssss
    main   |bbbFFFBBBO|bbbFFFBBBO|bbbFFFBBBO
    host   |ppp.......|ppp.......|ppp.......
"""


def _drawn(line: Line, samples: int, path: tuple[str, ...] = (), phase: Phase = Phase.BETWEEN) -> HotLine:
    """Return a hot line of 9 ms for the drawn cases."""
    parts = ((Activity.PYTHON, 9 * _MS),)
    return HotLine(line, phase, 9 * _MS, parts, samples, _MS, chain=(_LOOP, line), paths=((path, 1.0),))


@dataclass(frozen=True, slots=True)
class Written:
    """Time of a line that goes to writing.

    Attributes:
        entry: the line of the loop from which on all is done to write; the line itself where that is not known.
        parts: ns by activity; error_ns: standard error of their sum.
        samples: how many samples that is; what: the library function with most of it, or "".
    """

    hot: HotLine
    entry: Line
    parts: tuple[tuple[Activity, int], ...]
    error_ns: float
    samples: float
    what: str

    @property
    def ns(self) -> int:
        return sum(ns for _, ns in self.parts)


class LoggingInLoop(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, spent_ms=9, given=Given(tables={"lines": (_drawn(_DUMP, 9, ("json.dump",)),)})),
        Fires(
            _PICTURE,
            spent_ms=9,
            given=Given(tables={"lines": (_drawn(Line("train.py", 31, "main", "print(step, table)"), 9),)}),
        ),
        Silent(
            _PICTURE,
            "with a device, what this line waits for is the step's own work",
            Given(tables={"lines": (_drawn(Line("train.py", 31, "main", "print(step, loss.item())"), 9),)}),
        ),
        Silent(
            _PICTURE,
            "reading JSON is not writing it",
            Given(tables={"lines": (_drawn(Line("t.py", 9, "f", "row = json.loads(text)"), 9, ("json.loads",)),)}),
        ),
        Silent(
            _PICTURE,
            "the logarithm of a probability is no log",
            Given(tables={"lines": (_drawn(Line("t.py", 9, "log_prob", "loss = -torch.log(p).mean()"), 9),)}),
        ),
        Silent(
            _PICTURE,
            "the progress bar is on the stack, but what it waits for is the loader",
            Given(
                tables={
                    "lines": (
                        _drawn(
                            Line("train.py", 29, "main", "for x, y in tqdm(loader):"),
                            9,
                            ("tqdm.std.tqdm.__iter__", "torch.utils.data.dataloader._BaseDataLoaderIter.__next__"),
                        ),
                    )
                }
            ),
        ),
        Silent(
            _PICTURE,
            "three samples are too few to blame a line",
            Given(tables={"lines": (_drawn(_DUMP, 3, ("json.dump",)),)}),
        ),
        Silent(
            _PICTURE,
            "the model is called inside a print",
            Given(
                tables={
                    "lines": (
                        _drawn(
                            Line("train.py", 31, "main", "print(net(x).mean())"),
                            9,
                            ("torch.nn.modules.module.Module._call_impl",),
                            Phase.FORWARD,
                        ),
                    )
                }
            ),
        ),
    )

    planted = (
        Planted(
            before="""\
import json
import os
import tempfile
import torch
from torch import nn


class History:
    def __init__(self, path):
        self.path, self.rows = path, []

    def add(self, **row):
        self.rows.append(row)
        with open(self.path, "w") as file:  # <- fault
            json.dump(self.rows, file, indent=1)  # <- fault


torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
history = History(os.path.join(tempfile.mkdtemp(), "history.json"))
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
for step in range(800):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    history.add(step=step, loss=loss.item(), lr=0.1)
print(round(loss.item(), 4))
""",
            after="""\
import json
import os
import tempfile
import torch
from torch import nn


class History:
    def __init__(self, path):
        self.file = open(path, "a")

    def add(self, **row):
        json.dump(row, self.file)
        self.file.write("\\n")


torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
history = History(os.path.join(tempfile.mkdtemp(), "history.jsonl"))
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
for step in range(2000):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        history.add(step=step, loss=loss.item(), lr=0.1)
print(round(loss.item(), 4))
""",
            also=frozenset({"kernels/too-few-threads"}),
            edited=False,
        ),
        Planted(
            before="""\
import csv
import os
import tempfile
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)  # the net is small
torch.manual_seed(0)
table = csv.writer(open(os.path.join(tempfile.mkdtemp(), "weights.csv"), "w"))
net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(16, 64), torch.randint(0, 10, (16,))
for step in range(2000):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    for name, weights in net.named_parameters():
        counts, edges = np.histogram(weights.detach().numpy(), bins=64)  # <- fault
        table.writerow([step, name, edges[0], edges[-1], *counts])  # <- fault
print(round(loss.item(), 4))
""",
            after="""\
import csv
import os
import tempfile
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)  # the net is small
torch.manual_seed(0)
table = csv.writer(open(os.path.join(tempfile.mkdtemp(), "weights.csv"), "w"))
net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(16, 64), torch.randint(0, 10, (16,))
for step in range(2000):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    for name, weights in net.named_parameters() if step % 1000 == 0 else ():
        counts, edges = np.histogram(weights.detach().numpy(), bins=64)
        table.writerow([step, name, edges[0], edges[-1], *counts])
print(round(loss.item(), 4))
""",
            also=frozenset({"kernels/too-few-threads"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        source = Source((*tables.lines, *tables.outside_lines), run.project)
        on_device = Sensor.DEVICE in run.coverage.observed
        written = [w for hot in tables.lines if hot.phase in PHASES and (w := _written(hot, source, on_device))]
        for group in _groups(written, LEAST_SHARE * tables.steady_ns):
            spent = sum(part.ns for part in group)
            error = math.sqrt(sum(part.error_ns**2 for part in group))
            enough = sum(part.samples for part in group) >= LEAST_SAMPLES and spent >= STANDARD_ERRORS * error
            if enough and spent >= LEAST_SHARE * tables.steady_ns:
                yield self._of(group, spent, error, tables)

    def _of(self, group: Sequence[Written], spent: int, error: float, tables: Tables) -> Finding:
        steps, worst = tables.rank_steps, group[0]
        share, phase = spent / max(1, tables.steady_ns), worst.hot.phase
        in_phase = sum(hot.spent_ns for hot in tables.lines if hot.phase is phase)
        growth = _growth(phase, tables) if spent >= 0.5 * in_phase else None
        within = f", mostly in {worst.what}" if worst.what else ""
        grows = ", and grows: the history seems to be written anew each time" if growth else ""
        entry = worst.entry
        called = f"this line, called from {entry.file}:{entry.line}" if entry != worst.hot.line else "this line"
        evidence = [
            Evidence(f"{called}, of the time for writing", worst.ns / spent, "share", "rank 0: stack samples"),
            Evidence("lines that write or compute what is written", len(group), "count", "rank 0: stack samples"),
            Evidence(
                "samples it rests on", round(sum(part.samples for part in group)), "count", "rank 0: stack samples"
            ),
            Evidence("standard error", error / steps, "ns a step", "rank 0: stack samples"),
        ]
        if growth:
            evidence.append(
                Evidence("each step is longer than the one before by", growth, "ns a step", "rank 0: trend")
            )
        stakes = tuple(
            Stake(part.hot.phase, activity, ns, f"{part.hot.line.file}:{part.hot.line.line}")
            for part in group
            for activity, ns in part.parts
        )
        return Finding(
            self.id, f"Writing for people takes {share:.0%} of the step, {spent / steps / 1e6:.3g} ms{within}{grows}.",
            _named(worst), Scope.STEADY, stakes, Weight.NEEDLESS, Basis.SAMPLED, tuple(evidence),
            Saving(int(max(0.0, 0.9 * (spent - 2 * error)) / steps), int(spent / steps)),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        where = finding.where
        assert isinstance(where, Line)
        share = finding.claim_ns / max(1, tables.steady_ns)
        every = _round_up(share / max(1e-9, 1 - share) / LEFT_SHARE)
        if any(evidence.source == "rank 0: trend" for evidence in finding.evidence):
            yield Remedy(
                f"{self.id}#append", "append what is new instead of writing the whole history", Safety.SAME_BITS,
                why="Open the file once, before the loop, and write one line a step (JSON lines, CSV); keep no list of "
                "all steps.",
            )  # fmt: skip
        how = setting(where.key, every, run, tables) if where.key else None
        key = f"Set {where.key} to {every}" if how is not None else f"Guard it with `if step % {every} == 0`"
        if how is not None and how.by_hand:
            key = how.by_hand[:1].upper() + how.by_hand[1:]
        yield Remedy(
            f"{self.id}#less-often", f"write every {every} steps", Safety.SAME_BITS,
            how.edits if how is not None else (),
            why=f"{key}; what is computed only to be written belongs under the guard as well. Means over the steps "
            "between can be kept as tensors and written together.",
        )  # fmt: skip


def _written(hot: HotLine, source: Source, on_device: bool) -> Written | None:
    """Return the part of a line's time that goes to writing, or None."""
    paths = hot.paths or ((((hot.callee,) if hot.callee else ()), 1.0),)
    chain = hot.chain or (hot.line,)
    waits = on_device and _WAITS_FOR_DEVICE.search(hot.line.code)  # what it waits for is the step's own work
    entry = None if waits else source.writes_at(chain)
    found = [(path, share) for path, share in paths if by_library(path) or (entry and not trains(path))]
    share = min(1.0, sum(part for _, part in found))
    parts = tuple((activity, int(ns * share)) for activity, ns in hot.parts if int(ns * share))
    if not parts:
        return None
    functions: dict[str, float] = {}
    for path, part in found:
        functions[path[0] if path else ""] = functions.get(path[0] if path else "", 0.0) + part
    what = max(functions, key=lambda name: functions[name])
    return Written(hot, entry or hot.line, parts, hot.error_ns * math.sqrt(share), hot.samples * share, what)


def _groups(written: Sequence[Written], least_ns: float) -> list[list[Written]]:
    """Return lines by the call in the loop that they belong to, or by function where the loop writes itself.

    What costs little alone goes together. Each group has its heaviest line first.
    """
    by_entry: dict[tuple[str, str, int], list[Written]] = {}
    for part in written:
        call = part.entry.line if part.entry != part.hot.line else 0
        by_entry.setdefault((part.entry.file, part.entry.function, call), []).append(part)
    large = [group for group in by_entry.values() if sum(part.ns for part in group) >= least_ns]
    rest = [part for group in by_entry.values() if group not in large for part in group]
    groups = [*large, rest] if rest else large
    return [sorted(group, key=lambda part: -part.ns) for group in groups]


def _growth(phase: Phase, tables: Tables) -> float | None:
    """Return by how much a step outlasts the one before, ns, where the growth is sure and most of it *phase*'s."""
    trend = tables.trend
    if trend is None or trend.growth_low <= 0 or trend.last_ns < (1 + LEAST_GROWTH) * trend.first_ns:
        return None
    own = dict(trend.by_phase).get(phase, 0.0)
    return own if own >= 0.5 * trend.growth_ns_per_step else None


def _named(part: Written) -> Line:
    """Return the line to blame, with the framework's key where a framework writes on the line's behalf."""
    line = part.hot.line
    key = next((key for start, key in _KEYS if part.what.startswith(start)), None)
    return Line(line.file, line.line, line.function, line.code, part.what, key) if key else line


def _round_up(steps: float) -> int:
    """Return the next number that people would write: 1, 2 or 5 times a power of ten, 10 at the least."""
    power = 10 ** int(math.log10(max(10.0, steps)))
    return int(next(n * power for n in (1, 2, 5, 10) if n * power >= min(steps, 10 * power)))
