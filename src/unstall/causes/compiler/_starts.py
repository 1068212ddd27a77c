"""What a start of the program compiles: how long, whether a cache served, and whether the loop has paid it back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from unstall.model.finding import Evidence, Saving, Stake
from unstall.model.ledger import Activity, Phase
from unstall.model.run import Facts, Run
from unstall.model.tables import Tables

LEAST_NS = 1_000_000_000  # of compilation in all; a cache that serves leaves about that much to do
LEAST_OF_LOOP = 0.1  # of the loop recorded so far; below it the compilation has been paid back
# where the cache serves: of what Inductor itself took, in which it is imported as well (0.94 was measured, idle and busy);
# of first compilations, where that is not told
SAVED, SAVED_UNTOLD = (0.85, 1.0), (0.5, 0.9)

# Drawn and planted for the causes that share this arithmetic.
PICTURE = f"""
    step   |{"s" * 1300}|ssssssssss
    main   |{"F" * 1300}|FFFFFFFFBO
    host   |{"r" * 1200}{"." * 100}|..........
"""
TRAINING = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3, 64))

    def forward(self, x):
        for gain in self.gain:
            x = torch.softmax(x * gain, -1) + torch.sigmoid(gain * x)
        return x


torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.compile(Net())
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(60):
    loss = net(torch.randn(32, 64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


@dataclass(frozen=True, slots=True)
class Cache:
    """The compiler's cache in this run, and the first compilations outside the steady steps.

    Attributes:
        folder: where compiled code is kept; named: a variable says so; fresh: nothing there is older than this run.
        spent: ns by phase; inductor_ns: that Inductor itself took of it, None where this version of torch does not tell.
    """

    off: bool
    hits: int
    misses: int
    folder: str
    named: bool
    fresh: bool
    spent: tuple[tuple[Phase, int], ...]
    inductor_ns: int | None = None

    @property
    def ns(self) -> int:
        return sum(ns for _, ns in self.spent)

    @property
    def stakes(self) -> Iterator[Stake]:
        for phase, ns in self.spent:
            yield Stake(phase, Activity.COMPILE, ns)

    @property
    def saving(self) -> Saving:
        """Return what a cache that serves saves: the work of Inductor; the model is traced in any case."""
        ns, (low, high) = (self.ns, SAVED_UNTOLD) if self.inductor_ns is None else (self.inductor_ns, SAVED)
        return Saving(int(low * min(ns, self.ns)), int(high * min(ns, self.ns)))

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (
            Evidence("first compilations", self.ns, "ns", "rank 0: events COMPILE"),
            Evidence("graphs found in a cache", self.hits, "count", "rank 0: facts compile_cache"),
            Evidence("graphs looked for in vain", self.misses, "count", "rank 0: facts compile_cache"),
        )


def is_paid_back(ns: int, tables: Tables) -> bool:
    """Return whether *ns* of compiling before the steps is no matter, or little beside the loop recorded so far."""
    return ns < LEAST_NS or ns < LEAST_OF_LOOP * (ns + tables.steady_ns)


def cache_in(run: Run, tables: Tables) -> Cache | None:
    """Return what is known of the cache; None where Inductor compiled nothing, or what it did has been paid back."""
    known = run.ranks[0].facts.known.get("compile_cache")
    if not isinstance(known, dict):
        return None
    facts = Facts(known)
    spent: dict[Phase, int] = defaultdict(int)
    for window in tables.compiles:
        if window.number == 0 and not window.steady:
            spent[window.phase] += window.ns
    total_ns = sum(spent.values())
    if is_paid_back(total_ns, tables):
        return None
    return Cache(
        bool(facts.flag("off")), int(facts.number("hit") or 0), int(facts.number("miss") or 0),
        facts.text("folder") or "", bool(facts.flag("set")), bool(facts.flag("fresh")), tuple(sorted(spent.items())),
        None if (took := facts.number("inductor_ns")) is None else int(took),
    )  # fmt: skip
