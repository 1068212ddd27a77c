"""One small training with ten faults that can be switched on, to plant any of them together.

Each fault is a fragment at one or more places of the same script, so that taking one out leaves all else as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from unstall.model.finding import Finding, Machine, Scope
from unstall.model.ledger import Phase
from unstall.model.report import Report

_SCRIPT = """\
import gc
import json
import os
import tempfile
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

folder = tempfile.mkdtemp()


class Rows(Dataset):
    def __len__(self):
        return {rows}

    def __getitem__(self, i):
        row = torch.full((64,), i / 480)
        {item}
        return row, i % 10


def begin(worker):
    torch.set_num_threads(1)
    {worker}


if __name__ == "__main__":
    torch.manual_seed(0)
    {settings}
    words = nn.Linear(2000, 1000).requires_grad_(False)  # kept with the model, not trained
    net = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(Rows(), batch_size=64, num_workers=1, worker_init_fn=begin, persistent_workers={persistent})

    def loss_of(x, y):
        return nn.functional.cross_entropy(net(x), y)

    {model}
    history, total, step = [], 0, 0
    while step < 80:
        for x, y in loader:
            step += 1
            {batch}
            loss = loss_of(x, y)
            {loss}
            opt.zero_grad()
            loss.backward(retain_graph={keep})
            opt.step()
            {after}
"""

PLACES = ("rows", "item", "worker", "settings", "persistent", "model", "batch", "loss", "keep", "after")
_SOUND = {"rows": "64 * 160", "persistent": "True", "settings": "torch.set_num_threads(2)", "keep": "False"}
_VALUES = ("rows", "persistent", "keep")  # places that hold one value; the others hold statements

FAULTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "data/starved-loader": {"item": "time.sleep(0.0004)"},
        "data/workers-respawned": {"rows": "64 * 8", "persistent": "False"},
        "data/threads-in-workers": {
            "worker": "torch.set_num_threads(8)",
            "item": "row = row + 0 * (torch.ones(256, 256) @ torch.ones(256, 256))[0, :64]",
        },
        "io/checkpoint-in-loop": {
            "after": 'torch.save([net.state_dict(), words.state_dict()], os.path.join(folder, "last.pt"))'
        },
        "io/logging-in-loop": {
            "after": "history.append([loss.item()] * 200); "
            'json.dump(history, open(os.path.join(folder, "log.json"), "w"))'
        },
        "host/anomaly-detection": {"settings": "torch.autograd.set_detect_anomaly(True)"},
        "host/collecting-garbage": {"settings": "alive = [[n] for n in range(300_000)]", "after": "gc.collect()"},
        "kernels/too-few-threads": {"settings": "torch.set_num_threads(1)"},
        "memory/graph-kept-alive": {
            "loss": "total = 0.9 * total + 0.1 * net[0].bias.mean(); loss = loss + 0.01 * total.square()",
            "keep": "True",
        },
        "compiler/recompile-storm": {
            "model": "torch._dynamo.config.recompile_limit = 200; "
            'loss_of = torch.compile(loss_of, backend="eager", dynamic=False)',
            "batch": "x, y = x[step % 40 :], y[step % 40 :]",
        },
    }
)


# GNU OpenMP does not work in a forked process whose parent has used it: the worker hangs, with us and without.
IMPOSSIBLE = frozenset({frozenset({"data/workers-respawned", "data/threads-in-workers"})})


def pairs_of(faults: Iterable[str]) -> list[tuple[str, str]]:
    """Return every pair of *faults* that can be planted together."""
    return [pair for pair in itertools.combinations(faults, 2) if frozenset(pair) not in IMPOSSIBLE]


def script_with(faults: Iterable[str]) -> str:
    """Return the training with *faults* planted, each named by the id of its cause.

    Raises:
        KeyError: When a fault is none of `FAULTS`.
    """
    lines: dict[str, list[str]] = {place: [] for place in PLACES}
    for fault in sorted(faults, key=list(FAULTS).index):
        for place, code in FAULTS[fault].items():
            lines[place].append(code)
    filled = {
        place: lines[place][-1] if place in _VALUES and lines[place] else _SOUND.get(place, "pass") for place in PLACES
    }
    for place in set(PLACES) - set(_VALUES):
        filled[place] = "; ".join([*([filled[place]] if place == "settings" else []), *lines[place]]) or "pass"
    return _SCRIPT.format(**filled)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of the training.

    Attributes:
        step_ns: time in the loop by steps, warm-up and all: a fault of the first steps saves there or nowhere.
        faults: what was found, the machine's left out, in order.
    """

    step_ns: int
    faults: tuple[Finding, ...]
    per_step_ns: Mapping[str, int]  # allotted time a step, by cause


def measured(report: Report) -> Measured:
    """Return what a report says of one run."""
    faults = tuple(f for f in report.findings if f.fault and not isinstance(f.where, Machine))
    by_cause: dict[str, int] = {}
    for finding in faults:
        steps = max(1, report.steady_steps if finding.scope is Scope.STEADY else report.steps)
        by_cause[finding.cause] = by_cause.get(finding.cause, 0) + finding.spent_ns // steps
    ledger = report.ledger
    loop_ns = 0
    if ledger is not None:
        edges = (ledger.step < 0) & np.isin(ledger.phase, (Phase.STARTUP, Phase.SHUTDOWN))
        loop_ns = int(ledger.ns[~edges].sum())
    return Measured(loop_ns // max(1, report.steps), faults, MappingProxyType(by_cause))


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a pair was told.

    Attributes:
        first: the cause found first, or "".
        larger: the one of the two that saves more where it alone is taken out; None where they are within *tie* of each
            other.
        allotted_ns, saved_ns: a step: what both got, and what taking both out saves.
    """

    pair: tuple[str, str]
    first: str
    larger: str | None
    allotted_ns: int
    saved_ns: int

    @property
    def is_first_right(self) -> bool:
        return self.first == self.larger if self.larger else self.first in self.pair

    @property
    def is_within(self) -> bool:
        """Return whether no more was allotted than taking both out saves, with a fifth for the noise of two runs."""
        return self.allotted_ns <= 1.2 * self.saved_ns


def judged(
    pair: tuple[str, str], both: Measured, alone: Mapping[str, Measured], sound: Measured, tie: float = 0.2
) -> Verdict:
    """Return how *both* together were told, beside each *alone* and the training without either."""
    a, b = pair
    saves = {a: both.step_ns - alone[b].step_ns, b: both.step_ns - alone[a].step_ns}
    apart = abs(saves[a] - saves[b]) > tie * max(1, *saves.values())
    larger = max(pair, key=lambda cause: saves[cause]) if apart else None
    allotted = sum(both.per_step_ns.get(cause, 0) for cause in pair)
    first = both.faults[0].cause if both.faults else ""
    return Verdict(pair, first, larger, allotted, both.step_ns - sound.step_ns)
