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
    ours = [name for parameter in click.get_current_context().command.params for name in parameter.opts]
    name = option.partition("=")[0]
    near = difflib.get_close_matches(name, [one for one in ours if one.startswith("--")])
    raise click.NoSuchOption(name, possibilities=near)
