"""Put a wrapper in the place of an attribute, and the attribute back.  Standard library only."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType

from unstall.model.errors import UnstallError
from unstall.remedies.sites import same_file

_ABSENT = object()  # the attribute was inherited: to put it back is to delete ours


class NotReachable(UnstallError):
    """What an edit names cannot be imported or replaced in this process."""


def located(call: str, look: Callable[[object, str], object] = inspect.getattr_static) -> tuple[object, str]:
    """Return the module or class that holds *call*, and its attribute there, as *look* sees it.

    Raises:
        NotReachable: When it cannot be imported, or there is no such name.
    """
    path, _, name = call.rpartition(".")
    parts = path.split(".") if path else []
    for cut in range(len(parts), 0, -1):
        try:
            owner: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            if error.name and ".".join([*parts[:cut], ""]).startswith(error.name + "."):
                continue  # a class on the way, not a module
            raise NotReachable(f"{call}: its module cannot be imported ({error}).") from error
        except ImportError as error:
            raise NotReachable(f"{call}: its module cannot be imported ({error}).") from error
        try:
            owner = functools.reduce(getattr, parts[cut:], owner)
            look(owner, name)
        except AttributeError as error:
            raise NotReachable(f"{call}: there is no such name ({error}).") from None
        return owner, name
    raise NotReachable(f"{call}: no module of that name can be imported.")


def replace(owner: type | ModuleType, name: str, new: object, undo: ExitStack) -> None:
    """Set *name* of *owner*, and let *undo* put it back unless someone has replaced it again by then.

    Raises:
        NotReachable: When the attribute cannot be set.
    """
    old = vars(owner).get(name, _ABSENT)
    try:
        setattr(owner, name, new)
    except (TypeError, AttributeError) as error:
        raise NotReachable(f"{owner.__name__}.{name} cannot be replaced ({error}).") from None
    undo.callback(_put_back, owner, name, new, old)


def replace_everywhere(owner: ModuleType, name: str, new: object, file: str, undo: ExitStack) -> None:
    """Replace a function in *owner* and wherever loaded modules of the user hold it under a name of their own.

    Undoing reaches the modules loaded since, too.

    Args:
        file: file of the edit, whose module counts as the user's wherever it lies.
    Cost: O(names of the user's modules).
    """
    old = vars(owner)[name]
    undo.callback(_put_back_everywhere, new, old)
    replace(owner, name, new, undo)
    for module in _loaded():
        if _reexports(module, owner, old) or _is_users(module, file):
            for held in [key for key, value in list(vars(module).items()) if value is old]:
                replace(module, held, new, undo)


def _put_back(owner: type | ModuleType, name: str, new: object, old: object) -> None:
    if vars(owner).get(name) is not new:
        return
    if old is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, old)


def _put_back_everywhere(new: object, old: object) -> None:
    for module in _loaded():
        for held in [key for key, value in list(vars(module).items()) if value is new]:
            setattr(module, held, old)


def _loaded() -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]


def _reexports(module: ModuleType, owner: ModuleType, function: object) -> bool:
    """Return whether *module* defines the function, or is the package that shows it (torch.save)."""
    return module.__name__ in (getattr(function, "__module__", None), owner.__name__.partition(".")[0])


def _is_users(module: ModuleType, file: str) -> bool:
    path = vars(module).get("__file__")
    if not isinstance(path, str):
        return module.__name__ == "__main__"
    if os.path.basename(path) == os.path.basename(file) and same_file(path, file):
        return True
    return not path.startswith(_libraries()) and not module.__name__.startswith("unstall")


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Return the folders, each with a separator at its end, that hold what is no user's code."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(os.path.join(sysconfig.get_path(kind), "") for kind in kinds)
