"""The wrappers that change one call and let every other through.  Standard library only."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import nullcontext

from unstall.model.remedy import (
    AmendList,
    CallEdit,
    CallFirst,
    CallMethod,
    ListItems,
    RemoveCall,
    SetKeyword,
    WrapCall,
)
from unstall.remedies.amending import amended
from unstall.remedies.caller import Caller, tracing
from unstall.remedies.constructed import finishing
from unstall.remedies.listing import items_of
from unstall.remedies.replacing import NotReachable
from unstall.remedies.sites import Use

Function = Callable[..., object]
_Passed = SetKeyword | ListItems | AmendList  # edits of one argument


def around_function(edit: CallEdit, call: Function, caller: Caller) -> Function:
    """Return *call* with *edit* in force at its site."""
    traced = tracing()

    @functools.wraps(call)
    def wrapper(*args: object, **kwargs: object) -> object:
        # Under torch.compile frames cannot be read, and trying would break the graph.
        if traced() or not caller.live or not caller.makes(sys._getframe(1)):
            return call(*args, **kwargs)
        if isinstance(edit, CallFirst) and not args:  # it is given by its name, which a patch refuses
            return call(*args, **kwargs)
        caller.met()
        if isinstance(edit, RemoveCall):
            return nullcontext() if caller.use is Use.CONTEXT else None
        if isinstance(edit, CallFirst):
            return _first(edit, args)(*args[1:], **{k: v for k, v in kwargs.items() if k not in edit.dropped})
        if isinstance(edit, (WrapCall, CallMethod)):
            return finishing(edit)(call(*args, **kwargs))
        return call(*_placed(edit, args), **_named(edit, args, kwargs))

    return wrapper


def around_method(edit: CallEdit, method: object, caller: Caller) -> object:
    """Return *method*, as its class holds it, with *edit* in force at its site."""
    if isinstance(edit, CallFirst):
        raise NotReachable(f"{edit.call}: it is a method, and its first argument is its own.")
    if isinstance(method, staticmethod):
        return staticmethod(around_function(edit, method.__func__, caller))
    if isinstance(method, classmethod):
        return classmethod(_after_self(edit, method.__func__, caller))
    if not callable(method):
        raise NotReachable(f"{edit.call}: it is no method.")
    return _after_self(edit, method, caller)


def around_init(edit: CallEdit, cls: type, caller: Caller) -> Function:
    """Return the ``__init__`` of *cls* with *edit* in force at its site.

    A call that is left out leaves an instance that does nothing in a `with` statement.

    Raises:
        NotReachable: When the class takes its arguments elsewhere, or cannot be derived from.
    """
    init: Function = cls.__init__  # type: ignore[misc]
    if isinstance(edit, CallFirst):
        raise NotReachable(f"{edit.call}: it is a class, and makes something of its own.")
    if init is object.__init__:
        raise NotReachable(f"{edit.call}: the class has no __init__ of its own.")
    traced = tracing()
    null = _null_context(cls, edit) if isinstance(edit, RemoveCall) else None

    @functools.wraps(init)
    def wrapper(self: object, *args: object, **kwargs: object) -> None:
        if traced() or not caller.live or not caller.makes(sys._getframe(1), self):
            init(self, *args, **kwargs)
        elif isinstance(edit, (SetKeyword, ListItems)):
            caller.met()
            init(self, *_placed(edit, args), **_named(edit, args, kwargs))
        elif type(self) is cls:
            caller.met()
            object.__setattr__(self, "__class__", null)
        else:
            init(self, *args, **kwargs)

    return wrapper


def takes_by_field(edit: CallEdit, cls: type) -> bool:
    """Return whether *cls* is a dataclass that sees its fields after they are set, the edit's keyword one of them."""
    field = getattr(cls, "__dataclass_fields__", {}).get(edit.keyword) if isinstance(edit, SetKeyword) else None
    return field is not None and field.init and hasattr(cls, "__post_init__")


def around_post_init(edit: SetKeyword, cls: type, caller: Caller) -> Function:
    """Return the ``__post_init__`` of the dataclass *cls* with *edit* in force at its site.

    A dataclass that derives from *cls* has an ``__init__`` of its own that does not call this one's, but it calls this.
    """
    check: Function = cls.__post_init__  # type: ignore[attr-defined]
    traced = tracing()

    @functools.wraps(check)
    def wrapper(self: object, *args: object, **kwargs: object) -> object:
        if not traced() and caller.live and caller.makes(sys._getframe(1), self):
            caller.met()
            object.__setattr__(self, edit.keyword, edit.value)  # as its own __init__ does where it is frozen
        return check(self, *args, **kwargs)

    return wrapper


def _after_self(edit: _Passed | RemoveCall | WrapCall | CallMethod, method: Function, caller: Caller) -> Function:
    traced = tracing()

    @functools.wraps(method)
    def wrapper(self: object, *args: object, **kwargs: object) -> object:
        if traced() or not caller.live or not caller.makes(sys._getframe(1)):
            return method(self, *args, **kwargs)
        caller.met()
        if isinstance(edit, RemoveCall):
            return nullcontext() if caller.use is Use.CONTEXT else None
        if isinstance(edit, (WrapCall, CallMethod)):
            return finishing(edit)(method(self, *args, **kwargs))
        return method(self, *_placed(edit, args), **_named(edit, args, kwargs))

    return wrapper


def _first(edit: CallFirst, args: tuple[object, ...]) -> Function:
    function: Function = getattr(args[0], edit.method) if edit.method else args[0]  # type: ignore[assignment]
    return function


def _in_place(edit: _Passed, args: tuple[object, ...]) -> bool:
    return edit.position is not None and edit.position < len(args)


def _placed(edit: _Passed, args: tuple[object, ...]) -> tuple[object, ...]:
    """Return the positional arguments, the edit's value among them where it is passed so."""
    if edit.position is None or not _in_place(edit, args):
        return args
    return (*args[: edit.position], _value(edit, args[edit.position]), *args[edit.position + 1 :])


def _named(edit: _Passed, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
    if _in_place(edit, args):
        return kwargs
    return {**kwargs, edit.keyword: _value(edit, kwargs.get(edit.keyword))}


def _value(edit: _Passed, old: object) -> object:
    if isinstance(edit, SetKeyword):
        return edit.value
    return amended(old, edit) if isinstance(edit, AmendList) else items_of(old)


def _null_context(cls: type, edit: RemoveCall) -> type:
    """Return a class that passes for *cls* and, as a context manager, does nothing."""

    def enter(self: object) -> None: ...

    def leave(self: object, *error: object) -> None: ...

    async def enter_later(self: object) -> None: ...

    async def leave_later(self: object, *error: object) -> None: ...

    body = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    methods = {"__enter__": enter, "__exit__": leave, "__aenter__": enter_later, "__aexit__": leave_later}
    try:
        return type(cls)(cls.__name__, (cls,), {**body, **methods, "__del__": enter})
    except TypeError as error:
        raise NotReachable(f"{edit.call}: the class cannot be derived from ({error}).") from None
