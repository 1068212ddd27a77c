"""Wrap a function so that a probe hears of each call, and never of anything else.

While Dynamo traces, a wrapper is a call to the original and nothing more (the check folds to a constant),
so what is compiled, where it breaks and what it guards on stay as they are without us.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import ParamSpec, TypeVar

import torch  # type: ignore[import-not-found, unused-ignore]

from unstall.probes._recorder import Probe

P = ParamSpec("P")
R = TypeVar("R")
Token = TypeVar("Token")
is_compiling = torch.compiler.is_compiling


def around(
    probe: Probe,
    original: Callable[P, R],
    before: Callable[P, Token],
    after: Callable[[Token], None],
) -> Callable[P, R]:
    """Return *original* with ``token = before(...)`` and ``after(token)`` about every call on the training thread.

    An error in *before* or *after* switches the probe off; the call itself is made in any case, once.
    """
    recorder = probe.recorder

    @functools.wraps(original)
    def observed(*args: P.args, **kwargs: P.kwargs) -> R:
        if is_compiling() or not probe.on or get_ident() != recorder.thread:
            return original(*args, **kwargs)
        try:
            token = before(*args, **kwargs)
        except Exception as error:
            probe.switch_off(error)
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            try:
                after(token)
            except Exception as error:
                probe.switch_off(error)

    return observed


def in_activity(probe: Probe, original: Callable[P, R], activity: int) -> Callable[P, R]:
    """Return *original* with its time on the training thread entered under *activity*."""
    recorder = probe.recorder

    def enter(*_: object, **__: object) -> int:
        return recorder.accounting.enter_activity(activity)

    def leave(depth: int) -> None:
        recorder.accounting.leave(depth)

    return around(probe, original, enter, leave)
