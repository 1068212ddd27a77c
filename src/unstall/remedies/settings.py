"""Leave out a statement that sets an attribute of a module, or an environment variable: in source, and in the live process.

A variable's target is ``os.environ.NAME``. Its statement often stands before the import of torch, which reads it, so it is
left out from the start of the process on.

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
ENVIRON = "os.environ"
_MAKE_A_VALUE = frozenset({"tempfile.mkdtemp", "tempfile.gettempdir", "os.path.join", "os.getpid", "os.getcwd"})


def setting(tree: ast.Module, edit: RemoveSetting) -> tuple[ast.Assign, tuple[ast.stmt, ...]]:
    """Return the statement that *edit* means, and the statements that it is one of.

    Raises:
        NoSuchCall: When the line sets no such attribute.
        NotPatchable: When the file sets it elsewhere too, the statement sets more, or its value does more than give a value.
    """
    known = path_in(tree)

    def path(node: ast.expr) -> str:
        item = node.slice if isinstance(node, ast.Subscript) and known(node.value) == ENVIRON else None
        name = item.value if isinstance(item, ast.Constant) else None
        return f"{ENVIRON}.{name}" if isinstance(name, str) else known(node)

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
    if not _is_plain(statement.value, known):
        raise NotPatchable(edit, f"the value there, {ast.unparse(statement.value)}, may do more than give a value")
    return statement, block


def _is_plain(value: ast.expr, path: Callable[[ast.expr], str]) -> bool:
    """Return whether to leave *value* out changes nothing else: it is written there, or made by what only gives a value."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    if calls:
        return all(path(call.func) in _MAKE_A_VALUE for call in calls) and isinstance(value, ast.Call)
    return isinstance(value, _PLAIN)


def is_variable(edit: RemoveSetting) -> bool:
    """Return whether it is an environment variable that is not to be set."""
    return edit.target.startswith(ENVIRON + ".")


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
    owner, name = (os.environ, edit.target[len(ENVIRON) + 1 :]) if is_variable(edit) else located(edit.target, getattr)
    kind, sets = type(owner), "__setitem__" if is_variable(edit) else "__setattr__"
    before: Callable[[object, str, object], None] = getattr(kind, sets)
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
        replace(kind, sets, set_one, undo)
    except NotReachable:
        raise NotReachable(f"{edit.target}: what sets an attribute of a {kind.__name__} cannot be replaced.") from None
