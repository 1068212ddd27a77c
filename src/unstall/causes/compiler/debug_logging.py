"""The compiler writes a log of its work, and the training waits for the writing.

## What it is
`TORCH_LOGS` or `torch._logging.set_logs` asks for messages of Dynamo, AOTAutograd or Inductor: `+dynamo`, `output_code`,
`all`. It is left from a search for an error, in a shell profile or a job's template.

## Why it costs
Each message is put together, with stacks and whole programs printed as text, and written by the thread that trains.
With `+dynamo` there are thousands for each function that is compiled. The job's log grows by megabytes.

## How it is told
Stack samples tell how long the thread is within Python's `logging` on behalf of torch. Told are such lines where it
makes up 2 % of the steady step, or 0.3 s and a twentieth of the compile windows outside the steady steps. Named is
the variable, where the command was started with it, else the line that asks for the messages. Where neither is found
nothing is said: messages that come without being asked for, as warnings, are no fault of this kind. Of what it takes to
put the messages together before `logging` has them, only programs made into text are counted; the rest is taken to be up to
half as much again (2.6 s of compiling went with the messages, and 1.4 s of samples were in `logging`).

## Sources
PyTorch documentation, `torch._logging` and "TORCH_LOGS".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.compiler._settings import ENVIRON, without, without_call
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Environment, Evidence, Finding, Line, Saving, Scope, Stake, Weight, Where
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Edit, Remedy, Safety, SetEnvironment
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import Compile, HotLine, Tables

VARIABLE = "TORCH_LOGS"
LEAST_NS = 300_000_000  # outside the steady steps
LEAST_OF_COMPILING = 0.05
LEAST_SAVED, MOST_SAVED = 0.8, 1.5  # of what samples show; what a message is made of is computed for it alone

_LOGS = ("logging.", "torch._logging.")
_COMPILES = ("torch._dynamo.", "torch._inductor.", "torch._functorch.", "torch._logging.")

_TEXTS = ("dis.Bytecode.dis", "torch.fx.graph_module.GraphModule.print_readable", "torch._dynamo.utils.format_bytecode")

_PICTURE = f"""
    step   |{"s" * 3000}|ssssssssss
    main   |{"F" * 3000}|FFFFFFFFBO
    host   |{"r" * 2500}{"." * 500}|..........
"""
_SHOWS = ("torch._dynamo.convert_frame.compile", "logging.Logger.debug", "logging.StreamHandler.emit")
_LINE = Line("train.py", 30, "main", "loss = net(x)")
_LOGGING = HotLine(
    _LINE, Phase.FORWARD, 2_500_000_000, ((Activity.COMPILE, 2_500_000_000),), 60, 0,
    paths=((_SHOWS[:1], 0.6), (_SHOWS, 0.4)),
)  # fmt: skip
_WINDOW = Compile(0, 2_500_000_000, 0, "0/0", None, None)


def _given(hot: HotLine = _LOGGING, asked: str = "+dynamo") -> Given:
    facts: dict[str, Fact] = {"env.TORCH_LOGS": asked} if asked else {}
    return Given(facts, {"lines": (), "outside_lines": (hot,), "compiles": (_WINDOW,)})


_PLANTED = """\
import torch
from torch import nn
{asked}

def scaled(x, gain):
    return x * gain


def bent(x):
    return torch.tanh(x)


def mixed(x, y):
    return scaled(x, 0.9) + scaled(y, 0.1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(400, 16))

    def forward(self, x):
        for gain in self.gain:
            x = mixed(bent(scaled(x, gain)), bent(scaled(gain, gain)))
        return x


def traced(graph, inputs):  # stands for a backend of one's own
    return graph.forward


torch.manual_seed(0)
net = torch.compile(Net(), backend=traced)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(30):
    loss = net(torch.randn(8, 16)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


class DebugLogging(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, 1000, _given()),
        Silent(_PICTURE, "nobody asked for messages: these are warnings", _given(asked="")),
        Silent(_PICTURE, "the script's own logging", _given(replace(_LOGGING, paths=((("logging.info",), 1.0),)))),
        Silent(_PICTURE, "compiled without a message", _given(replace(_LOGGING, paths=((_SHOWS[:1], 1.0),)))),
        Silent(_PICTURE, "a few messages", _given(replace(_LOGGING, parts=((Activity.COMPILE, 600_000_000),)))),
    )

    planted = (
        Planted(
            before=_PLANTED.format(
                asked="torch._logging.set_logs(dynamo=10, aot=10, graph_code=True, bytecode=True)  # <- fault\n"
            ),
            after=_PLANTED.format(asked=""),
            also=frozenset({"compiler/long-cold-start"}),
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding]:
        where = _where(run, tables)
        if where is None:
            return
        steady, outside = _logging_ns(tables.lines), _logging_ns(tables.outside_lines)
        if sum(steady.values()) >= LEAST_SHARE * tables.steady_ns and steady:
            yield self._of(where, Scope.STEADY, steady, tables)
        compiling_ns = sum(window.ns for window in tables.compiles if not window.steady)
        if sum(outside.values()) >= max(LEAST_NS, LEAST_OF_COMPILING * compiling_ns):
            yield self._of(where, Scope.STARTUP, outside, tables)

    def _of(self, where: Where, scope: Scope, spent: dict[tuple[Phase, Activity], int], tables: Tables) -> Finding:
        total_ns = sum(spent.values())
        per = tables.rank_steps if scope is Scope.STEADY else 1
        often = " in the steady steps" if scope is Scope.STEADY else ""
        return Finding(
            self.id, f"The compiler's own log took {total_ns / 1e9:.3g} s{often}.", where, scope,
            tuple(Stake(*entry, ns) for entry, ns in sorted(spent.items())), Weight.NEEDLESS, Basis.SAMPLED,
            (Evidence("in logging, on behalf of the compiler", total_ns, "ns", "rank 0: stack samples"),),
            Saving(int(LEAST_SAVED * total_ns / per), int(MOST_SAVED * total_ns / per)),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = (
            f"unset {VARIABLE}, or take out the call of set_logs; graph breaks and recompilations alone "
            f"({VARIABLE}=graph_breaks,recompiles) cost little"
        )
        edits: tuple[Edit, ...] = without_call(finding.where, "torch._logging.set_logs")
        edits = edits or without(finding.where, ENVIRON + VARIABLE)
        if isinstance(finding.where, Environment):
            edits = (SetEnvironment(VARIABLE, ""),)  # torch takes it for unset
        yield Remedy(f"{self.id}#quiet", "train without the compiler's log", Safety.SAME_BITS, edits, (), why)


def _where(run: Run, tables: Tables) -> Where | None:
    if run.facts.text(f"env.{VARIABLE}"):
        return Environment(VARIABLE)
    return tables.set_at(VARIABLE) or tables.set_at("set_logs")


def _logging_ns(lines: Sequence[HotLine]) -> dict[tuple[Phase, Activity], int]:
    """Return the time of *lines* within Python's logging that torch's compiler called, by entry."""
    spent: dict[tuple[Phase, Activity], int] = defaultdict(int)
    for hot in lines:
        share = sum(share for names, share in hot.paths if _logs(names))
        for activity, ns in hot.parts:
            if share and ns:
                spent[hot.phase, activity] += int(share * ns)
    return dict(spent)


def _logs(names: Sequence[str]) -> bool:
    """Return whether the compiler's messages are being written, or put together: no other work of its makes text of code."""
    if any(name.startswith(_COMPILES) for name in names) and any(name in _TEXTS for name in names):
        return True
    at = next((n for n, name in enumerate(names) if name.startswith(_LOGS)), None)
    return at is not None and any(name.startswith(_COMPILES) for name in names[: at + 1])
