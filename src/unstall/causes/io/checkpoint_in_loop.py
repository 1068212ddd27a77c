"""The loop stops to write checkpoints more often than they are worth.

## What it is
The training saves its state (`torch.save` and what is built on it) every step, every few steps, or after epochs so
short that the saving is a real part of the time.

## Why it costs
A save copies and serialises all tensors and writes them out while nothing trains. A checkpoint insures against a
failure: what a failure takes away is at most the time since the last one, so saving much more often than
failures come pays more for the insurance than it can ever give back.

## How it is told
Each save is timed (phase CHECKPOINT) with the line that asked for it. Its cost and how often it comes are set against
the interval at which cost and risk balance: the square root of twice the cost of a save times the mean time between
failures, which is taken as 8 hours. Saves that come half as often as that, or less often, are said to be well spaced,
whatever they cost. Of the others those are named that take 2 % of the step, or, where they come after many steps, 5 %
of the loop.

## Sources
J. W. Young, "A first order approximation to the optimum checkpoint interval", 1974 (the interval).
Mohan et al., "CheckFreq: Frequent, Fine-Grained DNN Checkpointing", FAST 2021 (what a save costs; saving beside the
training).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import setting
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety
from unstall.model.run import Run, Sensor
from unstall.model.tables import Saves, Tables

BETWEEN_FAILURES_NS = 8 * 3600 * 10**9  # a pessimist's: with rarer failures saves should come yet seldomer
WELL_SPACED = 0.5  # of the best interval; the cost is flat around it
FREQUENT_STEPS = 20  # saves no further apart belong to the step, others to the loop
LEAST_PERIODIC_SHARE = 0.05  # of the loop; a short recorded part may hold one save too many
LEAST_SAVES = 3  # fewer say nothing of how often they come
# part of the library's file -> the key that says how often it saves
_KEYS = (
    ("transformers/trainer", "TrainingArguments.save_steps"),
    ("lightning/pytorch/", "ModelCheckpoint.every_n_train_steps"),
    ("pytorch_lightning/", "ModelCheckpoint.every_n_train_steps"),
)

_PICTURE = """
    step   |ssssssssss|ssssssssss|ssssssssss
    main   |KKKFFFBBBO|KKKFFFBBBO|KKKFFFBBBO
"""
_MS = 1_000_000
_SAVES = Saves(Line("train.py", 20), 3, 9 * _MS, 3, 9 * _MS, 12_000_000, 1.0)


def best_interval_ns(save_ns: float) -> float:
    """Return how far apart saves of *save_ns* each should be."""
    return math.sqrt(2 * save_ns * BETWEEN_FAILURES_NS)


def advised_steps(saves: Saves, step_ns: float) -> int:
    """Return after how many steps to save: the best interval, rounded up to two digits that people would write."""
    steps = max(1.0, best_interval_ns(saves.spent_ns / max(1, saves.count)) / max(1.0, step_ns))
    unit = int(10 ** max(0, int(math.log10(steps)) - 1))
    return math.ceil(steps / unit) * unit


class CheckpointInLoop(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.SAVES})

    cases = (
        Fires(_PICTURE, spent_ms=9, given=Given(tables={"saves": (_SAVES,)})),
        Fires(
            """
            step   |ssssssssss|sssssssssssss|ssssssssss|sssssssssssss|ssssssssss|sssssssssssss
            main   |DFFFFBBBBO|KKKDFFFFBBBBO|DFFFFBBBBO|KKKDFFFFBBBBO|DFFFFBBBBO|KKKDFFFFBBBBO
            """,
            spent_ms=9,
            given=Given(tables={"saves": (Saves(Line("train.py", 20), 3, 9 * _MS, 3, 9 * _MS, 12_000_000, 50.0),)}),
        ),
        Silent(
            _PICTURE,
            "one save is no habit",
            Given(tables={"saves": (Saves(Line("train.py", 20), 1, 9 * _MS, 1, 9 * _MS, 1, 3.0),)}),
        ),
        Silent(
            _PICTURE,
            "saves of a minute each, as far apart as failures make worth while",
            Given(
                tables={
                    "saves": (Saves(Line("train.py", 20), 3, 180_000 * _MS, 3, 180_000 * _MS, 1, 30_000.0),),
                    "step_ns": 50 * _MS,
                    "steady_ns": 90_000 * 50 * _MS,
                    "steady_steps": 90_000,
                }
            ),
        ),
        Silent(
            "step   |ssssssssss|ssssssssss|ssssssssss\nmain   |DFFFFBBBBO|DFFFFBBBBO|DFFFFBBBBO",
            "saved every step, in next to no time",
            Given(tables={"saves": (Saves(Line("train.py", 20), 3, 300_000, 3, 300_000, 900, 1.0),)}),
        ),
    )

    planted = (
        Planted(
            before="""\
import os
import tempfile
import torch
from torch import nn


def keep(net, opt, step, folder):
    state = {"net": net.state_dict(), "opt": opt.state_dict(), "step": step}
    torch.save(state, os.path.join(folder, "last.pt"))  # <- fault


torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
folder = tempfile.mkdtemp()
words = nn.Embedding(100_000, 64)  # taken over from another model, not trained
words.requires_grad_(False)
net = nn.Sequential(words, nn.Flatten(), nn.Linear(8 * 64, 32), nn.ReLU(), nn.Linear(32, 10))
opt = torch.optim.SGD(net[2:].parameters(), lr=0.1)
x, y = torch.randint(0, 100_000, (16, 8)), torch.randint(0, 10, (16,))
for step in range(60):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    keep(net, opt, step, folder)
print(round(loss.item(), 4))
""",
            after="""\
import os
import tempfile
import torch
from torch import nn


def keep(net, opt, step, folder):
    state = {"net": net.state_dict(), "opt": opt.state_dict(), "step": step}
    torch.save(state, os.path.join(folder, "last.pt"))


torch.set_num_threads(1)  # the net is tiny
torch.manual_seed(0)
folder = tempfile.mkdtemp()
words = nn.Embedding(100_000, 64)  # taken over from another model, not trained
words.requires_grad_(False)
net = nn.Sequential(words, nn.Flatten(), nn.Linear(8 * 64, 32), nn.ReLU(), nn.Linear(32, 10))
opt = torch.optim.SGD(net[2:].parameters(), lr=0.1)
x, y = torch.randint(0, 100_000, (16, 8)), torch.randint(0, 10, (16,))
for step in range(2000):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
keep(net, opt, step, folder)
print(round(loss.item(), 4))
""",
            also=frozenset({"kernels/too-few-threads"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        for saves in tables.saves:
            finding = self._of(saves, ledger, tables) if saves.count >= LEAST_SAVES and saves.steady_count else None
            if finding is not None:
                yield finding

    def _of(self, saves: Saves, ledger: Ledger, tables: Tables) -> Finding | None:
        steps = max(1, tables.steady_steps)
        per_step = tables.steady_ns / steps
        per_save = saves.spent_ns / saves.count
        apart = max(1.0, saves.steps_between)
        if apart * per_step >= WELL_SPACED * best_interval_ns(per_save):
            return None
        frequent = apart <= FREQUENT_STEPS
        spent = saves.steady_ns if frequent else saves.spent_ns
        share = saves.steady_ns / max(1, tables.steady_ns)
        if share < (LEAST_SHARE if frequent else LEAST_PERIODIC_SHARE):
            return None
        if not frequent:
            spent = min(spent, ledger.total_ns(phase=Phase.CHECKPOINT, activity=Activity.IO))
        kept = apart / max(apart, advised_steps(saves, per_step))  # of the saves, after the remedy
        gain = (spent / steps if frequent else spent) * (1 - kept)
        worth = advised_steps(saves, per_step)
        several = len(ledger.wall_R) > 1
        often = "every step" if apart < 1.5 else f"every {apart:.0f} steps"
        return Finding(
            self.id,
            f"A checkpoint is written {often} and takes {per_save / 1e6:.3g} ms: {share:.0%} of the loop.",
            _with_key(saves.line), Scope.STEADY if frequent else Scope.PERIODIC,
            (Stake(Phase.CHECKPOINT, Activity.IO, spent),), Weight.TIMED, Basis.MEASURED,
            (
                Evidence("a save, mean", per_save, "ns", "rank 0: events CHECKPOINT"),
                Evidence("size of a save, mean", saves.nbytes / saves.count, "bytes", "rank 0: events CHECKPOINT"),
                Evidence("saves in the run", saves.count, "count", "rank 0: events CHECKPOINT"),
                Evidence("steps from save to save, median", saves.steps_between, "count", "rank 0: events CHECKPOINT"),
                Evidence("steps worth training before a save of this cost", worth, "count", "arithmetic"),
            ),
            Saving(int(0.9 * gain), int(gain)),
            notes=("other ranks wait while rank 0 saves; that time is not in this number",) if several else (),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        where = finding.where
        assert isinstance(where, Line)
        saves = next(saves for saves in tables.saves if (saves.line.file, saves.line.line) == (where.file, where.line))
        steps = advised_steps(saves, tables.steady_ns / max(1, tables.steady_steps))
        apart = max(1.0, saves.steps_between)
        guard = f"Guard the save with `if step % {steps} == 0`, and save once at the end"
        how = setting(where.key, steps, run, tables) if where.key else None
        by_hand = f"Set {where.key} to {steps}" if how is not None else guard
        if how is not None and how.by_hand:
            by_hand = how.by_hand[:1].upper() + how.by_hand[1:]
        yield Remedy(
            f"{self.id}#less-often", f"save every {steps} steps instead of every {apart:.0f}", Safety.SAME_BITS,
            how.edits if how is not None else (),
            why=f"{by_hand}. A failure then costs at most the time of {steps} steps.",
        )  # fmt: skip
        yield Remedy(
            f"{self.id}#asynchronously", "save beside the training", Safety.SAME_BITS,
            why="Where every state must be kept: torch.distributed.checkpoint.async_save copies the state and writes "
            "it from a thread of its own; only the copy stops the training.",
        )  # fmt: skip


def _with_key(line: Line) -> Line:
    """Return *line* with the framework's key that governs its saves, where it is known."""
    framework = (line.framework or "").replace("\\", "/")
    key = next((key for part, key in _KEYS if part in framework), line.key)
    return Line(line.file, line.line, line.function, line.code, line.framework, key)
