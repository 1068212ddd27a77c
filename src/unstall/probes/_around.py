"""Wrap a function so that a probe hears of each call, and never of anything else.

While Dynamo traces, a wrapper is a call to the original and nothing more (the check folds to a constant),
so what is compiled, where it breaks and what it guards on stay as they are without us. And Dynamo never starts
to trace at a frame of ours (`hide`): where it skips a library's function, our wrapper about that function would be
taken for user code, and what is not compiled without us would be with us.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from threading import get_ident
from types import CodeType, FunctionType, ModuleType
from typing import Any, ParamSpec, TypeVar

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


def hide(module: ModuleType) -> None:
    """Keep Dynamo from compiling frames of *module*'s functions; those that they call it compiles as before.

    `torch._dynamo.disable` would do more: it also breaks the graph where a traced function calls ours.
    """
    skip = _skipping()
    if skip is not None:
        for code in _codes(module):
            skip(code)


def _skipping() -> Callable[[CodeType], object] | None:
    """Return how this version of torch is told not to trace a code object, or None where it cannot be told."""
    native: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(native, "set_code_exec_strategy"):  # since torch 2.8
        strategy = native._FrameExecStrategy(native._FrameAction.SKIP, native._FrameAction.DEFAULT)
        return lambda code: native.set_code_exec_strategy(code, strategy)
    return getattr(native, "skip_code", None)


def _codes(module: ModuleType) -> Iterator[CodeType]:
    """Yield the code of every function that *module* defines, methods and inner functions among them."""
    pending: list[object] = [value for value in vars(module).values() if _defined_in(value, module)]
    while pending:
        found = pending.pop()
        if isinstance(found, type):
            pending += vars(found).values()
        elif isinstance(found, (classmethod, staticmethod)):
            pending.append(found.__func__)
        elif isinstance(found, property):
            pending.append(found.fget)
        elif isinstance(found, FunctionType):
            pending.append(found.__code__)
            pending.append(getattr(found, "__wrapped__", None))  # a context manager's generator
        elif isinstance(found, CodeType):
            yield found
            pending += found.co_consts


def _defined_in(value: object, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__
