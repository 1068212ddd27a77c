"""Carry out edits in source text; every byte outside the edited calls stays as it was.

The text is cut at the places that Python's own parser reports, so it needs no other parser and
finds the call exactly as `override` does (`sites`).
"""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike

from unstall.model.remedy import (
    AddCall,
    AmendList,
    CallFirst,
    CallMethod,
    Decorate,
    Edit,
    ListItems,
    RemoveCall,
    RemoveSetting,
    SetAttribute,
    SetEnvironment,
    SetKeyword,
    SourceEdit,
    WrapCall,
)
from unstall.remedies.amending import with_list
from unstall.remedies.arguments import with_keyword
from unstall.remedies.decorating import with_decorator
from unstall.remedies.first import holds_first, with_first
from unstall.remedies.head import with_statement
from unstall.remedies.listing import with_items
from unstall.remedies.making import with_made
from unstall.remedies.removal import without_call
from unstall.remedies.settings import without_setting
from unstall.remedies.sites import NoSuchCall, NotPatchable, calls_nothing, find, parse, same_file
from unstall.remedies.text import Text

__all__ = ["NoSuchCall", "NotPatchable", "patched", "unified_diff"]

_MARK = "\ufeff"  # byte order mark, which the parser does not take in a str


def patched(source: str, edits: Sequence[Edit], file: str | PathLike[str], command: Sequence[str] | None = None) -> str:
    """Return *source*, the text of *file*, with those of *edits* that name *file* written into it.

    All edits are judged against *source* as it is given.  Where an edit holds already the text stays
    as it is; `RemoveCall` and `CallFirst` hold where their line makes no such call
    and, for `RemoveCall`, none at all.  `SetEnvironment` changes no source:
    whoever starts the command carries it out.

    Args:
        command: the words that start the training.  The default of an option is changed only where they are known: an
            option that they give goes before its default.
    Raises:
        NotPatchable: When an edit cannot be carried out without guessing; nothing is changed then.
    """
    mark = _MARK if source.startswith(_MARK) else ""
    text = source[len(mark) :]
    for edit in _from_below(edits):
        if same_file(edit.file, os.fspath(file)):
            text = _edited(text, edit, command)
    return mark + text


def _from_below(edits: Sequence[Edit]) -> list[SourceEdit]:
    """Return the edits of source, lowest line first, so that none moves the line of another still to come.

    On one line values are set, in the order given, before calls are removed; statements of the head come last.
    """
    of_source = [edit for edit in edits if not isinstance(edit, SetEnvironment)]
    last, gone = (AddCall, SetAttribute), (RemoveCall, RemoveSetting)
    return sorted(of_source, key=lambda edit: (isinstance(edit, last), -edit.line, isinstance(edit, gone)))


def _edited(source: str, edit: SourceEdit, command: Sequence[str] | None) -> str:
    tree, text = parse(source, edit), Text(source)
    if isinstance(edit, SetKeyword):
        new = with_keyword(text, tree, find(tree, edit), edit, command)
    elif isinstance(edit, (AddCall, SetAttribute)):
        new = with_statement(text, tree, edit)
    elif isinstance(edit, Decorate):
        new = with_decorator(text, tree, edit)
    elif isinstance(edit, CallFirst):
        new = with_first(text, find(tree, edit), edit) if not holds_first(tree, edit) else source
    elif isinstance(edit, ListItems):
        new = with_items(text, tree, find(tree, edit), edit)
    elif isinstance(edit, AmendList):
        new = with_list(text, tree, find(tree, edit), edit)
    elif isinstance(edit, RemoveSetting):
        new = without_setting(text, tree, edit)
    elif isinstance(edit, (WrapCall, CallMethod)):
        new = with_made(text, tree, find(tree, edit), edit)
    elif calls_nothing(tree, edit.line):
        return source
    else:
        new = without_call(text, find(tree, edit), edit)
    try:
        ast.parse(new)
    except SyntaxError as error:
        raise NotPatchable(edit, f"the line is written in a way that cannot be edited ({error})") from None
    return new


def unified_diff(files: Mapping[str, tuple[str, str]]) -> str:
    """Return the changes as a patch for ``git apply``; files without a change are left out.

    Args:
        files: path -> (old text, new text).  A path is taken from the folder in which the patch will be
            applied; an absolute one is made relative to the working folder.
    """
    return "".join("".join(_diff_of_file(path, old, new)) for path, (old, new) in sorted(files.items()) if old != new)


def _diff_of_file(path: str, old: str, new: str) -> Iterator[str]:
    relative = os.path.relpath(path) if os.path.isabs(path) else os.path.normpath(path)
    before, after = (_quoted(f"{side}/{relative.replace(os.sep, '/')}") for side in "ab")
    yield f"diff --git {before} {after}\n"
    tab = "\t" if " " in relative else ""  # git's way to end a name that holds a space
    lines = difflib.unified_diff(_lines(old), _lines(new), before + tab, after + tab)
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _quoted(name: str) -> str:
    if not re.search(r'[\x00-\x1f"\\]', name):
        return name
    return '"' + "".join(f"\\{ord(c):03o}" if c < " " else "\\" + c if c in '"\\' else c for c in name) + '"'


def _lines(text: str) -> list[str]:
    """Return the lines of *text* as git counts them: by line feeds alone."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
