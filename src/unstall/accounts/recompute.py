"""Forward work done again in the backward pass: samples with a frame of activation checkpointing in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unstall.accounts.code import innermost_users, line_at
from unstall.accounts.label import Labelled, Stack
from unstall.model.run import Place
from unstall.model.tables import Recomputed
from unstall.model.wire import Phase

CHECKPOINT = "torch/utils/checkpoint.py"
ENGINE = "_engine_run_backward"


def recomputed(
    labelled: Sequence[Labelled | None], inside: Sequence[NDArray[np.bool_]], backward_ns: int, project: str
) -> Recomputed | None:
    """Return what is done again, or None where no sample shows it.

    Args:
        inside: per rank bool (K,): the samples of the steady steps.
        backward_ns: ledger time of BACKWARD in them.
    """
    weight, again, count = 0, 0, 0
    callers: Counter[Place] = Counter()
    for samples, chosen in zip(labelled, inside, strict=True):
        if samples is None:
            continue
        again_S = np.array([_is_again(stack) for stack in samples.stacks])
        callers.update(place for stack in samples.stacks if (place := _caller(stack)) is not None)
        in_backward = chosen & (samples.phase == Phase.BACKWARD)
        mine = in_backward & again_S[samples.stack]
        weight += int(samples.weight_ns[in_backward].sum())
        again += int(samples.weight_ns[mine].sum())
        count += int(mine.sum())
    if not count or not callers or not weight:
        return None
    share = again / weight
    error = np.sqrt(share * (1 - share) * share / count)
    line = line_at(callers.most_common(1)[0][0], project)
    return Recomputed(line, int(share * backward_ns), int(error * backward_ns), count)


def _is_again(stack: Stack) -> bool:
    """Return whether *stack* is inside a checkpoint's recomputation: its frame below the engine's."""
    engine = next((n for n, place in enumerate(stack) if place.function == ENGINE), len(stack))
    return any(CHECKPOINT in place.file for place in stack[engine:])


def _caller(stack: Stack) -> Place | None:
    """Return the user's frame that called a checkpoint in the forward pass, if *stack* shows one."""
    for n, place in enumerate(stack):
        if place.function == ENGINE:
            return None
        if CHECKPOINT in place.file:
            users = innermost_users(stack[:n])
            return stack[users] if users is not None else None
    return None
