"""Evidence that several causes share, each computed once, lazily, by `accounts`.

Causes get a `Tables` and read what they need; a table that could not be made is empty or None.
All times are over the steady steps unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from unstall.model.device import DeviceUse
from unstall.model.finding import Line
from unstall.model.fusion import Fusion
from unstall.model.ledger import Activity, Device, Phase
from unstall.model.loading import BatchLine, LoaderUse, WorkerLine
from unstall.model.native import Build, Native
from unstall.model.regions import Entering
from unstall.model.remedy import Safety


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop in the user's source: ``for``, ``while`` or one clause of a comprehension, by its first and last line.

    Attributes:
        turns: what it calls is named as what ends a step (``loss.backward()``, ``opt.step()``, ``train_step(x)``).
    """

    file: str
    first: int
    last: int
    turns: bool = False


@dataclass(frozen=True, slots=True)
class HotLine:
    """A user's line and the ledger time that stack samples put on it.

    Attributes:
        line: innermost frame in the user's own code.
        spent_ns: over the steady steps, all ranks; by activity in *parts*, which sum to it.
        samples: how many stack samples that is; error_ns: standard error of spent_ns.
        callee: what the line calls where most of the time goes, as ``json.dump`` (module.function of the
            outermost library frame below the line), or "" where the line itself is the leaf.
        callees: the same for every library function that was seen, with its share of the line's time.
        library: file of the innermost library frame, or ""; words in its place where the compiler wrote the code.
        chain: the user's lines that led to it, outermost first, the line itself last.
        loops: the loops around the lines of *chain* in their functions, outermost first: the loop of the steps is among
            them.
        paths: the library functions below the line, outermost first, with the share of the line's time in which the
            samples showed just these; () is the line itself as the leaf. The shares add up to 1; empty where unknown.
    """

    line: Line
    phase: Phase
    spent_ns: int
    parts: tuple[tuple[Activity, int], ...]
    samples: int
    error_ns: int
    callee: str = ""
    callees: tuple[tuple[str, float], ...] = ()
    library: str = ""
    chain: tuple[Line, ...] = ()
    loops: tuple[Loop, ...] = ()
    paths: tuple[tuple[tuple[str, ...], float], ...] = ()

    def part_ns(self, *activities: Activity) -> int:
        return sum(ns for activity, ns in self.parts if activity in activities)


@dataclass(frozen=True, slots=True)
class Cores:
    """CPUs this training may use, and uses.

    Attributes:
        usable: CPUs of the affinity mask, bounded by the control group's quota.
        ranks_here: ranks of this training on this machine.
        main_busy: mean CPUs that the training process kept busy in steady steps; None where not observed.
        busy_outside_fetch: the same while the loop was not waiting for data.
        others_busy: mean CPUs that other programs of the machine kept busy; None where not observed.
        starved_share: share of steady time in which the training thread (or its team) was runnable without a CPU.
    """

    usable: float
    ranks_here: int = 1
    main_busy: float | None = None
    busy_outside_fetch: float | None = None
    others_busy: float | None = None
    starved_share: float | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the operating system's kernel did for the training's first rank in the steady steps.

    Attributes:
        system_share: of the CPU time of its process, in the kernel. page_faults: a step, that read nothing from a disk.
        cpu_ns: CPU time of the process a step, all threads.
    """

    system_share: float
    page_faults: float
    cpu_ns: float


@dataclass(frozen=True, slots=True)
class Trend:
    """How step time and memory change over the run, warm-up left out.

    Attributes:
        first_ns, last_ns: median step time of the first and last fifth of the steps.
        growth_ns_per_step: Theil-Sen slope of step time, and the bounds of its 95 % interval.
        by_phase: slope by phase, ns a step.
        rss_bytes_per_step: slope of the process's memory; None where not observed.
        steps: steps it rests on.
    """

    first_ns: int
    last_ns: int
    growth_ns_per_step: float
    growth_low: float
    growth_high: float
    by_phase: tuple[tuple[Phase, float], ...]
    rss_bytes_per_step: float | None
    steps: int


@dataclass(frozen=True, slots=True)
class Compile:
    """One compile window of the whole run.

    Attributes:
        number: 0 for a frame's first compilation, n for its n-th recompilation.
        frame: the function that was compiled; site: the user's line that asked for compilation (torch.compile, Module.compile).
        reason: why it was compiled anew, in the compiler's words; "" where it was not.
        guard: the line that the failed guard names, if any.
        step: step it happened in, or -1; steady: whether that step is one of the steady ones.
        phase: phase it happened in.
    """

    start_ns: int
    ns: int
    number: int
    compile_id: str
    frame: Line | None
    site: Line | None
    reason: str = ""
    guard: Line | None = None
    step: int = -1
    steady: bool = False
    phase: Phase = Phase.FORWARD


@dataclass(frozen=True, slots=True)
class Collections:
    """Garbage collections set off at one place, over the steady steps.

    Attributes:
        line: the user's line; explicit: it calls ``gc.collect`` (itself or through a library).
        called: the frame that called, where it is not the user's.
    """

    line: Line
    explicit: bool
    count: int
    spent_ns: int
    generation: int
    phase: Phase
    called: str = ""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """Forward work that activation checkpointing does again in the backward pass, over the steady steps.

    Attributes:
        line: the user's line that calls the checkpoint.
        spent_ns: of BACKWARD, apportioned by samples; error_ns: its standard error.
        samples: how many stack samples that is.
    """

    line: Line
    spent_ns: int
    error_ns: int
    samples: int


@dataclass(frozen=True, slots=True)
class Saves:
    """Checkpoints written at one place, over the whole run."""

    line: Line
    count: int
    spent_ns: int
    steady_count: int
    steady_ns: int
    nbytes: int
    steps_between: float


@dataclass(frozen=True, slots=True)
class Collectives:
    """Collectives of one operation called at one line in one place of the step, over the steady steps, all ranks.

    Attributes:
        line: the user's line; its *framework* is the library's function that it calls, None where it calls the collective.
        operation: as ``all_gather_object``.
        phase: phase it happens in; after: the pass (FORWARD, BACKWARD, OPTIMIZER) that was the last before it.
        spent_ns: ledger time; together_ns: what of it every rank spends: the rest waits for ranks that come later.
        per_step: calls a step and rank; nbytes: tensor bytes a call, median.
    """

    line: Line
    operation: str
    phase: Phase
    after: Phase | None
    spent_ns: int
    together_ns: int
    per_step: float
    nbytes: int = 0


class Tables(Protocol):
    """The shared evidence. Every attribute is computed when first read."""

    @property
    def lines(self) -> tuple[HotLine, ...]:
        """Hot lines of the steady steps, the hottest first."""

    @property
    def outside_lines(self) -> tuple[HotLine, ...]:
        """Hot lines of all time outside the steady steps, the hottest first."""

    @property
    def worker_lines(self) -> tuple[WorkerLine, ...]: ...

    @property
    def batch_lines(self) -> tuple[BatchLine, ...]:
        """Lines that make the training's batches, over the whole run, the largest share first."""

    @property
    def loaders(self) -> tuple[LoaderUse, ...]: ...

    @property
    def cores(self) -> Cores: ...

    @property
    def kernel(self) -> Kernel | None:
        """What the kernel did in the steady steps; None where that was not observed, or they are too short to tell."""

    @property
    def trend(self) -> Trend | None: ...

    @property
    def compiles(self) -> tuple[Compile, ...]: ...

    @property
    def fusion(self) -> Fusion | None:
        """What Inductor fused and what it left out; None where it compiled nothing that was seen."""

    @property
    def builds(self) -> tuple[Build, ...]:
        """Builds and loads of C++ extensions, over the whole run of the first rank."""

    @property
    def natives(self) -> tuple[Native, ...]:
        """C++ extensions that lines of the steady steps call, the one with the most time first."""

    @property
    def entering(self) -> Entering | None:
        """The compiled regions and what entering them takes; None where no entry was counted."""

    @property
    def recomputed(self) -> Recomputed | None:
        """What activation checkpointing does again; None where no sample showed any."""

    @property
    def collections(self) -> tuple[Collections, ...]: ...

    @property
    def saves(self) -> tuple[Saves, ...]: ...

    @property
    def collectives(self) -> tuple[Collectives, ...]: ...

    @property
    def device(self) -> DeviceUse | None:
        """What the device did; None where it was not observed."""

    @property
    def backward_passes(self) -> int:
        """Backward passes of a steady step of one rank, median; 0 where none was seen."""

    @property
    def steady_steps(self) -> int:
        """Steady steps of the training (rolled-up ones counted each)."""

    @property
    def rank_steps(self) -> int:
        """Steady steps times ranks, 1 at least: what ledger time of all ranks is divided by to be time a step."""

    @property
    def step_ns(self) -> int:
        """Median wall time of a steady step, 0 where there is none."""

    @property
    def steady_ns(self) -> int:
        """Ledger time of all steady steps, all ranks."""

    @property
    def steady_parts(self) -> Mapping[tuple[Phase, Activity], int]:
        """Ledger time of all steady steps by entry, all ranks; entries without time are absent."""

    @property
    def device_parts(self) -> Mapping[tuple[Phase, Activity, Device], int]:
        """The same, by what the device did meanwhile as well."""

    @property
    def input_safety(self) -> Safety:
        """What changing the number of workers may do to this training."""

    def set_at(self, name: str) -> Line | None:
        """Return the line that sets a configuration or variable *name*, in a file that asks for compilation, or None."""

    def place(self, text: str) -> Line | None:
        """Return the line that a recorded ``FILE:LINE:FUNCTION`` names, with its code."""
