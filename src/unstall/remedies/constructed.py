"""Carry out an edit of what a call makes in the live process.  Standard library only.

A class of the script cannot be imported before the script runs, and a wrapper about its ``__init__`` could not put
another object in the place of the new one.  So ``__new__`` of a base class is replaced: called for the edit's site it makes the
whole object, carries the edit out, and returns what came of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack

from unstall.model.remedy import MadeEdit, Named, WrapCall
from unstall.remedies.caller import Caller, tracing
from unstall.remedies.replacing import NotReachable, located, replace

New = Callable[..., object]


def around_new(edit: MadeEdit, base: type, caller: Caller, undo: ExitStack) -> None:
    """Replace ``__new__`` of *base* so that *edit* is in force at its site.

    A derived class with a ``__new__`` of its own is not reached: what it was called with is not known here.
    Undone, a class without a ``__new__`` of its own keeps one that passes the call on: once it had one, Python no longer
    takes a class to be without (``object.__new__`` would refuse arguments).

    Raises:
        NotReachable: When *base* cannot be changed.
    """
    own = "__new__" in vars(base)
    before: New = base.__new__
    name = edit.call.rpartition(".")[2]
    finish, traced, making = finishing(edit), tracing(), False

    def new(cls: type, *args: object, **kwargs: object) -> object:
        nonlocal making
        named = not making and caller.live and cls.__name__ == name
        if not named or traced() or not caller.makes(sys._getframe(1)):
            return plain(cls, *args, **kwargs)
        caller.met()
        making = True
        try:
            made = cls(*args, **kwargs)
        finally:
            making = False
        result = finish(made)
        if isinstance(result, cls):
            _passed_over(cls, result)
        return result

    def plain(cls: type, *args: object, **kwargs: object) -> object:
        above: New = before if own else super(base, cls).__new__  # type: ignore[arg-type]
        return above(cls) if above is object.__new__ else above(cls, *args, **kwargs)

    if own:
        replace(base, "__new__", staticmethod(new), undo)
        return
    try:
        base.__new__ = staticmethod(new)  # type: ignore[method-assign, assignment]
    except TypeError as error:
        raise NotReachable(f"{base.__name__}.__new__ cannot be replaced ({error}).") from None
    undo.callback(_pass_on, base, new, plain)


def finishing(edit: MadeEdit) -> Callable[[object], object]:
    """Return what is done to the object that the call has made; it returns what takes its place."""

    def finish(made: object) -> object:
        keywords = {
            name: getattr(*located(value.path, getattr)) if isinstance(value, Named) else value
            for name, value in edit.keywords
        }
        if isinstance(edit, WrapCall):
            wrapper: New = getattr(*located(edit.wrapper, getattr))
            return wrapper(made, **keywords)
        getattr(made, edit.method)(**keywords)
        return made

    return finish


def _passed_over(cls: type, made: object) -> None:
    """Let Python's own call of ``__init__``, which comes next, pass over *made*: it has been through it."""
    own, init = vars(cls).get("__init__"), cls.__init__  # type: ignore[misc]

    def once(self: object, *args: object, **kwargs: object) -> None:
        if own is None:
            del cls.__init__  # type: ignore[misc]
        else:
            cls.__init__ = own  # type: ignore[misc]
        if self is not made:  # another thread came between
            init(self, *args, **kwargs)

    cls.__init__ = once  # type: ignore[misc]


def _pass_on(base: type, new: New, plain: New) -> None:
    if base.__new__ is new:
        base.__new__ = staticmethod(plain)  # type: ignore[method-assign, assignment]
