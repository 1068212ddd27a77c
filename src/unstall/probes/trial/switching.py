"""Switchback: a setting of the process that is turned to another arm between steps, by a plan drawn beforehand.

Arm 0 is the setting as the training has it once it is warm; the others are the plan's.  At the close of a step on the
training thread the next block's arm is set.  The first steps after that are dropped (a team of threads is built anew,
caches are cold), the others are timed together.  When all blocks are made, or enough of them, arm 0 is set again, for
good.  Where the training sets it too, what was to hold does not: nothing is told then, and its own value is left alone.
An error leaves the training with arm 0, as far as that can be set.

Ranks switch at the same steps, as the plan counts steps and no time; the file ``blocks-PID`` has one byte for each block.
"""

from __future__ import annotations

import pkgutil
import weakref
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

from torch.optim import optimizer as optim

from unstall.probes._around import is_compiling
from unstall.probes._recorder import Probe
from unstall.probes.trial._asked import SwitchPlan, switch_plan
from unstall.probes.trial._blocks import Timed, is_enough, now_ns, stop, tell

AFTER = "torch"


def install(probe: Probe) -> None:
    plan = switch_plan(probe.recorder.config)
    if plan is not None:
        Switching(probe, plan)


class Setting:
    """A setting of this process: what sets it, and what tells the arguments that would set it so again."""

    def __init__(self, sets: str, reads: Sequence[str]) -> None:
        path, _, self._name = sets.rpartition(".")
        self._owner = pkgutil.resolve_name(path)
        self._readers = [pkgutil.resolve_name(reader) for reader in reads]
        getattr(self._owner, self._name)  # fails here, before anything is changed

    def present(self) -> tuple[Any, ...]:
        if not self._readers:
            return (getattr(self._owner, self._name),)
        told = [read() for read in self._readers]
        return told[0] if len(told) == 1 and isinstance(told[0], tuple) else tuple(told)

    def set(self, arguments: Sequence[Any]) -> None:
        if self._readers:
            getattr(self._owner, self._name)(*arguments)
        else:
            setattr(self._owner, self._name, *arguments)


class Switching:
    """Counts the steps of the optimizer that stepped first, and switches as the plan says.

    Attributes:
        arms: what each is set to; the first is read once the training is warm, and there are none before.
        arm: that holds now. held: what the setting tells while it does. since: steps since it was set.
        blocks: (arm, first step that counts, steps, ns) of each that was made.
    """

    def __init__(self, probe: Probe, plan: SwitchPlan) -> None:
        self.probe, self.recorder, self.plan = probe, probe.recorder, plan
        self.closer: Callable[[], Any] = lambda: None
        self.forget()
        self.recorder.in_child.append(self.forget)
        self.recorder.at_end.append((probe, self.end))
        optim.register_optimizer_step_post_hook(self.after_step)

    def forget(self) -> None:
        self.steps = self.since = self.arm = self.start_ns = 0
        self.setting: Setting | None = None
        self.arms: list[tuple[Any, ...]] = []
        self.held: tuple[Any, ...] = ()
        self.blocks: list[Timed] = []
        self.over = False

    def after_step(self, optimizer: Any, *_: object) -> None:
        if is_compiling() or not self.probe.on or get_ident() != self.recorder.thread:
            return
        if self.closer() is None:
            self.closer = weakref.ref(optimizer)
        if optimizer is self.closer():
            with self.probe.guard():
                self.close_step()

    def close_step(self) -> None:
        if self.over:
            return
        self.steps += 1
        try:
            if self.setting is None:
                if self.steps >= self.plan.warm:
                    self.begin()
            elif self.setting.present() != self.held:
                self.give_up("the training sets it itself", restores=False)
            else:
                self.within()
        except Exception as error:
            self.give_up(f"{type(error).__name__}: {error}", restores=True)
            raise

    def begin(self) -> None:
        self.setting = Setting(self.plan.sets, self.plan.reads)
        self.arms = [self.setting.present(), *self.plan.arms]
        self.switch()
        if not self.over and all(arm == self.arms[0] for arm in self.arms):
            self.give_up("the run has it so already", restores=True)

    def switch(self) -> None:
        """Set the arm of the next block."""
        assert self.setting is not None
        self.arm = self.plan.order[len(self.blocks)]
        self.setting.set(self.arms[self.arm])
        self.held, self.since = self.setting.present(), 0

    def within(self) -> None:
        """Count one more step of the block, and end it after its last."""
        self.since += 1
        if self.since == self.plan.dropped:
            self.start_ns = now_ns()
        elif self.since == self.plan.dropped + self.plan.measured:
            first = self.steps - self.plan.measured + 1
            self.blocks.append((self.arm, first, self.plan.measured, now_ns() - self.start_ns))
            tell(self.recorder)
            if len(self.blocks) == len(self.plan.order):
                self.finish()
            elif is_enough(self.blocks, len(self.arms), self.plan):
                self.finish()
                stop(self.recorder)
            else:
                self.switch()

    def finish(self) -> None:
        """Set arm 0 again, once."""
        if not self.over:
            self.over = True
            if self.setting is not None and self.arms:
                self.setting.set(self.arms[0])

    def give_up(self, because: str, *, restores: bool) -> None:
        self.recorder.captured["not_switched"] = because
        self.over = self.over or not restores
        self.finish()

    def end(self) -> dict[str, object]:
        self.finish()
        return {"blocks": self.blocks}
