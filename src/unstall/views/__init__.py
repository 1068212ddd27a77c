"""Views: each turns a finished `Report` (`fixed`: a `Fixed`) into text. Found by walking this folder.

A view is a module with ``NAME`` and ``render``.  It adds nothing to the report: no sum, no
judgement, only words and layout.  Modules whose names begin with ``_`` are parts of views.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from unstall.model.report import Report

__all__ = ["View", "load", "view"]


class View(Protocol):
    """A module of this folder.

    Attributes:
        NAME: what it is called, the module's own name.
    """

    NAME: str

    def render(self, report: Report, *, width: int, colour: bool, verbose: bool) -> str:
        """Return the report as text that ends in a newline.

        Args:
            width: columns of the page; views that have no page ignore it.
            colour: whether escape sequences for colour may be used.
            verbose: whether to say what is left out otherwise.
        """


def load() -> dict[str, View]:
    """Return every view by name."""
    names = [info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")]
    return {name: view(name) for name in sorted(names)}


def view(name: str) -> View:
    """Return the view called *name*; only its module is imported.

    Raises:
        ModuleNotFoundError: When there is none.
    """
    return cast(View, importlib.import_module(f"{__name__}.{name}"))
