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
is_compiling = torch.compiler.is_dynamo_compiling  # one call; is_compiling() makes two, eight times a step


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
        depth = recorder.accounting.depth
        try:
            token = before(*args, **kwargs)
        except Exception as error:
            recorder.accounting.leave(depth)  # or what it had opened would go on to the end
            probe.switch_off(error)
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            try:
                after(token)
            except Exception as error:
                recorder.accounting.leave(depth)
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
    """Keep Dynamo from compiling frames of *module*'s functions, and what they call in libraries.

    What a wrapper stands before is compiled as it is without us: a function of ours that calls what it wraps under
    the name ``original`` is known by that. `torch._dynamo.disable` would do more: it also breaks the graph where
    a traced function calls ours.
    """
    native: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(native, "set_code_exec_strategy"):  # since torch 2.8
        skip, default = native._FrameAction.SKIP, native._FrameAction.DEFAULT
        for code in _codes(module):
            inside = default if "original" in (*code.co_freevars, *code.co_varnames, *code.co_names) else skip
            native.set_code_exec_strategy(code, native._FrameExecStrategy(skip, inside))
    elif hasattr(native, "skip_code"):
        for code in _codes(module):
            native.skip_code(code)


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
            if found.co_filename == module.__file__:
                yield found
            pending += found.co_consts


def _defined_in(value: object, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__
