"""Operators that the compiler would fuse run outside of its kernels, and the tensors between them go through memory.

## What it is
`torch.compile` writes one kernel for a chain of operators that work element by element. What it has no rule for it
calls as it is: an operator of the script's own (`torch.library.custom_op`), one on complex numbers, on a GPU a random
one under `fallback_random`. Or a setting keeps it from fusing at all, as a small `max_fusion_size`.

## Why it costs
Such a call ends one kernel and begins another. What stands before it writes its result to memory, and what stands
behind reads it again; in the call itself each of its own operations does the same, and takes fresh memory for it. A
compiled step can so become slower than one that was never compiled, and nothing says so.

## How it is told
Inductor tells the code that it wrote for each graph, whether compiled now or found in a cache. It lists the kernels,
the calls to other code and the sizes of the tensors, and stack samples lie on its lines: so the time of each call is
known. An operator of the script's own is taken for one that fuses if all its tensors fit the shape of its result and
the lines of Python that it was seen in compute no matrix products, transforms, sorts or the like; if it is no Python,
if a byte of it takes no longer than in four passes of the generated kernels. Of torch's own operators it is those that
torch marks as working element by element; random ones on a device only, since on a CPU the generated code draws more
slowly than torch does. Matrix products and whatever has no fused form are left alone. A setting is told where the time
in the kernels and the bytes that they move allow for a loss.

Named is the line that calls the operator, for its backward pass too. Lost is the time of its calls, less what one pass
of the generated kernels over the same tensors takes; what takes less than two passes loses nothing. Three quarters of
that are claimed, and the saving is a half at least; 0.3 and 0.15 where its lines compute powers, exponentials and the
like, which take most of their time in a fused kernel too. At most it is the whole, with the passes of its neighbours.
Below 2 % of the step nothing is said. A setting is a candidate only: the bytes allow for a loss, and in one of two
trials there was none.

## Sources
PyTorch documentation, "Custom Operators" (opaque to the compiler) and `torch._inductor.config`. Six blocks of
LayerNorm, leaky ReLU and gate take 45 ms fused, 89 ms with the activation in a custom operator, and 70 ms uncompiled
(torch 2.13, two threads): 27 calls to other code and 90 kernels instead of 3 and 64. Twelve planted (one thread, CPU
time of a step with and without, `bench/lost_fusion.py`): what is claimed and what was lost rank alike (Spearman 0.90
and 0.87 in two runs); of 1.6 to 10 ms lost a third to all is claimed; a change of type, which loses nothing, got 0.4 ms
in one of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from unstall.causes._cause import LEAST_SHARE, Cause
from unstall.causes.compiler._asked import backend_of
from unstall.causes.compiler._uncompiled import stakes_in
from unstall.model.case import Fires, Given, Planted, Silent
from unstall.model.finding import Abstained, Candidate, Evidence, Finding, Line, Saving, Scope, Stake, Weight
from unstall.model.fusion import Fusion, Setting, Unfused
from unstall.model.ledger import Basis, Ledger, Phase
from unstall.model.remedy import Remedy, Safety, SetEnvironment
from unstall.model.run import Fact, Run, Sensor
from unstall.model.tables import Tables

CLAIMED, LEAST_SAVED = 0.75, 0.5  # of what is lost: arithmetic stays; measured 0.73 for a leaky ReLU,
COSTLY_CLAIMED, COSTLY_LEAST_SAVED = 0.3, 0.15  # and 0.27 for tanh and powers, which take most of their time anywhere
LEAST_SAMPLES = 10  # within the calls; fewer say nothing of their time
LEAST_PASSES = (
    2.0  # of a generated kernel over its tensors, that an operator takes; below, it does no more than one would
)
MOST_PASSES = 4.0  # of a generated kernel, that a byte of an operator that is no Python may take
USUAL_NS = 0.2  # a byte, where too few samples tell what the kernels take

# in the lines of an operator: work that no pointwise kernel does
_NEEDED = re.compile(
    r"@|matmul|linear|conv|einsum|\b(?:bad)?d?b?mm\(|addmm|attention|fft|sort|topk|unique|nonzero|cumsum|cumprod|scatter|"
    r"index_|gather|embedding|solve|inv\(|cholesky|svd|qr\(|eig|lstm|gru|rnn|numpy|\bnp\.|\.cpu\(|\.item\(|multinomial"
)
_COSTLY = re.compile(r"tan|exp|erf|log|sigmoid|sin|cos|pow|sqrt|elu|softmax|silu|mish|softplus|\*\*|polar|gamma|bessel")
_RANDOM = re.compile(r"^aten\.(rand|randn|rand_like|randn_like|bernoulli|native_dropout|normal|uniform)\b")
# settings under which less is fused, and how
_LIMITS = {
    "max_fusion_size": "no more than {value} operations go into one kernel",
    "realize_reads_threshold": "what is read {value} times is written to memory",
    "realize_opcount_threshold": "chains of {value} operations are written to memory",
    "realize_acc_reads_threshold": "what reads {value} tensors is written to memory",
    "pattern_matcher": "operators are not rewritten before they are fused",
}

_PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |FFFFFBBBBO|FFFFFBBBBO
    host   |xxxxxxxxxx|xxxxxxxxxx
"""
_LINE = Line("train.py", 31, "forward", "h = leaky(h)")
_LEAKY = Unfused(
    "mine.leaky.default", _LINE, 6, 6, 6, 6_000_000, 6_000_000, True, None, ((Phase.FORWARD, 4_000_000),), 80,
    ("return torch.where(x > 0, x, 0.1 * x)",),
)  # fmt: skip
_SITE = "train.py:41:main"
_ON_CODE, _TOLD = "rank 0: stack samples on the generated code", "rank 0: facts fusion"


def _given(*unfused: Unfused, setting: Setting | None = None, least: int = 12_000_000, kernels_ms: float = 2) -> Given:
    spent = ((Phase.FORWARD, int(kernels_ms * 1e6)),)
    settings = (setting,) if setting else ()
    made = Fusion(2, 14, 0, 24_000_000, least, 110, spent, 40, tuple(unfused), settings)
    asked: dict[str, Fact] = {"site": _SITE, "settings": {}}
    return Given({"compile:0": asked}, {"fusion": made, "compiles": (), "device": None})


_NET = """\
import torch
from torch import nn


{operator}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain, self.head = nn.Parameter(torch.ones(4)), nn.Linear(256, 1)

    def forward(self, x):
        for gain in self.gain:
            {call}
        return self.head(x)


torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
net.compile({options})
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(600):
    loss = net(torch.randn(512, 256)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""
_OPERATOR = """\
@torch.library.custom_op("script::bend", mutates_args=())
def bend(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, 0.1 * x)


@bend.register_fake
def shape_of(x):
    return torch.empty_like(x)


def backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return torch.where(x > 0, grad, 0.1 * grad)


bend.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))

"""
_PLAIN = """\
def bend(x):
    return torch.where(x > 0, x, 0.1 * x)

"""
_CALL = "x = torch.sigmoid(gain * x) * bend(x)"
_ALSO = frozenset({"compiler/long-cold-start", "kernels/too-few-threads"})  # one thread, so that times are steady


class LostFusion(Cause):
    needs = frozenset({Sensor.STEPS, Sensor.COMPILER, Sensor.SAMPLES})

    cases = (
        Fires(_PICTURE, 2.25, _given(_LEAKY)),
        Fires(
            _PICTURE,
            2.25,
            _given(replace(_LEAKY, operator="aten.mul.Tensor", pointwise=True, codes=())),
        ),
        Fires(_PICTURE, 0.9, _given(replace(_LEAKY, codes=("return 0.5 * x * (1 + torch.tanh(x))",)))),
        Silent(_PICTURE, "all was fused", _given()),
        Silent(_PICTURE, "a matrix product", _given(replace(_LEAKY, codes=("return x @ w.t()", "y = 2 * x")))),
        Silent(
            _PICTURE,
            "a weight of another shape: no such operator works element by element",
            _given(replace(_LEAKY, alike=False)),
        ),
        Silent(
            _PICTURE,
            "torch's own, which has no fused form",
            _given(replace(_LEAKY, operator="aten.sort.default", pointwise=False)),
        ),
        Silent(
            _PICTURE,
            "random numbers: on a CPU torch draws them faster than generated code does",
            _given(replace(_LEAKY, operator="aten.bernoulli.p", pointwise=True, codes=())),
        ),
        Silent(
            _PICTURE,
            "it is no Python, and takes longer than passes over its tensors do",
            _given(replace(_LEAKY, codes=(), spent=((Phase.FORWARD, 9_000_000),)), least=1),
        ),
        Silent(_PICTURE, "it takes next to nothing", _given(replace(_LEAKY, spent=((Phase.FORWARD, 400_000),)))),
        Silent(
            _PICTURE,
            "no slower than two passes over its tensors",
            _given(replace(_LEAKY, spent=((Phase.FORWARD, 1_900_000),))),
        ),
        Silent(
            _PICTURE,
            "the setting costs nothing: the kernels move no more than they must",
            _given(setting=Setting("max_fusion_size", "1", _LINE), least=24_000_000),
        ),
        Silent(
            _PICTURE, "a setting that fuses no less", _given(setting=Setting("cpp.simdlen", "0", _LINE), kernels_ms=8)
        ),
    )

    planted = (
        Planted(
            before=_NET.format(operator=_OPERATOR, call=f"{_CALL}  # <- fault", options=""),
            after=_NET.format(operator=_PLAIN, call=_CALL, options=""),
            also=_ALSO,
            edited=False,
        ),
    )

    def find(self, run: Run, ledger: Ledger, tables: Tables) -> Iterator[Finding | Candidate | Abstained]:
        made = tables.fusion
        if made is None:
            asked = run.ranks[0].facts.family("compile").values()
            if tables.compiles and any(backend_of(one) == "inductor" and not one.flag("off") for one in asked):
                yield Abstained(self.id, "Inductor told of no code that it wrote: what it fused is not known")
            return
        for line, lost in _lost(made, on_device=tables.device is not None).items():
            where = line or _asked_at(run, tables)
            if where is not None:
                yield from self._of(where, lost, made, tables)
        for setting in made.settings:
            where = setting.line or _asked_at(run, tables)
            if where is not None and setting.name in _LIMITS and made.samples >= LEAST_SAMPLES:
                yield from self._limited(where, setting, made, tables)

    def _of(self, where: Line, lost: Sequence[_Lost], made: Fusion, tables: Tables) -> Iterator[Finding | Candidate]:
        names = ", ".join(dict.fromkeys(f"`{_name(one.unfused)}`" for one in lost))
        calls = sum(one.unfused.calls for one in lost)
        said = f"{names} {'run' if ', ' in names else 'runs'} outside of the fused kernels, in {calls} calls"
        if tables.device is not None:
            yield Candidate(
                self.id, f"{said} of the compiled graphs.", where, "How long it takes on the device was not told apart."
            )
            return
        stakes = _stakes(lost, tables)
        spent_ns, steps = sum(stake.ns for stake in stakes), max(1, tables.rank_steps)
        if spent_ns < LEAST_SHARE * tables.steady_ns:
            return
        own_ns = sum(one.unfused.ns for one in lost)
        between = sum(min(one.unfused.before, one.unfused.after) for one in lost)
        nbytes = sum(one.unfused.taken + one.unfused.given for one in lost)
        lost_ns, around_ns = sum(one.ns for one in lost), sum(one.around_ns for one in lost)
        least_ns = sum(int((COSTLY_LEAST_SAVED if _is_costly(one.unfused) else LEAST_SAVED) * one.ns) for one in lost)
        yield Finding(
            self.id,
            f"{said}: {own_ns / steps / 1e6:.3g} ms a step.",
            where, Scope.STEADY, stakes, Weight.NEEDLESS, Basis.SAMPLED,
            (
                Evidence("in these calls", own_ns // steps, "ns a step", _ON_CODE),
                Evidence("in generated kernels", made.kernel_ns // steps, "ns a step", _ON_CODE),
                Evidence("calls between two kernels", between, "count", _TOLD),
                Evidence("kernels generated", made.kernels, "count", _TOLD),
                Evidence("tensors of the calls", nbytes, "bytes a step", _TOLD),
            ),
            Saving(min(spent_ns, least_ns) // steps, max(spent_ns, lost_ns + around_ns) // steps),
            notes=("an estimate: what fusion would give shows only in a trial",),
        )  # fmt: skip

    def _limited(self, where: Line, setting: Setting, made: Fusion, tables: Tables) -> Iterator[Candidate]:
        part = 1 - made.least / made.moved if made.moved else 0.0
        if part * made.kernel_ns < LEAST_SHARE * tables.steady_ns:
            return
        times = made.moved / max(1, made.least)
        title = (
            f"Fusion is limited by {setting.name}={setting.value}: the kernels move {times:.2g} times what one would."
        )
        yield Candidate(self.id, title, where, f"Then {_LIMITS[setting.name].format(value=setting.value)}.")

    def remedies(self, finding: Finding, run: Run, tables: Tables) -> Iterator[Remedy]:
        why = (
            "write the operator with torch's own operations instead of torch.library.custom_op, or register a "
            "decomposition; complex numbers as pairs of real ones; random numbers without fallback_random"
        )
        yield Remedy(f"{self.id}#plain", "let the compiler see what the operator does", Safety.SAME_MATH, (), (), why)
        off = (SetEnvironment("TORCHDYNAMO_DISABLE", "1"),)
        why = "a graph that lost its fusion can be slower than no graph; only a trial shows it"
        yield Remedy(f"{self.id}#uncompiled", "do not compile at all", Safety.SAME_MATH, off, (), why)


@dataclass(frozen=True, slots=True)
class _Lost:
    """What an operator's call takes, in all steady steps, that it would not as part of a kernel.

    Attributes:
        ns: above one pass over its tensors; around_ns: that pass, and of the kernels beside it, which write what it takes
            and read what it gives; at most.
    """

    unfused: Unfused
    ns: int
    around_ns: int


def _lost(made: Fusion, *, on_device: bool) -> dict[Line | None, list[_Lost]]:
    """Return the operators that would fuse by the line that calls them."""
    found: dict[Line | None, list[_Lost]] = defaultdict(list)
    byte_ns = made.kernel_ns / made.moved if made.samples >= LEAST_SAMPLES and made.moved else None
    settings = {setting.name: setting.line for setting in made.settings}
    for unfused in made.unfused:
        random = bool(_RANDOM.search(unfused.operator))
        if unfused.samples < LEAST_SAMPLES or not ((random and on_device) or _fuses(unfused, byte_ns)):
            continue
        # bytes are counted once, as the kernels' are, however often the graph runs; without those, a usual machine's
        one_ns = byte_ns if byte_ns is not None else USUAL_NS
        beside = (unfused.before + unfused.after) / max(1, 2 * unfused.calls)
        pass_ns = one_ns * (unfused.taken + unfused.given)
        at = settings.get("fallback_random") if random else None
        # on a CPU what goes through memory is often still in a cache: a single pass, as a change of type, loses nothing
        lost_ns = unfused.ns - int(pass_ns) if unfused.ns >= LEAST_PASSES * pass_ns else 0
        found[at or unfused.line].append(_Lost(unfused, lost_ns, int((1 + beside) * pass_ns)))
    return found


def _fuses(unfused: Unfused, byte_ns: float | None) -> bool:
    """Return whether the operator, written in a way that the compiler sees, would be part of a kernel."""
    if unfused.operator.startswith("aten."):
        return bool(unfused.pointwise) and not _RANDOM.search(unfused.operator)
    if not unfused.alike:
        return False
    if unfused.codes:
        return not any(_NEEDED.search(code) for code in unfused.codes)
    nbytes = unfused.taken + unfused.given
    return byte_ns is not None and nbytes > 0 and unfused.ns <= MOST_PASSES * byte_ns * nbytes


def _stakes(lost: Sequence[_Lost], tables: Tables) -> tuple[Stake, ...]:
    claims: dict[Phase, int] = defaultdict(int)
    for one in lost:
        for phase, ns in one.unfused.spent:
            part = COSTLY_CLAIMED if _is_costly(one.unfused) else CLAIMED
            claims[phase] += int(part * one.ns * ns / max(1, one.unfused.ns))
    return tuple(stake for phase, ns in claims.items() for stake in stakes_in(phase, ns, tables.steady_parts))


def _is_costly(unfused: Unfused) -> bool:
    """Return whether the operator's arithmetic takes most of its time, fused or not, as far as its text tells."""
    return any(_COSTLY.search(text) for text in unfused.codes or (unfused.operator,))


def _name(unfused: Unfused) -> str:
    return unfused.operator.removesuffix(".default")


def _asked_at(run: Run, tables: Tables) -> Line | None:
    sites = {one.text("site") or "" for one in run.ranks[0].facts.family("compile").values()}
    return tables.place(sites.pop()) if len(sites) == 1 else None
