"""Who calls: is the call that is being made the one at an edit's site?  Standard library only."""

from __future__ import annotations

import itertools
import os
import sys
import tokenize
from collections.abc import Callable
from types import CodeType, FrameType

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
from unstall.remedies.amending import listed
from unstall.remedies.listing import argument
from unstall.remedies.making import refuse_unless_made_plainly
from unstall.remedies.sites import NoSuchCall, NotPatchable, Site, Use, calls_nothing, find, parse, refuse_if_used

_NO_INSTANCE = object()


def _nothing() -> None: ...


class Caller:
    """Recognises the call of one edit by the frame that makes it.

    From Python 3.11 on a frame tells the exact text of the call it makes.  On 3.10, or with
    ``-X no_debug_ranges``, the lines of the call have to do.

    Attributes:
        live: whether the edit is in force.
        met: to be called each time the edit changes a call.
        use: what becomes of the result there; None where the source does not tell.

    Raises:
        NotPatchable: When the line makes several such calls, a call to leave out has a use, or what a call makes has
            no name.
    """

    __slots__ = ("_edit", "_folder", "_is_file", "_seen", "_site", "live", "met", "use")

    def __init__(self, edit: CallEdit, met: Callable[[], None] = _nothing) -> None:
        self._edit = edit
        self.met = met
        self._folder = os.getcwd()  # the training may change it, and relative names are meant from here
        self._is_file: dict[str, bool] = {edit.file: True}
        self._seen: dict[tuple[int, int], tuple[CodeType, bool]] = {}  # keeps the code alive, so its id stays its own
        self.live = True
        self._site = self._find()
        self.use: Use | None = self._site.use if self._site else None

    def retire(self) -> None:
        """Take the edit out of force."""
        self.live = False

    def makes(self, frame: FrameType | None, instance: object = _NO_INSTANCE) -> bool:
        """Return whether *frame* makes the call.

        Args:
            frame: the frame that called the wrapper.
            instance: the object under construction; frames that hand its construction on, as the ``__init__``
                of a subclass, are looked through.
        """
        while frame is not None:
            if self._is_here(frame):
                return True
            if not _is_ours(frame) and (instance is _NO_INSTANCE or not _constructs(frame, instance)):
                return False
            frame = frame.f_back
        return False

    def _find(self) -> Site | None:
        """Return the edit's site in its file, or None where only its line is known."""
        edit = self._edit
        try:
            with tokenize.open(edit.file) as file:
                tree = parse(file.read(), edit)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            if not isinstance(edit, (SetKeyword, CallFirst)):
                raise NotPatchable(edit, f"what the source makes of it is not known ({error})") from None
            return None
        try:
            site = find(tree, edit)
        except NoSuchCall:
            # A keyword is set by line, since the name may be bound in a way that the source does not show.
            if isinstance(edit, (WrapCall, CallMethod, ListItems, AmendList)):
                raise
            if isinstance(edit, RemoveCall) and not calls_nothing(tree, edit.line):
                raise
            return None
        if isinstance(edit, RemoveCall):
            refuse_if_used(site, edit)
        if isinstance(edit, (WrapCall, CallMethod)):
            refuse_unless_made_plainly(tree, site, edit)
        if isinstance(edit, ListItems):
            argument(tree, site, edit)
        if isinstance(edit, AmendList):
            listed(tree, site, edit)
        return site

    def _is_here(self, frame: FrameType) -> bool:
        code = frame.f_code
        if not self._names_file(code.co_filename):
            return False
        key = id(code), frame.f_lasti
        if key not in self._seen:
            self._seen[key] = code, self._is_site(frame)
        return self._seen[key][1]

    def _names_file(self, name: str) -> bool:
        known = self._is_file.get(name)
        if known is None:
            there, here = (os.path.realpath(os.path.join(self._folder, each)) for each in (name, self._edit.file))
            known = self._is_file[name] = there == here
        return known

    def _is_site(self, frame: FrameType) -> bool:
        first, last, end_column = text_of_call(frame)
        if self._site is None:
            return first <= self._edit.line <= last
        if end_column is not None:
            return (last, end_column) == self._site.end  # no two calls end in one place
        return self._site.first_line <= first <= self._site.end[0]


def tracing() -> Callable[[], bool]:
    """Return torch's own word on whether a compiler is tracing; without torch none is."""
    torch = sys.modules.get("torch")
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return compiling if callable(compiling) else bool


def text_of_call(frame: FrameType) -> tuple[int, int, int | None]:
    """Return first line, last line and end column of the call that *frame* is making."""
    positions = getattr(frame.f_code, "co_positions", None)  # Python 3.11
    if positions is not None:
        at = next(itertools.islice(positions(), frame.f_lasti // 2, None), (None, None, None, None))
        if at[0] is not None and at[1] is not None:
            return at[0], at[1], at[3]
    return frame.f_lineno, frame.f_lineno, None


def _is_ours(frame: FrameType) -> bool:
    """Return whether the frame is a wrapper of unstall, as another edit or a probe puts one in between."""
    return str(frame.f_globals.get("__name__", "")).startswith("unstall.")


def _constructs(frame: FrameType, instance: object) -> bool:
    """Return whether the frame is a method of *instance* (or of its class, being called) under construction."""
    names = frame.f_code.co_varnames
    first = frame.f_locals.get(names[0]) if names and frame.f_code.co_argcount else None
    return first is instance or (first is type(instance) and frame.f_code.co_name == "__call__")
