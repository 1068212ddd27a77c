"""What `unstall fix` is asked for, and what it says while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from unstall.model.remedy import Safety
from unstall.model.report import Job
from unstall.model.trial import Ratio, Verdict
from unstall.remedies.written import check_patch_file

KEEPS_TRAINING = frozenset({Safety.SAME_BITS, Safety.SAME_DISTRIBUTION, Safety.SAME_MATH})
BUDGET_S = 900.0
PATCH = Path("unstall.patch")
BY_USER = "Ctrl-C"  # what `Fixed.interrupted` begins with where the user ended it


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fix is; said at the start of each piece of work, after each pair, and once at the end of a remedy.

    Attributes:
        what: what is being done, as ``num_workers 0 -> 3`` or ``recording the run as it is``.
        pair: pairs that have been made; most: pairs that may be made, 0 where the work is not made of pairs.
        unit: what is counted in their place, as ``screening block``.
        stays: whether it is a remark that is to be read, and no piece of work.
        ratio: so far; None where none can be told yet.
        verdict: given once, when the remedy is through.
    """

    what: str
    pair: int
    most: int
    ratio: Ratio | None
    spent_s: float
    budget_s: float
    verdict: Verdict | None = None
    unit: str = "pair"
    stays: bool = False


@dataclass(frozen=True, slots=True)
class FixOptions:
    """What `unstall fix` was asked for.

    `fix` catches the first KeyboardInterrupt and returns what is proved, with `Fixed.interrupted` beginning with
    `BY_USER`; a second one goes through.

    Attributes:
        command: as typed; empty only together with *resume*, whose folder knows it.
        steps: steady steps of a trial; chosen from the budget where None. budget_s: wall time of everything.
        patch: where to write it, never None from the command line; nothing is written where None.
        allow: safety classes that may be tried.
        only, skip: ids of causes; all where *only* is empty.
        workdir: "copy": each trial runs in a copy of the working folder; "same": in the folder itself.
        share: folders that trials link instead of copying.
        outputs: folders that the training writes to: not copied, fresh for each trial.
        out: folder for the state; a fresh one in the default place where None. resume: such a folder, to go on from.
        most_pairs: of one remedy; None where only the budget and the test limit them.
        apply: write what is proved into the sources.
        bounds: measure first what any fix of a layer can give at most.
    """

    command: tuple[str, ...]
    steps: int | None = None
    budget_s: float = BUDGET_S
    patch: Path | None = PATCH
    allow: frozenset[Safety] = KEEPS_TRAINING
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    job: Job = field(default_factory=Job)
    workdir: str = "copy"
    share: tuple[Path, ...] = ()
    outputs: tuple[Path, ...] = ()
    out: Path | None = None
    resume: Path | None = None
    seed: int = 0
    most_pairs: int | None = None
    apply: bool = False
    progress: Callable[[Progress], None] | None = None
    bounds: bool = False


def check(options: FixOptions) -> None:
    """Say before the trials what would be found out only after them.

    Raises:
        UnstallError: When the patch could not be written.
    """
    if options.patch is not None:
        check_patch_file(options.patch)
