"""Leave out a statement that sets an attribute of a module: in source, and in the live process.

`setting` is asked on both sides, so what cannot be written is not tried.  Standard library only.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
import tokenize
from collections.abc import Callable
from contextlib import ExitStack

from unstall.model.remedy import RemoveSetting
from unstall.remedies.caller import text_of_call
from unstall.remedies.head import path_in
from unstall.remedies.removal import without_statement
from unstall.remedies.replacing import NotReachable, located, replace
from unstall.remedies.sites import NoSuchCall, NotPatchable, end_of, parse
from unstall.remedies.text import Text

_PLAIN = (ast.Constant, ast.Name, ast.Attribute, ast.UnaryOp)  # to leave one of these out changes nothing else


def setting(tree: ast.Module, edit: RemoveSetting) -> tuple[ast.Assign, tuple[ast.stmt, ...]]:
    """Return the statement that *edit* means, and the statements that it is one of.

    Raises:
        NoSuchCall: When the line sets no such attribute.
        NotPatchable: When the file sets it elsewhere too, the statement sets more, or its value does more than give a value.
    """
    path = path_in(tree)
    found: list[tuple[ast.stmt, tuple[ast.stmt, ...]]] = []
    for above in ast.walk(tree):
        for _, value in ast.iter_fields(above):
            block = tuple(one for one in value if isinstance(one, ast.stmt)) if isinstance(value, list) else ()
            found += [(one, block) for one in block if any(path(target) == edit.target for target in _targets(one))]
    here = [(one, block) for one, block in found if one.lineno <= edit.line <= end_of(one)[0]]
    if not here:
        raise NoSuchCall(edit, "the line does not set it")
    statement, block = here[0]
    if len(found) > 1:
        raise NotPatchable(edit, "the file sets it elsewhere too")
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1 or path(statement.targets[0]) != edit.target:
        raise NotPatchable(edit, "the statement does more than set it")
    if not isinstance(statement.value, _PLAIN):
        raise NotPatchable(edit, f"the value there, {ast.unparse(statement.value)}, may do more than give a value")
    return statement, block


def _targets(statement: ast.stmt) -> list[ast.expr]:
    """Return what the statement sets, also within a tuple."""
    if isinstance(statement, ast.Assign):
        return [part for target in statement.targets for part in ast.walk(target) if isinstance(part, ast.expr)]
    return [statement.target] if isinstance(statement, (ast.AugAssign, ast.AnnAssign)) else []


def without_setting(text: Text, tree: ast.Module, edit: RemoveSetting) -> str:
    """Return the text without the statement.

    Raises:
        NotPatchable: As `setting`.
    """
    return without_statement(text, *setting(tree, edit))


def leave_out(edit: RemoveSetting, undo: ExitStack, met: Callable[[], None]) -> None:
    """Let the statement have no effect in this process, until *undo* is closed; all others that set something have theirs.

    Raises:
        NotReachable: When what holds the attribute is of a class that cannot be changed.
        NotPatchable: As `setting`, and when the file cannot be read.
    """
    try:
        with tokenize.open(edit.file) as file:
            statement, _ = setting(parse(file.read(), edit), edit)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise NotPatchable(edit, f"what the source sets is not known ({error})") from None
    owner, name = located(edit.target, getattr)
    kind = type(owner)
    before: Callable[[object, str, object], None] = kind.__setattr__
    first, last, folder = statement.lineno, end_of(statement)[0], os.getcwd()
    here = os.path.realpath(edit.file)

    @functools.wraps(before)
    def set_one(self: object, attribute: str, value: object) -> None:
        frame = sys._getframe(1)
        if attribute == name and os.path.realpath(os.path.join(folder, frame.f_code.co_filename)) == here:
            line, end, _ = text_of_call(frame)
            if first <= line and end <= last:
                met()
                return
        before(self, attribute, value)

    try:
        replace(kind, "__setattr__", set_one, undo)
    except NotReachable:
        raise NotReachable(f"{edit.target}: what sets an attribute of a {kind.__name__} cannot be replaced.") from None
