"""A compiled function is compiled again and again, because something that it was specialised on keeps changing.

## What it is
`torch.compile` makes code for what it saw: shapes, numbers, strings, lengths, attributes. Where such a thing
differs at a later call, a guard fails and the function is compiled anew.

## Why it costs
A compilation takes from a tenth of a second to minutes, and the step waits for it. After `recompile_limit` of
them (8 by default) the compiler gives up, and the function runs uncompiled from then on, so the time was spent
for nothing.

## How it is told
Every compile window of the training thread is timed, and the compiler says which guard failed. Counted are
compilations after a function's first, by what changed. Left alone is what heals by itself: a shape that changes
is compiled once or twice more, with that size left open; a train and an evaluation mode are two programs, not a
storm. An optimizer's setting that is a Python number is named from the first time on, because each new value
may cost as much again.

Time of compilations that go on to the end of the run is part of the steady step; time of those that stopped is
start-up.

## Sources
PyTorch documentation, "Dealing with Recompilations" and "Compile Time Caching"; pytorch issues 120934 and
128071; tutorial "Running the compiled optimizer with an LR Scheduler".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import is_library
from unstall.causes.compiler._asked import set_where_asked
from unstall.causes.compiler._changes import Change, change_of, guard_of, reading
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety, SetKeyword
from unstall.model.run import Run, Sensor
from unstall.model.tables import Compile, Tables

# recompilations of one function from which on it is a storm
LEAST = {
    Change.LEARNING_RATE: 1,  # the first change of the rate announces all others
    Change.SHAPE: 3,  # two sizes may be left open one after the other, which heals
    Change.MODE: 3,  # training, evaluation and no gradients are three programs
}
OTHERWISE_LEAST = 2
GOES_ON = 0.75  # of the steps: a recompilation after it means that they have not stopped
# of the time, at most, and of the longest compilation: one is left, and with open sizes it takes longer than one without
KEPT = {Change.SHAPE: (0.4, 1.5)}
KEPT_OTHERWISE = (0.25, 1.0)

_ADVICE = {
    Change.LEARNING_RATE: (
        "pass the learning rate as a tensor",
        "give the optimizer lr=torch.tensor(...): a scheduler then changes its value and not the program; on a GPU the "
        "optimizer needs capturable=True as well",
    ),
    Change.SHAPE: (
        "leave the size open",
        "pad or bucket to a few lengths, or call torch._dynamo.mark_dynamic(tensor, dim) before the compiled call",
    ),
    Change.LENGTH: ("keep the length fixed", "pass one stacked tensor instead of a list or dict whose length changes"),
    Change.KEYS: (
        "keep the keys fixed",
        "look the value up before the compiled call and pass it as a tensor: the keys of a dict are part of the program",
    ),
    Change.ATTRIBUTE: (
        "keep what differs between the objects in a tensor",
        "register_buffer the value, so that all objects share one compiled program; a whole number on a module can "
        "also be left open with torch._dynamo.config.allow_unspec_int_on_nn_module = True",
    ),
    Change.VALUE: (
        "pass what changes as a tensor",
        "torch.tensor(value) is read at run time; a Python number or string is part of the compiled program",
    ),
    Change.OBJECT: ("pass the same object each time", "make the function, lambda or object once, outside of the loop"),
    Change.MODE: ("keep the mode fixed", "compile the training and the evaluation separately"),
    Change.OTHER: ("find the guard", "run once with TORCH_LOGS=recompiles, which prints each guard that failed"),
}

_SITE, _READS = (
    Line("train.py", 12, "main", "step = torch.compile(step)"),
    Line("train.py", 5, "forward", "self.tag[1]"),
)


def _window(ms: int, ns: int, number: int, reason: str, *, steady: bool = True, frame: int = 3) -> Compile:
    return Compile(
        ms * 1_000_000,
        ns * 1_000_000,
        number,
        f"{frame}/{number}",
        Line("train.py", frame),
        _SITE,
        reason,
        None,
        ms // 10,
        steady,
    )


_PICTURE = """
    step   |ssssssssss|ssssssssss|ssssssssss|ssssssssss
    main   |FFFFFFFBBO|FFFFFFFBBO|FFFFFFFBBO|FFFFFFFBBO
    host   |rrrrr.....|rrrrr.....|rrrrr.....|rrrrr.....
"""


def _storm(reason: str, numbers: Sequence[int] = (0, 1, 2, 3)) -> Given:
    windows = tuple(_window(10 * n, 5, number, reason if number else "") for n, number in enumerate(numbers))
    return Given(tables={"compiles": windows})


class RecompileStorm(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER})

    cases = (
        Fires(_PICTURE, 15, _storm("0/2: tensor 'x' size mismatch at index 1. expected 32, actual 40")),
        Fires(_PICTURE, 15, _storm("0/1: n == 3                  # y = x * n  # train.py:4 in step")),
        Fires(_PICTURE, 5, _storm("2/0: self.param_groups[0]['lr'] == 5e-06    # for group in", (0, 0, 0, 1))),
        Silent(
            _PICTURE,
            "two sizes were left open, one after the other: it heals",
            _storm("0/0: tensor 'x' size mismatch at index 0. expected 32, actual 17", (0, 0, 1, 2)),
        ),
        Silent(
            _PICTURE,
            "four functions, each compiled once, and once more for its last, smaller batch",
            Given(
                tables={
                    "compiles": tuple(
                        _window(10 * n, 5, 1, "0/0: tensor 'x' size mismatch at index 0. expected 9, actual 3", frame=n)
                        for n in range(4)
                    )
                }
            ),
        ),
        Silent(
            _PICTURE,
            "training, evaluation and the first block without gradients are programs of their own",
            _storm("0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0", (0, 0, 1, 2)),
        ),
        Silent(_PICTURE, "first compilations only", _storm("", (0, 0, 0, 0))),
    )

    planted = (
        Planted(
            before="""\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)


def loss_of(x):
    return net(x).square().mean()


fast = torch.compile(loss_of, backend="aot_eager", dynamic=False)  # <- fault
for step in range(60):
    loss = fast(torch.randn(4 + step % 20, 32))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
            after="""\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)


def loss_of(x):
    return net(x).square().mean()


fast = torch.compile(loss_of, backend="aot_eager", dynamic=True)
for step in range(60):
    loss = fast(torch.randn(4 + step % 20, 32))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
            also=frozenset({"compiler/long-cold-start", "compiler/debug-backend"}),
        ),
        Planted(
            before="""\
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.lin = nn.Linear(32, 32)
        self.role = (name, 1)

    def forward(self, x):
        sign = -1.0 if self.role[0] == "g0" else 1.0  # <- fault
        return x + sign * torch.tanh(self.lin(x))


torch.manual_seed(0)
gates = nn.Sequential(*[Gate(f"g{i}") for i in range(7)])
for gate in gates:
    gate.compile(backend="aot_eager")
opt = torch.optim.SGD(gates.parameters(), lr=0.01)
for step in range(30):
    loss = gates(torch.randn(8, 32)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
            after="""\
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.lin = nn.Linear(32, 32)
        self.register_buffer("sign", torch.tensor(-1.0 if name == "g0" else 1.0))

    def forward(self, x):
        return x + self.sign * torch.tanh(self.lin(x))


torch.manual_seed(0)
gates = nn.Sequential(*[Gate(f"g{i}") for i in range(7)])
for gate in gates:
    gate.compile(backend="aot_eager")
opt = torch.optim.SGD(gates.parameters(), lr=0.01)
for step in range(30):
    loss = gates(torch.randn(8, 32)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
            also=frozenset({"compiler/long-cold-start", "compiler/debug-backend"}),
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        storms: dict[tuple[Line, Change], list[Compile]] = defaultdict(list)
        for windows in _by_function(tables.compiles).values():
            change = _what_changes(windows)
            if len({w.compile_id.split("_")[0] for w in windows}) < LEAST.get(change, OTHERWISE_LEAST):
                continue
            where = _where(change, windows, run, tables)
            if where is not None:
                storms[where, change] += windows
        for (where, change), windows in storms.items():
            finding = self._of(where, change, windows, tables)
            if finding is not None:
                yield finding

    def _of(self, where: Line, change: Change, windows: list[Compile], tables: Tables) -> Finding | None:
        scope, counted = _scope(windows, tables)
        spent_ns = sum(window.ns for window in counted)
        steps = max(1, tables.steady_steps)
        if scope is Scope.STEADY and spent_ns < LEAST_SHARE * tables.steady_ns:
            return None
        count = len({window.compile_id.split("_")[0] for window in windows})
        total_ns = sum(window.ns for window in windows)
        per = steps if scope is Scope.STEADY else 1
        longest = max(windows, key=lambda window: window.ns)
        return Finding(
            self.id,
            f"{_said(count)} took {total_ns / 1e9:.3g} s, because {change.value}.",
            where,
            scope,
            _stakes(counted),
            Weight.TIMED,
            Basis.MEASURED,
            (
                Evidence("recompilations", count, "count", "rank 0: events COMPILE"),
                Evidence("time in them, whole run", total_ns, "ns", "rank 0: events COMPILE"),
                Evidence(
                    "longest of them", longest.ns, "ns", f"rank 0: events COMPILE, compile id {longest.compile_id}"
                ),
                Evidence(
                    "last of them in step", max(window.step for window in windows), "count", "rank 0: events COMPILE"
                ),
            ),
            Saving(int((spent_ns - _kept_ns(change, counted)) / per), int(spent_ns / per)),
            notes=_notes(change, windows, count),
        )

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        windows = [window for window in tables.compiles if window.number > 0]
        matching = [w for w in windows if _where(change_of(w.reason), [w], run, tables) == finding.where] or windows
        change = _what_changes(matching)
        title, why = _ADVICE[change]
        edits: tuple[SetKeyword, ...] = ()
        site = matching[0].site
        if change is Change.SHAPE and site is not None and not is_library(site.file):
            edits, title = (set_where_asked(site, "dynamic", True),), "dynamic=True"
            why = "sizes are read at run time: kernels may round differently; or " + why
        yield Remedy(f"{self.id}#{change.name.lower().replace('_', '-')}", title, Safety.SAME_MATH, edits, (), why)


def _by_function(windows: Sequence[Compile]) -> dict[str, list[Compile]]:
    """Return the recompilations by the compiler's number of the function."""
    functions: dict[str, list[Compile]] = defaultdict(list)
    for window in windows:
        if window.number > 0:
            functions[window.compile_id.split("/")[0]].append(window)
    return functions


def _what_changes(windows: Sequence[Compile]) -> Change:
    """Return what changed in most of *windows*; their first is often something else, as a block without gradients."""
    told = Counter(change_of(window.reason) for window in windows if window.reason)
    return told.most_common(1)[0][0] if told else Change.OTHER


def _where(change: Change, windows: Sequence[Compile], run: Run, tables: Tables) -> Line | None:
    """Return the line to blame: where the optimizer was made, what differs is read, or compilation was asked for."""
    typical = next((w for w in reversed(windows) if change_of(w.reason) is change), windows[-1])
    if change is Change.LEARNING_RATE:
        made = [facts.text("site") or "" for facts in run.ranks[0].facts.family("parameters").values()]
        line = next((line for site in made if site and (line := tables.place(site)) is not None), None)
        return line or typical.site
    guard = typical.guard or reading(typical, run.project)
    if change in (Change.ATTRIBUTE, Change.LENGTH, Change.KEYS) and guard is not None and not is_library(guard.file):
        return guard
    return typical.site or guard or typical.frame


def _scope(windows: list[Compile], tables: Tables) -> tuple[Scope, list[Compile]]:
    """Return what part of the job the recompilations belong to, and those that lie in it."""
    steady = [window for window in windows if window.steady]
    if not steady:
        return Scope.STARTUP, windows
    steps = max(window.step for window in tables.compiles) if tables.trend is None else tables.trend.steps
    goes_on = max(window.step for window in steady) >= GOES_ON * max(steps, tables.steady_steps)
    return (Scope.STEADY, steady) if goes_on or len(steady) == len(windows) else (Scope.PERIODIC, windows)


def _stakes(windows: list[Compile]) -> tuple[Stake, ...]:
    spent: Counter[Phase] = Counter()
    for window in windows:
        spent[window.phase] += window.ns
    return tuple(Stake(phase, Activity.COMPILE, ns) for phase, ns in sorted(spent.items()))


def _kept_ns(change: Change, windows: Sequence[Compile]) -> float:
    """Return what may be left of the time once the program is compiled for all that it meets: about one compilation."""
    of_all, of_longest = KEPT.get(change, KEPT_OTHERWISE)
    times = [window.ns for window in windows]
    return min(of_all * sum(times), of_longest * max(times, default=0))


def _notes(change: Change, windows: list[Compile], count: int) -> tuple[str, ...]:
    reason = next((guard_of(w.reason) for w in reversed(windows) if change_of(w.reason) is change), "")
    notes = [f"the guard that failed last: {reason}"] if reason else []
    if max(window.number for window in windows) >= 7:
        notes.append("the compiler gives up after recompile_limit (8) programs of one function and runs it uncompiled")
    return tuple(notes)


def _said(count: int) -> str:
    return "One recompilation" if count == 1 else f"{count} recompilations"
