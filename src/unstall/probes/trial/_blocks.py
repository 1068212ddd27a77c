"""Blocks of a screening: how they are timed and told, and when they are enough."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import torch

from unstall.probes._limits import Limits
from unstall.probes._recorder import Recorder
from unstall.probes.trial._asked import SwitchPlan

Timed = tuple[int, int, int, int]  # arm, first step that counts, steps, ns


def is_enough(blocks: Sequence[Timed], arms: int, plan: SwitchPlan) -> bool:
    """Return whether some arm has won every round so far by a gain that leaves no question."""
    rounds, rest = divmod(len(blocks), arms)
    if rest or plan.enough_rounds is None or rounds < plan.enough_rounds:
        return False
    means = {(at // arms, block[0]): block[3] / block[2] for at, block in enumerate(blocks)}
    return any(
        all(means[one, 0] > (1 + plan.enough_gain) * means[one, arm] for one in range(rounds)) for arm in range(1, arms)
    )


def stop(recorder: Recorder) -> None:
    """Let the recorder end the training at its next step."""
    recorder.limits = Limits({"step_limit": recorder.loop_steps + 1}, recorder.recording, recorder.origin_ns)


def tell(recorder: Recorder) -> None:
    """Write a byte for the block that was made: ``blocks-PID``."""
    with open(os.path.join(recorder.recording, f"blocks-{os.getpid()}"), "ab") as file:
        file.write(b".")


def now_ns() -> int:
    """Return the time once the devices have done what they were given, so that a block's work is timed in it."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.monotonic_ns()
