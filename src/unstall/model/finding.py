"""A finding: one cause, the time it explains, and the rows that show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum

from unstall.model.ledger import Activity, Basis, Device, Phase
from unstall.model.remedy import Remedy


@dataclass(frozen=True, slots=True)
class Line:
    """A line to blame, in the user's own file whenever one is.

    Attributes:
        code: the line's text, stripped; empty where the file cannot be read.
        framework: the library's frame that did it on the user's behalf, if any.
        key: the configuration key that governs it, as ``TrainingArguments.dataloader_num_workers``.
    """

    file: str
    line: int
    function: str = ""
    code: str = ""
    framework: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment variable is to blame."""

    variable: str


@dataclass(frozen=True, slots=True)
class Command:
    """The command that started the training is to blame."""

    command: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine is to blame, not the script."""

    what: str


@dataclass(frozen=True, slots=True)
class Operator:
    """No line was recorded: an operator or a call is named, and where in the step it is.

    Attributes:
        name: as ``aten::item``; "" where the whole phase is meant. phase: as ``forward``.
    """

    name: str
    phase: str = ""


Where = Line | Environment | Command | Machine | Operator


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured number, and what it was measured on.

    Attributes:
        source: event rows or a summary row, as ``rank 0: events FETCH[212]``; any number can be walked to it.
    """

    what: str
    value: float
    unit: str
    source: str = ""


class Scope(str, Enum):
    """Which part of the job the time belongs to."""

    STEADY = "steady"  # of every steady step
    STARTUP = "startup"  # once a run
    PERIODIC = "periodic"  # now and then: epochs, evaluations, checkpoints


class Weight(IntEnum):
    """How specific a finding is; where two want the same time the heavier one gets it."""

    FALLBACK = 0  # a line is hot, no cause is known
    ESTIMATED = 1  # no interval shows it
    OVERLAP = 2  # the work is needed, but nothing overlaps it
    NEEDLESS = 3  # the work need not be done
    TIMED = 4  # an interval of just this was timed


@dataclass(frozen=True, slots=True)
class Stake:
    """Ledger time that a finding stands on, summed over the finding's scope and all ranks.

    Attributes:
        line: ``FILE:LINE`` within the entry, where only that line's time is meant; None for any.
        device: what the device did meanwhile; None for any.
    """

    phase: Phase
    activity: Activity
    ns: int
    line: str | None = None
    device: Device | None = None


@dataclass(frozen=True, slots=True)
class Calibrated:
    """How the bounds of a saving were moved so that they hold what planted trainings measured.

    Attributes:
        coverage: probability with which they hold a training that is exchangeable with those.
        of: planted trainings that this rests on; family: their layer.
        low_ns, high_ns: the bounds before, as the cause's arithmetic gave them.
    """

    coverage: float
    of: int
    family: str
    low_ns: int
    high_ns: int


@dataclass(frozen=True, slots=True)
class Saving:
    """What the remedy would give here, by itself.

    Attributes:
        low_ns, high_ns: ns a step for a STEADY finding; ns in this run for the others.
        basis: "arithmetic", "ablation" or "proved".
        calibrated: None where the bounds are as the basis gave them.
    """

    low_ns: int
    high_ns: int
    basis: str = "arithmetic"
    calibrated: Calibrated | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.low_ns <= self.high_ns:
            raise ValueError("a saving's bounds are out of order")

    @property
    def claimed(self) -> Saving:
        """The saving with the bounds that its basis gave."""
        if self.calibrated is None:
            return self
        return Saving(self.calibrated.low_ns, self.calibrated.high_ns, self.basis)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a cause explains.

    A cause fills in all but *spent_ns* and *share*, which `causes/_explain` allots.

    Attributes:
        cause: the cause's id, ``layer/name``.
        title: one line, what is slow here, with its number.
        stakes: ledger time it stands on; its spent time is at most their sum.
        fault: False for information on what bounds a healthy run.
        spent_ns: allotted ledger time over the scope.
        share: of the job (or of the steady step where its length is not known).
        also: causes and lines that stood on the same time and lost it to this one.
    """

    cause: str
    title: str
    where: Where
    scope: Scope
    stakes: tuple[Stake, ...]
    weight: Weight
    basis: Basis
    evidence: tuple[Evidence, ...]
    saving: Saving | None = None
    fault: bool = True
    spent_ns: int = 0
    share: float = 0.0
    also: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def layer(self) -> str:
        return self.cause.partition("/")[0]

    @property
    def claim_ns(self) -> int:
        """Time asked for: the sum of the stakes."""
        return sum(stake.ns for stake in self.stakes)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting that may cost time, unproved: no time of its own.

    Attributes:
        remedies: what a trial may show to be faster, the safest first; none where there is only advice, which is in *because*.
    """

    cause: str
    title: str
    where: Where
    because: str
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class Abstained:
    """A cause that could not look, and what to record so that it can."""

    cause: str
    because: str
