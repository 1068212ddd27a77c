"""An embedding table has dense gradients: every step fills and updates all of its rows for the few it looked up.

## What it is
An `nn.Embedding` (or `nn.EmbeddingBag`) with many rows, of which a batch looks up few. Its gradient is dense unless
`sparse=True` is set, so it has as many rows as the table.

## Why it costs
Backward fills a gradient of the table's size with zeros, and the optimizer walks all of it, with its moments: for Adam
that is seven passes over memory of the table's size, though a hundredth of the rows or less has a gradient.

## How it is told
The gradients of the first steps are read: the share of rows that are not zero. Where it is 5 % at most, the table's part
of the optimizer phase (its share of the elements that the optimizers hold), less the rows that are needed, is named; in
backward a tenth of that. Both are estimates: no interval shows a table by itself. A table tied to an output layer has a
gradient in every row, and a small one costs nothing; of both nothing is said.

## Sources
PyTorch documentation of `nn.Embedding` (sparse) and `optim.SparseAdam`; pytorch/pytorch issue 5309.
Measured on one core, a table of 100 000 x 64 and 500 lookups: 30 ms dense with Adam, of which backward 1.5 ms, against
0.7 ms sparse with SparseAdam; 2.6 ms at 2 % of the rows, 11 ms at 5 %, no gain at 10 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unstall.causes._cause import Cause
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Edit, Remedy, Safety, SetKeyword
from unstall.model.run import Fact, Facts, Run, Sensor
from unstall.model.tables import Tables

LEAST_SHARE = 0.05  # of the step, in the optimizer; sparse updates have a cost of their own
MOST_TOUCHED = 0.05  # of the rows; beyond it sorting and gathering them takes what it saves
IN_BACKWARD = 0.1  # of the time in the optimizer: one pass to fill a gradient against Adam's seven and its arithmetic
LEAST_SAVED = 0.6  # of what is claimed; the measurement at 5 % of the rows
POSITIONS = {"Embedding": 6, "EmbeddingBag": 6}  # of sparse among the parameters
_KEEPS_MATH = ("SGD", "Adagrad")  # a row without gradient stays as it is, if there is no decay and no momentum

_MS = 1_000_000
_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFBBOOOOOO|FFBBOOOOOO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""
_PARTS = {(Phase.FORWARD, Activity.COMPUTE): 4 * _MS, (Phase.BACKWARD, Activity.COMPUTE): 4 * _MS}
_OPTIMIZER = {(Phase.OPTIMIZER, Activity.COMPUTE): 12 * _MS}


def _given(table: dict[str, Fact], elements: int = 1_000_000, optimizer: bool = True) -> Given:
    facts: dict[str, Fact] = {
        "embedding:0": {"rows": 10_000, "dim": 100, "sparse": False, "site": "/p/train.py:9:main", **table},
        "parameters:0": {"class": "Adam", "elements": elements, "site": "/p/train.py:12:main"},
    }
    parts = {**_PARTS, **(_OPTIMIZER if optimizer else {(Phase.OPTIMIZER, Activity.COMPUTE): _MS // 2})}
    return Given(facts=facts, tables={"steady_parts": parts})


_SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
table = nn.Embedding(60_000, 64)  # <- fault
head = nn.Linear(64, 10)
opt = torch.optim.Adam([*table.parameters(), *head.parameters()], lr=1e-3)
for step in range(40):
    words, y = torch.randint(0, 60_000, (64, 4)), torch.randint(0, 10, (64,))
    loss = nn.functional.cross_entropy(head(table(words).mean(1)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""
_SPARSE = """\
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
table = nn.Embedding(60_000, 64, sparse=True)
head = nn.Linear(64, 10)
opts = torch.optim.SparseAdam(table.parameters(), lr=1e-3), torch.optim.Adam(head.parameters(), lr=1e-3)
for step in range(400):
    words, y = torch.randint(0, 60_000, (64, 4)), torch.randint(0, 10, (64,))
    loss = nn.functional.cross_entropy(head(table(words).mean(1)), y)
    for opt in opts:
        opt.zero_grad()
    loss.backward()
    for opt in opts:
        opt.step()
print(loss.item())
"""


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables that one line makes: their rows and elements, and the elements whose row has a gradient."""

    line: Line
    kind: str
    count: int
    rows: int
    elements: int
    touched: float

    @property
    def touched_share(self) -> float:
        return self.touched / max(1, self.elements)


class DenseEmbeddingGradients(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.SETTINGS})

    cases = (
        Fires(_PICTURE, 13.068, _given({"touched": 0.01})),  # 12 ms x 0.99, and a tenth of that in backward
        Fires(_PICTURE, 6.534, _given({"touched": 0.01}, elements=2_000_000)),
        Silent(_PICTURE, "a batch reaches most rows", _given({"touched": 0.6})),
        Silent(_PICTURE, "a tied output layer gives every row a gradient", _given({"touched": 1.0})),
        Silent(_PICTURE, "gradients are sparse", _given({"touched": 0.01, "sparse": True})),
        Silent(_PICTURE, "a small part of what the optimizer walks", _given({"touched": 0.01}, elements=50_000_000)),
        Silent(_PICTURE, "the optimizer is a small part of the step", _given({"touched": 0.01}, optimizer=False)),
    )

    planted = (Planted(before=_SCRIPT, after=_SPARSE, edited=False),)

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        held = _elements_held(run)
        for made in _made(run, tables):
            part = (made.elements - made.touched) / max(held, made.elements)
            walked = part * tables.steady_parts.get((Phase.OPTIMIZER, Activity.COMPUTE), 0)
            if made.touched_share <= MOST_TOUCHED and walked >= LEAST_SHARE * tables.steady_ns > 0:
                yield self._of(made, walked, held, tables)

    def _of(self, made: _Tables, walked: float, held: int, tables: Tables) -> Finding:
        steps = tables.rank_steps
        backward = tables.steady_parts.get((Phase.BACKWARD, Activity.COMPUTE), 0)
        filled = min(IN_BACKWARD * walked, float(backward))
        which = (
            f"an embedding of {made.rows:,} rows" if made.count == 1 else f"{made.count} embeddings' {made.rows:,} rows"
        )
        return Finding(
            self.id,
            f"Each step updates all of {which}, and {made.touched_share:.2%} of them have a gradient.",
            made.line,
            Scope.STEADY,
            (
                Stake(Phase.OPTIMIZER, Activity.COMPUTE, round(walked)),
                Stake(Phase.BACKWARD, Activity.COMPUTE, round(filled)),
            ),
            Weight.ESTIMATED,
            Basis.SAMPLED,
            (
                Evidence(
                    "rows with a gradient, most in a step", made.touched_share, "share", "rank 0: facts embedding"
                ),
                Evidence("rows", made.rows, "count", "rank 0: facts embedding"),
                Evidence(
                    "its part of what the optimizers hold", made.elements / max(1, held), "share", "facts parameters"
                ),
                Evidence("that part of the optimizer's time", walked / steps, "ns a step", "rank 0: ledger OPTIMIZER"),
            ),
            Saving(int(LEAST_SAVED * walked / steps), int((walked + min(3 * filled, float(backward))) / steps)),
            notes=("an estimate: the time in the optimizer and in backward is shared out by elements",),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        made = next(made for made in _made(run, tables) if made.line == finding.where)
        edits: tuple[Edit, ...] = ()
        if keeps_math(run):
            if made.line.framework is None:
                edits = (
                    SetKeyword(
                        made.line.file,
                        made.line.line,
                        f"torch.nn.{made.kind}",
                        "sparse",
                        True,
                        POSITIONS.get(made.kind),
                    ),
                )
            why = "the optimizer leaves a row without gradient as it is; clipping of gradients may not know sparse ones"
            yield Remedy(f"{self.id}#sparse", "sparse=True", Safety.SAME_MATH, edits, (), why)
            return
        why = (
            "make the table with sparse=True and give its weight to an optimizer of its own: SparseAdam instead of Adam "
            "(its moments are lazy: a row decays and moves only when it is looked up), or SGD or Adagrad without "
            "momentum and weight decay; clip the other gradients only"
        )
        yield Remedy(f"{self.id}#sparse", "sparse=True with SparseAdam", Safety.CHANGES_TRAINING, (), (), why)


def keeps_math(run: Run) -> bool:
    """Return whether every optimizer takes sparse gradients and leaves rows without one as they are."""
    known = list(run.ranks[0].facts.family("optimizer").values())
    return bool(known) and all(
        facts.text("class") in _KEEPS_MATH
        and not any(facts.number(decay) for decay in ("momentum", "weight_decay", "lr_decay"))
        and not any(facts.flag(name) for name in ("foreach", "fused", "maximize", "differentiable"))
        for facts in known
    )


def _elements_held(run: Run) -> int:
    held = (facts.number("elements") or 0 for facts in run.ranks[0].facts.family("parameters").values())
    return int(sum(held))


def _made(run: Run, tables: Tables) -> list[_Tables]:
    """Return the dense tables whose gradients were read, put together by the line that makes them."""
    by_line: dict[str, list[Facts]] = {}
    for facts in run.ranks[0].facts.family("embedding").values():
        if facts.flag("sparse") is False and facts.number("touched") is not None:
            by_line.setdefault(facts.text("site") or "", []).append(facts)
    found = []
    for site, group in by_line.items():
        line = tables.place(site) if site else None
        sizes = [(facts.number("rows") or 0, facts.number("dim") or 0, facts.number("touched") or 0) for facts in group]
        if line is not None:
            found.append(
                _Tables(
                    line,
                    group[0].text("class") or "Embedding",
                    len(group),
                    int(sum(rows for rows, _, _ in sizes)),
                    int(sum(rows * dim for rows, dim, _ in sizes)),
                    sum(rows * dim * touched for rows, dim, touched in sizes),
                )
            )
    return found
