"""Where a value that a call passes is defined: a constant of the file, or the default of a command-line option.

A definition is changed in place of the call only where nothing else uses it, so that the patch changes what the override
changed and no more.  Where that cannot be told, the call itself is changed.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from unstall.model.remedy import SetKeyword
from unstall.remedies.names import Function, Names
from unstall.remedies.sites import NotPatchable, same_file

_PARSES = ("parse_args", "parse_known_args")
_SHOWS = ("print", "pprint", "str", "repr")  # what is handed to them is shown, and nothing depends on it


def definition(names: Names, passed: ast.expr, edit: SetKeyword, command: Sequence[str] | None) -> ast.expr | None:
    """Return the literal that gives *passed*, the value in the call, its value; None where the call is to be changed.

    Args:
        command: the words that start the training; None where they are not known, and no option's default is trusted.
    Raises:
        NotPatchable: When an option of the command gives the value: it goes before what the file says.
    """
    if isinstance(passed, ast.Name):
        return _constant(names, passed, edit.file, command)
    if isinstance(passed, ast.Attribute) and isinstance(passed.value, ast.Name) and command is not None:
        option = _option_of(names, passed)
        if option is not None and _is_parsed(names, passed.value.id, frozenset()):
            if (given := option.given_in(command)) is not None:
                flag = option.flags[-1]
                why = f"{given} in the command decides it; start the command with {flag} {edit.value} instead"
                raise NotPatchable(edit, why)
            return _default(names, passed, option)
    return None


def _constant(names: Names, passed: ast.Name, file: str, command: Sequence[str] | None) -> ast.expr | None:
    """Return the literal of ``WORKERS = 0``, where *passed* is the only use of it.

    Other files may use a constant of the module, unless the file is the script.
    """
    value = names.assigned(passed.id)
    if value is None or not is_literal(value) or names.loads(passed.id) != [passed] or names.meant_by_string(passed.id):
        return None
    (bound,) = names.bindings(passed.id)
    if names.in_class(bound):
        return None
    there, here = names.function(bound), names.function(passed)
    if there is None:
        is_script = names.is_guarded() or any(same_file(word, file) for word in command or ())
        return value if is_script else None
    return value if there is here else None


def is_literal(node: ast.expr) -> bool:
    """Return whether *node* is one plain value: a number with or without sign, a string, a truth value or None."""
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))


# ---------------------------------------------------------------- options of the command line


@dataclass(frozen=True, slots=True)
class _Option:
    """An ``add_argument`` call: the name of its value, its flags, and the whole call."""

    name: str
    flags: tuple[str, ...]
    call: ast.Call

    def given_in(self, command: Sequence[str]) -> str | None:
        """Return the words of *command* that give this option, also shortened as argparse allows; None where none do."""
        words = _own_words(command)
        for n, word in enumerate(words):
            head, equals, _ = word.partition("=")
            long = len(head) > 2 and head.startswith("--") and any(flag.startswith(head) for flag in self.flags)
            short = any(len(flag) == 2 and word.startswith(flag) and not word.startswith("--") for flag in self.flags)
            if long and not equals and n + 1 < len(words) and not words[n + 1].startswith("--"):
                return f"{word} {words[n + 1]}"
            if long or short:
                return word
        return None


def _own_words(command: Sequence[str]) -> Sequence[str]:
    """Return the words after the script or ``-m MODULE``: those before are its launcher's."""
    for n, word in enumerate(command):
        if word.endswith(".py") or word == "-m":
            return command[n + 1 :]
    return command


def _option_of(names: Names, passed: ast.Attribute) -> _Option | None:
    """Return the only option of the file whose value has the name of the attribute; None where that is not sure."""
    added = [call for call in names.calls if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"]
    options = [_option(call) for call in added]
    if None in options or names.attributes.get("set_defaults"):
        return None
    matching = [option for option in options if option is not None and option.name == passed.attr]
    return matching[0] if len(matching) == 1 and matching[0].flags else None


def _option(call: ast.Call) -> _Option | None:
    words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if not words or len(words) != len(call.args) or any(keyword.arg is None for keyword in call.keywords):
        return None
    flags = tuple(word for word in words if word.startswith("-"))
    dest = next((keyword.value for keyword in call.keywords if keyword.arg == "dest"), None)
    if dest is not None:
        return _Option(str(dest.value), flags, call) if isinstance(dest, ast.Constant) else None
    long = [flag for flag in flags if flag.startswith("--")]
    return _Option((long or words)[0].lstrip("-").replace("-", "_"), flags, call)


def _default(names: Names, passed: ast.Attribute, option: _Option) -> ast.expr | None:
    """Return the literal default of *option*, where *passed* is the only use of its value."""
    default = next((keyword.value for keyword in option.call.keywords if keyword.arg == "default"), None)
    if default is None or not is_literal(default) or names.attributes[passed.attr] != [passed]:
        return None
    assert isinstance(passed.value, ast.Name)
    if names.meant_by_string(passed.attr) or names.loads("getattr"):
        return None
    return default if all(_is_watched(names, load) for load in names.loads(passed.value.id)) else None


def _is_watched(names: Names, load: ast.Name) -> bool:
    """Return whether this use of the options hands them to nobody who could read the value unseen."""
    above = names.parent(load)
    if isinstance(above, ast.keyword):
        above = names.parent(above)
    if isinstance(above, ast.Call) and above.func is not load:
        called = above.func.id if isinstance(above.func, ast.Name) else ""
        return called in _SHOWS or called in names.functions
    return isinstance(above, (ast.Attribute, ast.Return))


def _is_parsed(names: Names, name: str, seen: frozenset[str]) -> bool:
    """Return whether *name* always holds what a parser made of the command line, wherever the file binds it."""
    bound = names.bindings(name)
    return name not in seen and bool(bound) and all(_binds_parsed(names, one, name, seen | {name}) for one in bound)


def _binds_parsed(names: Names, bound: ast.AST, name: str, seen: frozenset[str]) -> bool:
    holder = names.parent(bound)
    if isinstance(holder, ast.Tuple) and holder.elts[0] is bound:  # args, rest = parser.parse_known_args()
        holder = names.parent(holder)
    if isinstance(holder, ast.Assign) and len(holder.targets) == 1:
        return _gives_parsed(names, holder.value, seen)
    if isinstance(bound, ast.arg) and isinstance(holder, ast.arguments):
        function = names.parent(holder)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return _is_handed_parsed(names, function, bound, seen)
    return False


def _gives_parsed(names: Names, value: ast.expr, seen: frozenset[str]) -> bool:
    if isinstance(value, ast.Name):
        return value.id in seen or _is_parsed(names, value.id, seen)
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute):
        return value.func.attr in _PARSES and not value.args and not value.keywords
    functions = names.functions.get(value.func.id, []) if isinstance(value.func, ast.Name) else []
    if len(functions) != 1:
        return False
    returned = [node.value for node in ast.walk(functions[0]) if isinstance(node, ast.Return)]
    return bool(returned) and all(one is not None and _gives_parsed(names, one, seen) for one in returned)


def _is_handed_parsed(names: Names, function: Function, parameter: ast.arg, seen: frozenset[str]) -> bool:
    """Return whether every call of *function* is in the file and hands over parsed options as *parameter*."""
    uses = names.loads(function.name)
    calls = [use for use in (names.parent(load) for load in uses) if isinstance(use, ast.Call) and use.func in uses]
    if not calls or len(calls) != len(uses) or names.in_class(function) or parameter not in function.args.args:
        return False
    position = function.args.args.index(parameter)
    for call in calls:
        named = [keyword.value for keyword in call.keywords if keyword.arg == parameter.arg]
        handed = named or call.args[position : position + 1]
        if not handed or not _gives_parsed(names, handed[0], seen):
            return False
    return True
