"""What the input costs the loop, and what a cheaper batch would save: the arithmetic that the data causes share.

The time to blame is the ledger's FETCH time, after overlap: what a worker does while the model works costs nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from unstall.causes._configured import Setting, setting
from unstall.model.finding import Command, Line, Saving, Scope, Stake, Where
from unstall.model.ledger import Activity, Ledger, Phase
from unstall.model.loading import BatchLine, LoaderUse
from unstall.model.remedy import Scalar, SetKeyword
from unstall.model.run import Place, Run
from unstall.model.tables import Cores, Tables

FEW_STEPS = 10  # with fewer steady steps what was prefetched in the first step still hides what a batch costs
TEAM = 1.5  # CPU time of all threads of a worker over that of the fetch's own; from here on others take part
CROWDED = 1.25  # runnable threads a core; below it they have room
LEAST_TEAM_NS = 1_000_000  # CPU time of a worker's other threads for a batch; sending it off takes a part of that,
LEAST_SET_TEAM_NS = 400_000  # a small batch 0.1 to 0.2 ms: where the worker was given more threads, the rest is theirs
MERE_CALL = 0.95  # of a line's samples on one line that it leads to: then that one is named
LEAST_WAIT = 0.1  # of the step; a loop that spends less on its batches has no fault in how it makes them
LEAST_OTHERS = (
    0.5  # of a core, that other programs keep busy; with less nearly all waiting for a core is the training's own
)
LEAST_BATCH_NS = 500_000  # a batch made in less is made well, whatever its share of a small step,
LEAST_OF_FEW_NS, LEAST_SAMPLE_NS = 150_000, 20_000  # unless its few samples take long; a row in memory takes 3 to 14 us
LEAST_SAMPLES = 5  # stack samples; with fewer a line is hearsay
MANY_ROWS = 16  # samples a batch
SMALL_ROW_NS = 60_000  # CPU time a sample; 14 us is what a row of a TensorDataset takes, put together with the others
SMALL_ROW_BYTES = 16_384  # larger ones cost their copying
LOADER = "torch.utils.data.DataLoader"
_POSITIONS = {"num_workers": 5, "pin_memory": 7}  # of DataLoader's parameters that may be given without their names
_TABLES = re.compile(r"(^|\.)(pandas|polars|pyarrow|xarray)\.")
_IN_MEMORY = ("torch.utils.data.dataset.", "builtins.")


@dataclass(frozen=True, slots=True)
class Wait:
    """Ledger time that the loop spends on the batches of one loader.

    Attributes:
        ns: over the scope.
        share: of the steady steps, less the time that the machine gave them no core, or of the loop.
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


def loop_ns(ledger: Ledger) -> int:
    """Return the time of all ranks between start-up and shutdown, ns."""
    return int(ledger.wall_R.sum()) - ledger.total_ns(phase=(Phase.STARTUP, Phase.SHUTDOWN))


def wait_of(use: LoaderUse, ledger: Ledger, tables: Tables) -> Wait:
    """Return the wait for *use* in the steady steps, iterators apart; of the whole loop where few steps were steady."""
    activity = Activity.WAIT_DATA if use.workers else Activity.LOAD
    ns = max(0, use.wait_ns - cold_ns(use))
    ran_ns = tables.steady_ns * (1 - min(0.9, tables.cores.starved_share or 0.0))
    steady = Wait(Scope.STEADY, activity, ns, min(1.0, ns / max(1.0, ran_ns)), tables.steady_steps)
    if tables.steady_steps >= FEW_STEPS or sum(other.trains for other in tables.loaders) > 1:
        return steady
    loop = max(1, loop_ns(ledger))
    started = sum(use.iterator_ns) + sum(use.stop_ns)
    whole_ns = max(0, ledger.total_ns(phase=Phase.FETCH, activity=activity) - started)
    steps = int(ledger.step.max(initial=-1)) + 1
    whole = Wait(Scope.PERIODIC, activity, whole_ns, whole_ns / loop, steps)
    return whole if whole.share > 1.5 * steady.share else steady


def wait_for_work(use: LoaderUse, ledger: Ledger, tables: Tables) -> Wait:
    """Return the wait for *use*, less what other programs of the machine add by taking cores from its workers.

    With the cores to itself a step takes the slowest of the model, a worker's share of the batches, and all CPU time over
    the cores; what that is above the model's is waited for. Time without a core is in none of them.
    """
    wait = wait_of(use, ledger, tables)
    if not use.workers or wait.scope is not Scope.STEADY or (tables.cores.others_busy or 0.0) < LEAST_OTHERS:
        return wait
    step_ns = tables.steady_ns / tables.rank_steps
    rest_ns = max(0.0, step_ns * (1 - (tables.cores.starved_share or 0.0)) - wait.step_ns)
    cpu_ns = max(use.batch_cpu_ns, use.batch_team_cpu_ns) * use.per_step
    turn_ns = (use.batch_wall_ns - use.batch_run_queue_ns) * use.per_step / use.workers
    free_ns = max(rest_ns, turn_ns, (rest_ns + cpu_ns) / usable(tables.cores))
    ns = int((free_ns - rest_ns) * wait.steps)
    return wait if ns >= wait.ns else replace(wait, ns=ns, share=min(wait.share, 1 - rest_ns / max(1.0, free_ns)))


def cold_ns(use: LoaderUse) -> int:
    """Return the steady time in which new workers' first batches were late, above what a batch costs."""
    return max(0, use.first_ns - use.restarts * use.batch_wall_ns) if use.workers and not use.persistent else 0


def is_busy(use: LoaderUse) -> bool:
    """Return whether making a batch is work rather than waiting for the disk, the net or a lock."""
    running = use.batch_wall_ns - use.batch_run_queue_ns
    return use.batch_cpu_ns >= 0.5 * max(1, running)


def is_much(part_ns: int | None, use: LoaderUse) -> bool:
    """Return whether *part_ns* of making a batch is more than a batch takes that is made well."""
    ns = part_ns or 0
    each = ns / max(1, use.samples or use.batch_size or 1)
    return ns >= LEAST_BATCH_NS or (ns >= LEAST_OF_FEW_NS and each >= LEAST_SAMPLE_NS)


def crowd(use: LoaderUse, cores: Cores) -> float:
    """Return the threads a core that all workers want at once; 0 where their batches use one thread each."""
    team, running = use.batch_team_cpu_ns, use.batch_wall_ns - use.batch_run_queue_ns
    if not use.workers or team < TEAM * max(1, use.batch_cpu_ns):
        return 0.0
    least = LEAST_TEAM_NS if (use.worker_threads or 1) < 2 else LEAST_SET_TEAM_NS
    if team - use.batch_cpu_ns < least or team < 0.5 * running:  # the queue's own thread, beside a batch that waits
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


def loader_setting(use: LoaderUse, keyword: str, value: Scalar, run: Run, tables: Tables) -> Setting:
    """Return how to give a loader's *keyword* the *value*: at the user's call, or in what a framework makes it by."""
    if use.site.key:
        return setting(f"{use.site.key.partition('.')[0]}.dataloader_{keyword}", value, run, tables)
    if use.made_by == "DataLoader" and use.site.file and use.site.framework is None:
        edit = SetKeyword(use.site.file, use.site.line, LOADER, keyword, value, _POSITIONS.get(keyword))
        return Setting(keyword, (edit,))
    return Setting(keyword, (), f"the loader is made by a library, see its settings for {keyword}")


def heaviest(lines: tuple[BatchLine, ...], part: str) -> BatchLine | None:
    """Return the user's line of *part* to name: the first that the loader reaches, or the only one it leads to."""
    mine = [line for line in lines if line.part == part and line.line is not None]
    named = max((line for line in mine if line.depth == 0), key=lambda line: line.share, default=None)
    while named is not None:
        inner = max((line for line in mine if line.depth == named.depth + 1), key=lambda line: line.share, default=None)
        if inner is None or inner.share < MERE_CALL * named.share:
            break
        named = inner
    return named


def share_of(lines: tuple[BatchLine, ...], part: str) -> float:
    """Return the share of the samples in *part*: what its outermost frames hold; 1 where there are none."""
    return sum(line.share for line in lines if line.part == part and line.depth == 0) or 1.0


@dataclass(frozen=True, slots=True)
class Reopened:
    """The lines of one function that open the same file for each sample: the hottest, and the share of all together."""

    line: BatchLine
    share: float
    samples: int


def reopened(lines: tuple[BatchLine, ...]) -> Reopened | None:
    """Return the lines that open the same file for each sample; those of the depth that has most, as others are in it."""
    by_depth: dict[int, list[BatchLine]] = {}
    for line in lines:
        if line.opens and line.line is not None:
            by_depth.setdefault(line.depth, []).append(line)
    most = max(by_depth.values(), key=lambda level: sum(line.share for line in level), default=None)
    if most is None:
        return None
    hottest = max(most, key=lambda line: line.share)
    return Reopened(hottest, sum(line.share for line in most), sum(line.samples for line in most))


def is_interpreted(line: BatchLine) -> bool:
    """Return whether most of the line's time on a CPU is Python's own: held with the interpreter lock."""
    return line.python is not None and line.python >= 0.5


def is_walked(line: BatchLine) -> bool:
    """Return whether the interpreter's time on the line is a loop of the user's: around it, or in what it calls of theirs.

    Where it is neither, one call into a library holds the interpreter lock all along, as numpy's draws do.
    """
    return is_interpreted(line) and (line.loop or (line.callee != "" and "." not in line.callee))


def gist(line: BatchLine) -> str:
    """Return what the line calls, in brackets, or nothing."""
    return f" (it calls {line.callee.removeprefix('site-packages.')})" if line.callee else ""


def rows_line(use: LoaderUse, lines: tuple[BatchLine, ...]) -> Line | None:
    """Return the line to blame where rows of data in memory are fetched one by one and put together again, or None."""
    samples = use.samples or use.batch_size or 0
    if samples < MANY_ROWS or use.iterable or not is_busy(use) or use.batch_cpu_ns < LEAST_BATCH_NS:
        return None
    line = heaviest(lines, "getitem")
    if line is not None and _TABLES.search(line.callee):
        return line.line
    small = use.batch_cpu_ns / samples <= SMALL_ROW_NS and use.nbytes / samples <= SMALL_ROW_BYTES
    plain = line is None or (line.callee == "" and use.dataset_at is not None) or use.dataset.startswith(_IN_MEMORY)
    plain = plain and use.collate == "default_collate"  # what a user puts together may not be rows of one array
    return use.site if small and plain and use.site.file else None
