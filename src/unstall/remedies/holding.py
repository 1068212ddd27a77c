"""Carry out a statement of the head of a file in the live process, and undo it.  Standard library only."""

from __future__ import annotations

import tokenize
from collections.abc import Callable
from contextlib import ExitStack

from unstall.model.remedy import AddCall, Members, Scalar, SetAttribute
from unstall.remedies.head import holds
from unstall.remedies.replacing import NotReachable, located
from unstall.remedies.sites import parse


def hold(edit: AddCall | SetAttribute, owner: object, name: str, undo: ExitStack) -> None:
    """Make the call, or set the attribute *name* of *owner*, and let *undo* put back what was.

    A file that cannot be read is taken to have no such statement of its own.

    Raises:
        NotReachable: When there is no way to undo it.
        NotPatchable: As `head.with_statement`: what the file does later would go before this.
    """
    try:
        with tokenize.open(edit.file) as file:
            source = file.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        source = ""
    holds(parse(source, edit), edit)
    if isinstance(edit, AddCall):
        back = _way_back(edit, owner, name)
        getattr(owner, name)(*edit.arguments)
        undo.callback(back)
    else:
        old = getattr(owner, name)
        try:
            setattr(owner, name, _valued(edit.value))
        except (TypeError, AttributeError) as error:
            raise NotReachable(f"{edit.attribute}: it cannot be set ({error}).") from None
        undo.callback(setattr, owner, name, old)


def _valued(value: Scalar | Members) -> object:
    if not isinstance(value, Members):
        return value
    return {getattr(*located(path, getattr)) for path in value.paths}


def _way_back(edit: AddCall, owner: object, name: str) -> Callable[[], object]:
    """Return what undoes the call: a ``set_x`` whose value the ``get_x`` beside it tells."""
    setter, getter = getattr(owner, name), getattr(owner, name.replace("set_", "get_", 1), None)
    if not name.startswith("set_") or not callable(setter) or not callable(getter):
        raise NotReachable(f"{edit.call}: there is no get_ beside it, so it could not be undone.")
    old = getter()
    return lambda: setter(*old) if isinstance(old, tuple) else setter(old)
