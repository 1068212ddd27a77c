"""What the input costs the loop, and what a cheaper batch would save: the arithmetic that the data causes share.

The time to blame is the ledger's FETCH time, after overlap: what a worker does while the model works costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from unstall.model.finding import Command, Line, Saving, Scope, Stake, Where
from unstall.model.ledger import Activity, Ledger, Phase
from unstall.model.run import Place, Run
from unstall.model.tables import BatchLine, Cores, LoaderUse, Tables

FEW_STEPS = 10  # with fewer steady steps what was prefetched in the first step still hides what a batch costs
TEAM = 1.5  # times the CPU time of a fetch's own thread that all threads of its worker take, from which on others take part
CROWDED = 1.25  # runnable threads a core; below it they have room
LEAST_LINE = 0.6  # of the samples below a line; with less on one of the lines that it calls, the line itself is named


@dataclass(frozen=True, slots=True)
class Wait:
    """Ledger time that the loop spends on the batches of one loader.

    Attributes:
        ns: over the scope; share: of the steady steps, or of the loop.
        steps: steps it is spread over.
    """

    scope: Scope
    activity: Activity
    ns: int
    share: float
    steps: int

    def stake(self, part: float = 1.0) -> Stake:
        return Stake(Phase.FETCH, self.activity, int(self.ns * min(1.0, part)))

    def saving(self, low: float, high: float) -> Saving:
        """Return the saving of the shares *low* to *high* of this wait."""
        over = max(1, self.steps) if self.scope is Scope.STEADY else 1
        return Saving(int(self.ns * min(low, high) / over), int(self.ns * min(1.0, high) / over))

    @property
    def step_ns(self) -> float:
        return self.ns / max(1, self.steps)


def wait_of(use: LoaderUse, ledger: Ledger, tables: Tables) -> Wait:
    """Return the wait for *use* in the steady steps, iterators apart; of the whole loop where few steps were steady."""
    activity = Activity.WAIT_DATA if use.workers else Activity.LOAD
    ns = max(0, use.wait_ns - cold_ns(use))
    steady = Wait(Scope.STEADY, activity, ns, ns / max(1, tables.steady_ns), tables.steady_steps)
    if tables.steady_steps >= FEW_STEPS or sum(other.trains for other in tables.loaders) > 1:
        return steady
    outside = ledger.total_ns(phase=(Phase.STARTUP, Phase.SHUTDOWN))
    loop = max(1, int(ledger.wall_R.sum()) - outside)
    started = sum(use.iterator_ns) + sum(use.stop_ns)
    whole_ns = max(0, ledger.total_ns(phase=Phase.FETCH, activity=activity) - started)
    steps = int(ledger.step.max(initial=-1)) + 1
    whole = Wait(Scope.PERIODIC, activity, whole_ns, whole_ns / loop, steps)
    return whole if whole.share > 1.5 * steady.share else steady


def cold_ns(use: LoaderUse) -> int:
    """Return the steady time in which new workers' first batches were late, above what a batch costs."""
    return max(0, use.first_ns - use.restarts * use.batch_wall_ns) if use.workers and not use.persistent else 0


def is_busy(use: LoaderUse) -> bool:
    """Return whether making a batch is work rather than waiting for the disk, the net or a lock."""
    running = use.batch_wall_ns - use.batch_run_queue_ns
    return use.batch_cpu_ns >= 0.5 * max(1, running)


def crowd(use: LoaderUse, cores: Cores) -> float:
    """Return the threads a core that the workers and the model want at once, where the workers' batches use several threads."""
    if not use.workers or use.batch_team_cpu_ns < TEAM * max(1, use.batch_cpu_ns):
        return 0.0
    threads = max(float(use.worker_threads or 1), use.batch_team_cpu_ns / max(1, use.batch_cpu_ns))
    return use.workers * threads / usable(cores)


def usable(cores: Cores) -> float:
    return max(1.0, cores.usable / max(1, cores.ranks_here))


def saved_share(use: LoaderUse, wait: Wait, part: float) -> float:
    """Return the share of the wait that goes where a batch costs *part* of itself less."""
    if not use.workers:
        return part
    cheaper = part * use.batch_wall_ns * max(use.per_step, 1e-9) / use.workers
    return min(1.0, cheaper / max(1.0, wait.step_ns))


def place_of(use: LoaderUse, run: Run) -> Where:
    """Return the line that made the loader; a library's where no user's did, else the command."""
    if use.site.file:
        return use.site
    library = Place.parse(use.site.framework or "")
    if library is not None:
        return Line(library.file, library.line, library.function, "", use.site.framework, use.site.key)
    return Command(" ".join(str(word) for word in run.facts.known.get("command") or ()))  # type: ignore[union-attr]


def heaviest(lines: tuple[BatchLine, ...], parts: tuple[str, ...]) -> BatchLine | None:
    """Return the user's line among *parts* to name: from the outermost inwards as long as one line holds most of the work."""
    mine = [line for line in lines if line.part in parts and line.line is not None]
    if not mine:
        return None
    named = max((line for line in mine if line.depth == 0), key=lambda line: line.share, default=mine[0])
    while True:
        inner = max((line for line in mine if line.depth == named.depth + 1), key=lambda line: line.share, default=None)
        if inner is None or inner.share < LEAST_LINE * named.share:
            return named
        named = inner


def share_of(lines: tuple[BatchLine, ...], parts: tuple[str, ...]) -> float:
    """Return the share of the samples in *parts*: what the outermost frames of each hold."""
    return sum(line.share for line in lines if line.part in parts and line.depth == 0)
