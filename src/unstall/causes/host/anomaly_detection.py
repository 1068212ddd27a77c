"""Anomaly detection is on, though it is a tool for finding where a NaN comes from, and slows every step.

## What it is
`torch.autograd.set_detect_anomaly(True)`, `torch.autograd.detect_anomaly()`, or Lightning's
`Trainer(detect_anomaly=True)` was left on after a bug was found.

## Why it costs
Each operation of the forward pass that needs a gradient stores a Python traceback, and backward tests the gradients of
each operation for NaN. Measured on six models (two MLPs, a convolutional net, two transformers, an unrolled LSTM
cell; CPU, one thread and two, torch 2.13): forward took 1.03 to 11 times as long, the more the smaller its operations;
the test for NaN made up 0.2 to 0.6 of the backward. On a GPU each test also waits for the device.

## How it is told
The recorder looks at the switch and remembers who set it. The tracebacks show in the stack samples (frames of
`traceback` and `linecache` below an operation): this part is counted. The tests show nowhere and are estimated, at the
least share of the backward that was measured; the bounds of the saving span what was measured. Where it was on for
less than half of the looks, nothing is said.

## Sources
PyTorch documentation, `torch.autograd.detect_anomaly`: "should be enabled only for debugging".
"""

from __future__ import annotations

import ast
import linecache
import os
import re
from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Edit, Remedy, RemoveCall, Safety, SetKeyword, Switch
from unstall.model.run import Run, Sensor
from unstall.model.tables import HotLine, Tables

LEAST_ON = 0.5  # of the looks at the switch
SURELY_ON = 0.9  # of the looks; believed without a sample of a traceback
LEAST_SAMPLES = 5  # of tracebacks
TEST_SHARE = (0.2, 0.6)  # of the backward with the tests in it; measured, see the page
TRACEBACK_SHARE = (0.9, 1.1)  # of the time counted: sampling error, and what storing the text costs besides
_TRACEBACKS = ("traceback.", "linecache.", "torch.fx.traceback.")
_CONTEXT = re.compile(r"^with\b")
_OFF = Switch(
    "torch.set_anomaly_enabled", ("torch.is_anomaly_enabled", "torch.is_anomaly_check_nan_enabled"), (False, True)
)

_MS = 1_000_000
_SET = "train.py:5:main"
_TRACED = HotLine(
    Line("train.py", 20, "forward", "x = torch.relu(self.a(x))"), Phase.FORWARD, 12 * _MS,
    ((Activity.PYTHON, 12 * _MS),), 12, _MS,
    paths=((("torch.nn.functional.relu", "traceback.format_stack"), 0.75), (("torch.nn.functional.relu",), 0.25)),
)  # fmt: skip
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DFFFFFFBBB|DFFFFFFBBB
    host   |.pppppp...|.pppppp...
"""


def _facts(share: float, *, tests: bool = True) -> dict[str, str | float | bool]:
    return {"anomaly.share": share, "anomaly.set_by": _SET, "anomaly.check_nan": tests}


class AnomalyDetection(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.SETTINGS, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, spent_ms=9 + 0.2 * 6, given=Given(_facts(1.0), {"lines": (_TRACED,)})),
        Fires(_PICTURE, spent_ms=9, given=Given(_facts(1.0, tests=False), {"lines": (_TRACED,)})),
        Fires(_PICTURE, spent_ms=0.2 * 6, given=Given(_facts(1.0), {"lines": ()})),
        Silent(_PICTURE, "it is off", Given({"anomaly.share": 0.0, "anomaly.check_nan": True}, {"lines": ()})),
        Silent(_PICTURE, "it was on for the first steps only", Given(_facts(0.2), {"lines": ()})),
        Silent(
            _PICTURE,
            "tracebacks are taken, but by something else",
            Given({"anomaly.share": 0.0, "anomaly.check_nan": True}, {"lines": (_TRACED,)}),
        ),
    )

    planted = (
        Planted(
            before="""\
import torch
from torch import nn

torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)  # <- fault
blocks = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(8)]
net = nn.Sequential(*blocks, nn.Linear(64, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
x, y = torch.randn(32, 64), torch.randint(0, 4, (32,))
for step in range(300):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(round(loss.item(), 4))
""",
            after="""\
import torch
from torch import nn

torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(8)]
net = nn.Sequential(*blocks, nn.Linear(64, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
x, y = torch.randn(32, 64), torch.randint(0, 4, (32,))
for step in range(300):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(round(loss.item(), 4))
""",
            also=frozenset({"kernels/too-few-threads"}),
        ),
        Planted(
            before="""\
import torch
from torch import nn

torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
cell, head = nn.LSTMCell(16, 32), nn.Linear(32, 4)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.05)
x, y = torch.randn(16, 25, 16), torch.randint(0, 4, (16,))
for step in range(150):
    with torch.autograd.detect_anomaly():  # <- fault
        h = c = torch.zeros(16, 32)
        for t in range(x.shape[1]):
            h, c = cell(x[:, t], (h, c))
        loss = nn.functional.cross_entropy(head(h), y)
        opt.zero_grad()
        loss.backward()
    opt.step()
print(round(loss.item(), 4))
""",
            after="""\
import torch
from torch import nn

torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
cell, head = nn.LSTMCell(16, 32), nn.Linear(32, 4)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.05)
x, y = torch.randn(16, 25, 16), torch.randint(0, 4, (16,))
for step in range(150):
    h = c = torch.zeros(16, 32)
    for t in range(x.shape[1]):
        h, c = cell(x[:, t], (h, c))
    loss = nn.functional.cross_entropy(head(h), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(round(loss.item(), 4))
""",
            also=frozenset({"kernels/too-few-threads", "host/hot-line"}),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        facts = run.ranks[0].facts
        on, place = facts.number("anomaly.share") or 0.0, tables.place(facts.text("anomaly.set_by") or "")
        if on < LEAST_ON or place is None:
            return
        counted, samples = _counted(tables)
        if samples < LEAST_SAMPLES and on < SURELY_ON:
            return
        backward = ledger.total_ns(phase=Phase.BACKWARD, activity=Activity.COMPUTE)
        backward = min(backward, _steady_backward(tables, backward))
        low, high = (on * share * backward for share in TEST_SHARE) if facts.flag("anomaly.check_nan") else (0.0, 0.0)
        tracebacks = sum(stake.ns for stake in counted)
        stakes = (*counted, Stake(Phase.BACKWARD, Activity.COMPUTE, int(low))) if low else counted
        if tracebacks + low < LEAST_SHARE * tables.steady_ns:
            return
        steps = tables.rank_steps
        where = _where(place, facts.text("anomaly.through") or "")
        yield Finding(
            self.id,
            f"Anomaly detection was on in {on:.0%} of the steps and takes at least "
            f"{(tracebacks + low) / max(1, tables.steady_ns):.0%} of each.",
            where, Scope.STEADY, stakes, Weight.NEEDLESS if samples >= LEAST_SAMPLES else Weight.ESTIMATED,
            Basis.SAMPLED if samples else Basis.RESIDUAL,
            (
                Evidence("of the looks at the switch it was on", on, "share", "rank 0: fact anomaly.share"),
                Evidence("tracebacks of operations, counted", tracebacks / steps, "ns a step", "rank 0: stack samples"),
                Evidence("samples of tracebacks", round(samples), "count", "rank 0: stack samples"),
                Evidence("tests for NaN in backward, estimated at the least", low / steps, "ns a step", "arithmetic"),
                Evidence("and at the most", high / steps, "ns a step", "arithmetic"),
            ),
            Saving(
                int((TRACEBACK_SHARE[0] * tracebacks + low) / steps),
                int((TRACEBACK_SHARE[1] * tracebacks + high) / steps),
            ),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        where = finding.where
        assert isinstance(where, Line)
        edits = _edits(where, run.project)
        by_hand = "" if edits else f"; set {where.key or 'it'} to False, or turn the switch off at this line"
        yield Remedy(
            f"{self.id}#off", "turn anomaly detection off", Safety.SAME_BITS, edits,
            why=f"it changes no number; a NaN would no longer raise an error in backward{by_hand}",
            switch=_OFF if edits and not _CONTEXT.match(where.code) else None,
        )  # fmt: skip


def _counted(tables: Tables) -> tuple[tuple[Stake, ...], float]:
    """Return the time that the samples show in tracebacks below an operation, and how many samples that is."""
    stakes, samples = [], 0.0
    for hot in tables.lines:
        share = min(1.0, sum(part for path, part in hot.paths if any(name.startswith(_TRACEBACKS) for name in path)))
        if hot.phase is Phase.FETCH or not share:
            continue
        samples += hot.samples * share
        at = f"{hot.line.file}:{hot.line.line}"
        stakes += [Stake(hot.phase, activity, int(ns * share), at) for activity, ns in hot.parts if int(ns * share)]
    return tuple(stakes), samples


def _steady_backward(tables: Tables, otherwise: int) -> int:
    """Return the COMPUTE time of BACKWARD in the steady steps as the hot lines hold it; without any, *otherwise*."""
    held = [hot.part_ns(Activity.COMPUTE) for hot in tables.lines if hot.phase is Phase.BACKWARD]
    return sum(held) if held else otherwise


def _where(place: Line, through: str) -> Line:
    """Return the line that set it, with the key where a framework did on its behalf."""
    key = "Trainer.detect_anomaly" if "lightning" in through else None
    return Line(place.file, place.line, place.function, place.code, through or None, key)


def _edits(where: Line, project: str) -> tuple[Edit, ...]:
    if where.key:
        return _trainers(where, project)
    name = next((name for name in ("set_detect_anomaly", "detect_anomaly") if name in where.code), None)
    if name is None:
        return ()
    stands_alone = re.match(rf"^[\w.]*{name}\(", where.code) or _CONTEXT.match(where.code)
    return (RemoveCall(where.file, where.line, f"torch.autograd.{name}"),) if stands_alone else ()


def _trainers(where: Line, project: str) -> tuple[Edit, ...]:
    """Return the edit of the one call in the user's file that passes ``detect_anomaly=True``, if it is one."""
    try:
        tree = ast.parse("".join(linecache.getlines(os.path.join(project, where.file))))
    except (SyntaxError, ValueError):
        return ()
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "detect_anomaly" and isinstance(keyword.value, ast.Constant) and keyword.value.value
    ]
    if len(calls) != 1:
        return ()
    return (SetKeyword(where.file, calls[0].lineno, "lightning.pytorch.Trainer", "detect_anomaly", False),)
