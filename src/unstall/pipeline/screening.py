"""Screen a remedy that can be switched in a running training: one process in which it is on and off in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unstall.model.remedy import Edit, Remedy, Switch
from unstall.model.report import Report
from unstall.model.trial import Outlook, Screening
from unstall.pipeline.trial import MOST_STEPS, Ask, Bench
from unstall.trials.screening import ENOUGH_GAIN, ENOUGH_ROUNDS, Arm, Layout, arms_of, laid_out, screened

AFTER_LAST = 2  # steps behind the last block: the recorder may stop the training before its last step is counted


@dataclass(frozen=True, slots=True)
class Room:
    """What a training leaves for a screening.

    Attributes:
        steps: that it can make at most; warm: those before its steady state. ranks: processes that train together.
    """

    step_ns: float
    start_s: float
    warm: int
    steps: int
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """A screening that fits: the arms, and the steps in which each holds; *expected_s* is what it takes."""

    switch: Switch
    arms: tuple[Arm, ...]
    layout: Layout
    expected_s: float
    ranks: int

    def config(self) -> dict[str, object]:
        """Return what the probe `switching`, or `reloading` for a loader, is told."""
        layout = self.layout
        return {
            "sets": self.switch.sets,
            "reads": list(self.switch.reads),
            "site": self.switch.site,
            "arms": [list(arm.arguments) for arm in self.arms],
            "order": list(layout.order),
            "warm": layout.warm,
            "dropped": layout.dropped,
            "measured": layout.measured,
            "enough_rounds": ENOUGH_ROUNDS if self.ranks == 1 else None,  # ranks would not all end at one step
            "enough_gain": ENOUGH_GAIN,
        }


def room_of(report: Report) -> Room:
    """Return what the explained run leaves for a screening."""
    steps = MOST_STEPS if report.stopped_by_us else min(MOST_STEPS, report.steps)
    ranks = max(1, len(report.rank_wall_ns))
    return Room(
        max(report.mean_step_ns, 1), report.start_ns / 1e9, max(report.warmup_steps, 3), steps - AFTER_LAST, ranks
    )


def planned(remedy: Remedy, room: Room, seed: int) -> Plan | None:
    """Return the screening of *remedy*, its order drawn with *seed*; None where it has no switch or steps are too few."""
    arms = arms_of(remedy)
    if remedy.switch is None or not arms:
        return None
    if remedy.switch.site and room.ranks > 1:  # ranks would start and end their workers at different moments
        return None
    workers = max((arm.value or 0 for arm in arms), default=0) if remedy.switch.site else 0
    layout = laid_out(room.step_ns, room.warm, room.steps, len(arms) + 1, remedy.switch.every_steps, seed, workers)
    if layout is None:
        return None
    expected_s = room.start_s + layout.steps * room.step_ns / 1e9
    return Plan(remedy.switch, arms, layout, expected_s, room.ranks)


def screen(
    bench: Bench, plan: Plan, base: tuple[Edit, ...], seed: int, limit_s: float, made: Callable[[int], None]
) -> Screening:
    """Return what one training shows, with the edits of *base* in force, in which the arms hold in turns.

    Its losses are compared with nothing, and its times with none but its own.

    Args:
        seed: of the training. made: told about once a second how many blocks have been made.
    Raises:
        Interrupted: When the user ended it.
    """
    ask = Ask(base, plan.layout.steps + AFTER_LAST, seed, limit_s=limit_s, switch=plan.config())
    trial = bench.make(ask, made)
    failed = trial.error or trial.captured.not_switched
    blocks = () if failed else trial.captured.blocks
    return screened(blocks, plan.arms, plan.layout, failed or trial.disturbed)


def words_of(screening: Screening) -> str:
    """Return what a refusal by screening rests on, as ``screened in one process: 1.00x (0.99-1.01), 12 blocks``."""
    assert screening.outlook is Outlook.FUTILE and screening.ratio is not None
    ratio = screening.ratio
    return f"screened in one process: {ratio.value:.2f}x ({ratio.low:.2f}-{ratio.high:.2f}), {screening.blocks} blocks"
