"""The command that a verb is to run: what stands before its first word is a slip."""

from __future__ import annotations

import difflib
import shlex

import click

PYTHONS_LETTERS = frozenset("bBcdEiIOPsSuWxX")  # options of one letter that Python has and we have not


def refuse_options(command: tuple[str, ...]) -> None:
    """Say what to do about an option before the command; `-m` is meant to reach us so, all others are slips."""
    option, *rest = command or ("",)
    verb = f"unstall {click.get_current_context().info_name}"
    if not option.startswith("-"):
        return
    if option == "-m":
        if not rest:
            raise click.UsageError(f"-m needs the name of a module: {verb} -m pkg.train")
        return
    if option[1:2] in PYTHONS_LETTERS:
        raise click.UsageError(
            f"{option} is an option of Python, not of unstall. Name the interpreter before it:\n"
            f"    {verb} python {shlex.join(command)}"
        )
    name = option.partition("=")[0]
    raise click.NoSuchOption(name, possibilities=difflib.get_close_matches(name, _ours()))


def behind(command: tuple[str, ...]) -> str:
    """Return what is to be said of options of ours that stand behind the command's first word; "" where none do.

    They belong to the training, which may have one of the same name: it is for one that failed over its options.
    """
    given = [name for word in command[1:] if (name := word.partition("=")[0]) in _ours()]
    if not given:
        return ""
    verb = f"unstall {click.get_current_context().info_name}"
    return f"{', '.join(given)}: given to the training, as what stands behind its name is. Write {verb} {given[0]} ... {command[0]}"


def _ours() -> list[str]:
    parameters = click.get_current_context().command.params
    return [name for parameter in parameters for name in parameter.opts if name.startswith("--")]
