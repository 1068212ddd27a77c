"""A line that the compiler cannot trace breaks the compiled graph, and every step runs it in pieces.

## What it is
`torch.compile` met something that it cannot put into a graph: `.item()`, `print`, logging, numpy, `time.time()`, a
branch on a tensor's value. It ends the graph there, lets the interpreter run the line, and compiles the rest as
another program. Where it cannot go on behind the line, as within a loop or `try`, it leaves the whole function to the
interpreter.

## Why it costs
Every piece is entered anew: guards are checked, arguments packed, a node of autograd made, and in the backward pass
once more. What stands on both sides of the break cannot be fused, and the line itself may wait for results.

## How it is told
The compiler tells of each break with the user's stack; the innermost line of the user's own code is named. One step
is then counted: how often the pieces behind the line, or the functions given up, are really entered. A break that
such a step does not meet is of the start or of an evaluation, and nothing is said. Nor is it of breaks that were
asked for (`torch.compiler.disable`, a library's `graph_break()`), of the compiled optimizer's own, or of `backward()`
within a compiled step.

The time is an estimate. Sampled is what the interpreter spends on the line itself; an entry is taken as 35 us in the
forward and 35 us in the backward pass; of a function given up 10 % of the time it runs uncompiled is taken. What
fusion would give is not known before a trial: at most half of both passes, which is the upper bound of the saving.
Below 2 % of the step the break is a candidate only.

## Sources
PyTorch documentation, "Working with Graph Breaks" and "Common Graph Breaks". An entry: a break more costs a step
80-90 us, ten layers of width 16 with 0, 2 and 8 breaks (torch 2.13, CPU, inductor and aot_eager); the bound: six
blocks of LayerNorm, leaky ReLU and gate take 45 ms fused and 89 ms where fusion is lost.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes._configured import head_file
from unstall.causes.compiler._asked import fuses
from unstall.causes.compiler._uncompiled import COMPILED, LEFT_LOST, MOST_OF_PASS, held_ns, stakes_in, uncompiled_ns
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Candidate, Evidence, Finding, Line, Saving, Scope, Weight
from unstall.model.ledger import Activity, Basis, Ledger, Phase
from unstall.model.remedy import Edit, Members, Remedy, Safety, SetAttribute, SetEnvironment
from unstall.model.run import Fact, Facts, Place, Run, Sensor
from unstall.model.tables import Compile, HotLine, Tables

ENTRY_NS = {Phase.FORWARD: 35_000, Phase.BACKWARD: 35_000}  # one piece more; low, measured 80-90 us together
LEAST_OF_ENTRY = 0.5  # of it, on a faster machine

# breaks that someone meant, or that no one can take away
_MEANT = re.compile(
    r"disable\(\)|intentionally marked.*[/\\]torch[/\\]|[Tt]ensor\.backward|autograd\.backward"
    r"|recompile.limit|cache.size"
)
_CONFIG = "torch._dynamo.config"
_SAYS = re.compile(r"(?<![\w.])print\(|\blog\w*\.(?P<method>debug|info|warning|error)\(", re.I)
_ASKED = "graph_break()"  # of a library it is meant; in the user's code a line to look at
_OF_TORCH = re.compile(r"[/\\]torch[/\\](optim|_dynamo|autograd|distributed|utils)[/\\]")
_MODULES = "torch.nn.modules.module."

_ADVICE = (
    (
        re.compile(r"\.item\(|_local_scalar_dense|tolist|scalar", re.I),
        "keep the value a tensor",
        "compute with the tensor itself, and read it outside of what is compiled, every so many steps",
    ),
    (
        re.compile(r"\bprint\b|logg(ing|er)|warn", re.I),
        "say it outside of what is compiled",
        "move the call behind the compiled one; or let the compiler put it at the end: "
        "torch._dynamo.config.reorderable_logging_functions.add(print), or ignore it: ignore_logging_functions",
    ),
    (
        re.compile(r"\btime\b|perf_counter", re.I),
        "time it outside of what is compiled",
        "take the time around the call of the compiled function; within it the clock reads launches, not work",
    ),
    (
        re.compile(r"branching|control flow|bool", re.I),
        "choose without a branch",
        "use torch.where or a mask instead of `if tensor`; torch.cond where both sides are costly",
    ),
    (
        re.compile(r"numpy|ndarray", re.I),
        "stay in torch",
        "write it with torch operations, or prepare it in the input pipeline",
    ),
)
_OTHERWISE = (
    "move the line out of what is compiled",
    "call it before or behind the compiled function; fullgraph=True then names whatever still breaks",
)


@dataclass
class _Broken:
    """A line with breaks.

    Attributes:
        splits, skips: breaks behind which the compiler went on, and those at which it gave up the function.
        entries: pieces entered a step because of it; left: calls a step of functions given up.
    """

    where: Line
    splits: list[Facts] = field(default_factory=list)
    skips: list[Facts] = field(default_factory=list)
    entries: float = 0.0
    left: float = 0.0

    @property
    def breaks(self) -> list[Facts]:
        return self.splits + self.skips

    @property
    def reason(self) -> str:
        return self.breaks[0].text("reason") or "no reason was told"


_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFBBBBO|FFFFFBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""
_REASON = "Unsupported Tensor.item() call with capture_scalar_outputs=False"
_BY_HAND = "Call to `torch._dynamo.graph_break()`"


def _given(
    count: int = 0, reason: str = _REASON, library: str = "", entered: int = 1, skipped: bool = False, **tables: object
) -> Given:
    told: dict[str, Fact] = {
        "id": "0/0", "frame": "train.py:5:forward", "at": "train.py:8:forward", "library": library,
        "reason": reason, "skipped": skipped,
    }  # fmt: skip
    pieces: dict[str, Fact] = {
        "steps": 1, "resumed": {"train.py:8": count} if count else {}, "entered": {"train.py:5": entered},
    }  # fmt: skip
    return Given(facts={"graph_break:0": told, "pieces": pieces}, tables={"compiles": (), "lines": (), **tables})


_LINE = Line("train.py", 8, "forward", "print(x)")
_SLOW = HotLine(
    _LINE, Phase.FORWARD, 5_000_000, ((Activity.COMPUTE, 5_000_000),), 50, 0,
    paths=(((), 0.4), (("torch._dynamo.eval_frame._fn",), 0.6)),
)  # fmt: skip
_EAGER = HotLine(
    replace(_LINE, line=7), Phase.FORWARD, 10_000_000, ((Activity.COMPUTE, 10_000_000),), 50, 0,
    chain=(Line("train.py", 7, "Net.forward"),), paths=(((), 1.0),),
)  # fmt: skip
_EVALUATED = Compile(0, 1, 0, "0/0", None, None, phase=Phase.EVALUATE)

_NET = """\
import time
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
{body}
        return x


torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
net.compile(backend="aot_eager")
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(400):
    loss = net(torch.randn(8, 16)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""
_CLOCKS = """\
        x = torch.tanh(self.layers[0](x))
        self.first_done = time.perf_counter()  # <- fault
        x = torch.tanh(self.layers[1](x))
        self.second_done = time.perf_counter()  # <- fault
        x = torch.tanh(self.layers[2](x))
        self.third_done = time.perf_counter()  # <- fault
        x = torch.tanh(self.layers[3](x))"""
_ITEM = """\
        for layer in self.layers:
            x = self.scaled(torch.tanh(layer(x)))"""
_SCALED = """
    def scaled(self, x):
        most = x.detach().abs().max().item()  # <- fault
        return x / (1 + most)

    def forward"""
_PLAIN = """\
        for layer in self.layers:
            x = torch.tanh(layer(x))"""
_ALSO = frozenset({"compiler/long-cold-start", "compiler/debug-backend"})


class GraphBreaks(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER})

    cases = (
        Fires(_PICTURE, 1.4, _given(10)),
        Fires(_PICTURE, 2.07, _given(1, lines=(_SLOW,))),
        Fires(_PICTURE, 1.8, _given(skipped=True, lines=(_EAGER,))),
        Silent(_PICTURE, "the counted step does not meet the break: it was of the first steps", _given(0)),
        Silent(_PICTURE, "it was asked for", _given(10, "Skip calling `torch.compiler.disable()`d function")),
        Fires(_PICTURE, 2.07, _given(1, _BY_HAND, lines=(_SLOW,))),
        Silent(_PICTURE, "a library asks for it", _given(10, _BY_HAND, library="/env/site-packages/nets/a.py:3:f")),
        Silent(
            _PICTURE,
            "the compiled optimizer's own",
            _given(10, library="/env/site-packages/torch/optim/adam.py:30:step"),
        ),
        Silent(
            _PICTURE,
            "torch's own mark on its optimizers",
            _given(
                10, "Dynamo developers have intentionally marked that `Adam.step` in file `/env/torch/optim/a.py` not"
            ),
        ),
        Silent(_PICTURE, "it belongs to the evaluation", _given(10, compiles=(_EVALUATED,))),
    )

    planted = (
        Planted(
            before=_NET.format(body=_CLOCKS),
            after=_NET.format(body="\n".join(line for line in _CLOCKS.splitlines() if "fault" not in line)),
            also=_ALSO,
            edited=False,
        ),
        Planted(
            before=_NET.format(body=_ITEM).replace("\n    def forward", _SCALED),
            after=_NET.format(body=_ITEM).replace("\n    def forward", _SCALED).replace(".item()  # <- fault", ""),
            also=_ALSO | {"compiler/recompile-storm"},
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate]:
        facts = run.ranks[0].facts
        broken = [line for line in _lines(facts, tables) if not _only_evaluated(line, tables.compiles)]
        _count(broken, facts, tables.compiles)
        for line in broken:
            if line.entries or line.left:
                yield self._of(line, facts, tables)

    def _of(self, line: _Broken, facts: Facts, tables: Tables) -> Finding | Candidate:
        steps = max(1, tables.steady_steps)
        fused = fuses(facts)
        on_line_ns = sum(_alone_ns(hot) for hot in tables.lines if _same(hot.line, line.where))
        entries_ns = {phase: int(ns * line.entries * steps) for phase, ns in _entry(line, tables.compiles).items()}
        left_ns = _left_ns(line, tables) if fused else {}
        first = next(iter(entries_ns))  # the line itself is run there
        claims = {
            phase: max(entries_ns.get(phase, 0), on_line_ns if phase is first else 0)
            + int(LEFT_LOST * left_ns.get(phase, 0))
            for phase in (*entries_ns, *(left for left in left_ns if left not in entries_ns))
        }
        stakes = tuple(stake for phase, ns in claims.items() for stake in stakes_in(phase, ns, tables.steady_parts))
        spent_ns = sum(stake.ns for stake in stakes)
        because = f"The compiler: {line.reason}"
        if spent_ns < LEAST_SHARE * tables.steady_ns:
            return Candidate(self.id, _title(line), line.where, because)
        passes_ns = sum(held_ns(phase, tables.steady_parts) for phase in ENTRY_NS)
        most_ns = max(spent_ns, int(MOST_OF_PASS * passes_ns)) if fused else spent_ns
        low_ns = min(spent_ns, int(LEAST_OF_ENTRY * sum(entries_ns.values())))
        return Finding(
            self.id, _title(line), line.where, Scope.STEADY, stakes, Weight.ESTIMATED, Basis.SAMPLED,
            (
                Evidence("pieces entered because of it, a step", round(line.entries, 2), "count", "rank 0: facts pieces"),
                Evidence("functions left uncompiled, a step", round(line.left, 2), "count", "rank 0: facts pieces"),
                Evidence("on the line itself", on_line_ns // steps, "ns a step", "rank 0: stack samples"),
                Evidence("entries, estimated", sum(entries_ns.values()) // steps, "ns a step", "35 us each in both passes"),
                Evidence("runs uncompiled", sum(left_ns.values()) // steps, "ns a step", "rank 0: stack samples"),
            ),
            Saving(low_ns // steps, most_ns // steps),
            notes=(because, "an estimate: what fusion would give shows only in a trial"),
        )  # fmt: skip

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        reason = " ".join(finding.notes[:1])
        code = finding.where.code if isinstance(finding.where, Line) else ""
        said = [(title, why) for words in (code, reason) for sign, title, why in _ADVICE if sign.search(words)]
        advice = said[0] if said else _OTHERWISE
        yield Remedy(f"{self.id}#move", advice[0], Safety.SAME_MATH, (), (), advice[1])
        if "capture_scalar_outputs" in reason:
            edit = _capturing(run, tables)
            title = "let the compiler trace values read from tensors"
            why = "the value becomes a symbol of the graph; fused kernels may round differently"
            yield Remedy(f"{self.id}#scalars", title, Safety.SAME_MATH, (edit,), (), why)
        file = head_file(run, tables)
        said_by = _SAYS.search(code)
        if file is not None and said_by is not None:
            yield _saying(self.id, file, said_by["method"])


def _saying(cause: str, file: str, method: str | None) -> Remedy:
    """Return the remedy that lets the compiler go on at a `print`, or at a *method* of a logger."""
    if method is None:
        edit = SetAttribute(file, f"{_CONFIG}.reorderable_logging_functions", Members(("builtins.print",)))
        why = "what is printed comes behind the graph, in its order; fused kernels may round differently"
        return Remedy(
            f"{cause}#print", "let the compiler print at the end of the graph", Safety.SAME_MATH, (edit,), (), why
        )
    edit = SetAttribute(file, f"{_CONFIG}.ignore_logger_methods", Members((f"logging.Logger.{method}",)))
    why = f"no {method}() of any logger is then logged from what is compiled; fused kernels may round differently"
    return Remedy(
        f"{cause}#unlogged", f"leave {method}() of loggers out of what is compiled", Safety.SAME_MATH, (edit,), (), why
    )


def _capturing(run: Run, tables: Tables) -> Edit:
    """Return the edit that lets values read from tensors be traced: in the script, where it is known, else around it."""
    file = head_file(run, tables)
    if file is None:
        return SetEnvironment("TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS", "1")
    return SetAttribute(file, "torch._dynamo.config.capture_scalar_outputs", True)


def _title(line: _Broken) -> str:
    if line.entries:
        pieces = "piece" if line.entries == 1 else "pieces"
        return f"The compiled graph breaks at this line: each step enters {line.entries:.3g} {pieces} more."
    calls = "call" if line.left == 1 else "calls"
    return f"A break at this line leaves the whole function uncompiled, in {line.left:.3g} {calls} a step."


def _lines(facts: Facts, tables: Tables) -> list[_Broken]:
    """Return the user's lines at which graphs broke, but not those that someone meant."""
    broken: dict[str, _Broken] = {}
    for told in facts.family("graph_break").values():
        at, library = told.text("at") or "", told.text("library") or ""
        reason = told.text("reason") or ""
        if _MEANT.search(reason) or _OF_TORCH.search(library) or (library and _ASKED in reason):
            continue
        place = Place.parse(at)
        where = tables.place(at)
        if place is None or where is None:
            continue
        line = broken.setdefault(f"{place.file}:{place.line}", _Broken(replace(where, framework=library or None)))
        (line.skips if told.flag("skipped") else line.splits).append(told)
    return list(broken.values())


def _only_evaluated(line: _Broken, windows: Sequence[Compile]) -> bool:
    ids = {told.text("id") for told in line.breaks}
    phases = {window.phase for window in windows if window.compile_id.split("_")[0] in ids}
    return phases == {Phase.EVALUATE}


def _entry(line: _Broken, windows: Sequence[Compile]) -> Mapping[Phase, int]:
    """Return what a piece more costs, by phase: what is compiled outside of the forward pass has no backward."""
    ids = {told.text("id") for told in line.breaks}
    phases = {window.phase for window in windows if window.compile_id.split("_")[0] in ids} - {Phase.EVALUATE}
    other = min(phases - {Phase.BACKWARD}, default=Phase.FORWARD)
    return ENTRY_NS if not phases or Phase.FORWARD in phases else {other: ENTRY_NS[Phase.FORWARD]}


def _count(broken: Sequence[_Broken], facts: Facts, windows: Sequence[Compile]) -> None:
    """Fill in how often a step meets each line; where no step was counted, once where it did not heal."""
    pieces = facts.known.get("pieces")
    counted = Facts(pieces) if isinstance(pieces, dict) else Facts()
    steps = counted.number("steps") or 0
    resumed, entered = _numbers(counted, "resumed"), _numbers(counted, "entered")
    alone = len(facts.family("graph_break")) == sum(len(line.breaks) for line in broken) and len(broken) == 1
    for line in broken:
        if not steps or not (resumed or entered):
            heals = _healed(line, windows)
            line.entries, line.left = float(not heals and bool(line.splits)), float(not heals and bool(line.skips))
            continue
        at = line.breaks[0].text("at") or ""
        # a break in what another function calls breaks that one, too, under the line of its call
        own = sum(resumed.values()) if alone else resumed.get(at.rpartition(":")[0], 0.0)
        frames = {(told.text("frame") or "").rpartition(":")[0] for told in line.skips}
        line.entries, line.left = own / steps, sum(entered.get(frame, 0.0) for frame in frames) / steps


def _numbers(facts: Facts, name: str) -> Mapping[str, float]:
    value = facts.known.get(name)
    return {key: float(n) for key, n in value.items() if isinstance(n, int)} if isinstance(value, dict) else {}


def _healed(line: _Broken, windows: Sequence[Compile]) -> bool:
    """Return whether each function that broke at *line* was later compiled without that."""
    last: dict[str, int] = defaultdict(int)
    for told in line.breaks:
        frame, _, number = (told.text("id") or "").partition("/")
        last[frame] = max(last[frame], int(number) if number.isdigit() else 0)
    newest: dict[str, int] = defaultdict(int)
    for window in windows:
        if window.phase is not Phase.EVALUATE:
            frame = window.compile_id.partition("/")[0]
            newest[frame] = max(newest[frame], window.number)
    return all(newest[frame] > number for frame, number in last.items())


def _same(line: Line, other: Line) -> bool:
    return (line.file, line.line) == (other.file, other.line)


def _alone(names: Sequence[str]) -> bool:
    """Return whether calls below a line lead neither into compiled code nor into a module."""
    return not any(name.startswith((*COMPILED, _MODULES)) for name in names)


def _alone_ns(hot: HotLine) -> int:
    return int(hot.spent_ns * sum(share for names, share in hot.paths if _alone(names)))


def _left_ns(line: _Broken, tables: Tables) -> dict[Phase, int]:
    """Return the time, by pass, in which functions given up at *line* run uncompiled."""
    return uncompiled_ns([told.text("frame") or "" for told in line.skips], tables)
