"""Carry out edits in the live process, at one call site each, and undo them.

A statement of a file's head (`AddCall`, `SetAttribute`) is carried out at once.

This runs inside the training process: standard library only.  What is called is replaced by a
wrapper that looks who calls; only the call that the edit names is changed, any other goes through
as it came.  A class keeps its identity (its ``__init__`` is wrapped in place), so `isinstance`,
subclasses and pickles are untouched.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType

from unstall.model.remedy import (
    AddCall,
    CallEdit,
    CallMethod,
    Decorate,
    Edit,
    RemoveSetting,
    SetAttribute,
    SetEnvironment,
    SetKeyword,
    SourceEdit,
    WrapCall,
)
from unstall.remedies.caller import Caller
from unstall.remedies.constructed import around_new
from unstall.remedies.decorating import decorate
from unstall.remedies.holding import hold
from unstall.remedies.replacing import NotReachable, located, replace, replace_everywhere
from unstall.remedies.settings import is_variable, leave_out
from unstall.remedies.wrappers import around_function, around_init, around_method, around_post_init, takes_by_field

__all__ = ["Met", "NotReachable", "applied", "apply", "awaited", "environment"]

Met = Callable[[int], None]


@contextmanager
def applied(edits: Sequence[Edit], met: Met | None = None) -> Iterator[None]:
    """Hold *edits* in force; every attribute that was touched is put back on exit, also after an error.

    Args and Raises: as `apply`.
    """
    undo = apply(edits, met)
    try:
        yield
    finally:
        undo()


def apply(edits: Sequence[Edit], met: Met | None = None) -> Callable[[], None]:
    """Carry out *edits* and return what undoes them; undoing twice is harmless.

    The module of what is called is imported if it was not.  Modules loaded before that hold the same
    function under a name of their own are reached too.  `SetEnvironment` is for whoever starts the
    process (`environment`), and is passed over here.

    Args:
        met: called with an edit's index in *edits* each time that edit changes a call, just before the call is made,
            in the thread that makes it; once, from here, for a statement of a file's head; as the class is made, for
            `Decorate`; and never for `SetEnvironment`.  An edit that it never hears of was not met.
    Raises:
        NotReachable: When what is called cannot be imported or replaced.
        NotPatchable: When the source shows several such calls on the line, or a call to be left out whose
            result is used.  (An argument that comes out of ``**kwargs``, which a patch must refuse, is known here.)
    Nothing stays changed then.
    """
    with ExitStack() as undo:
        # The wrapper put on last is called first, and the innermost has the last word: as in a patch, the last edit.
        for index in reversed(range(len(edits))):
            edit = edits[index]
            hear = functools.partial(met or _nobody, index)
            if isinstance(edit, (AddCall, SetAttribute)):
                hold(edit, *located(_path(edit), getattr), undo)  # torch's settings exist by a __getattr__
                hear()
            elif isinstance(edit, RemoveSetting):
                leave_out(edit, undo, hear)
            elif isinstance(edit, Decorate):
                decorate(edit, undo, hear)
            elif not isinstance(edit, SetEnvironment):
                _install(edit, undo, hear)
        return undo.pop_all().close


def awaited(edit: Edit) -> str:
    """Return the module after whose import *edit* can be carried out; "" for `SetEnvironment`, which waits for none.

    It is the part of the import path before the first name that is written as a class is, or before the last name.
    For torch it is the whole package: its parts do not all exist while it is imported.  What leaves out a variable waits
    for `os`, which every process has from its start.
    """
    if isinstance(edit, SetEnvironment):
        return ""
    if isinstance(edit, RemoveSetting) and is_variable(edit):
        return "os"
    *parts, _ = _path(edit).split(".")
    if parts[:1] == ["torch"]:
        return "torch"
    return ".".join(itertools.takewhile(lambda part: not part[:1].isupper(), parts))


def environment(edits: Sequence[Edit]) -> dict[str, str]:
    """Return the environment variables that the command is to be started with."""
    return {edit.variable: edit.value for edit in edits if isinstance(edit, SetEnvironment)}


def _path(edit: SourceEdit) -> str:
    """Return the import path of what is changed in the live process."""
    if isinstance(edit, (Decorate, WrapCall, CallMethod)) and edit.made:
        return edit.made  # the class itself may be one of the script, which nobody imports
    if isinstance(edit, RemoveSetting):
        return edit.target
    return edit.attribute if isinstance(edit, SetAttribute) else edit.call


def _nobody(index: int) -> None:
    """Hear of an edit that was met, and do nothing."""


def _install(edit: CallEdit, undo: ExitStack, met: Callable[[], None]) -> None:
    caller = Caller(edit, met)
    owner, name = located(_path(edit))
    target = inspect.getattr_static(owner, name)
    if isinstance(edit, (WrapCall, CallMethod)) and isinstance(target, type):
        around_new(edit, target, caller, undo)
    elif isinstance(target, type) and isinstance(edit, SetKeyword) and takes_by_field(edit, target):
        replace(target, "__post_init__", around_post_init(edit, target, caller), undo)
    elif isinstance(target, type):
        replace(target, "__init__", around_init(edit, target, caller), undo)
    elif isinstance(owner, type):
        replace(owner, name, around_method(edit, target, caller), undo)
    elif callable(target) and isinstance(owner, ModuleType):
        replace_everywhere(owner, name, around_function(edit, target, caller), edit.file, undo)
    else:
        raise NotReachable(f"{edit.call}: it is no function, method or class.")
    undo.callback(caller.retire)  # first of all: whoever kept a wrapper gets the call as it was written
