"""The command line: one file a verb, found by walking this folder; a verb's docstring is its help.

A verb's module imports click and nothing heavier, so that ``unstall --help`` is quick; what it needs to work is
imported when it works.  Modules whose names begin with ``_`` are no verbs.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence

import click

from unstall import __version__
from unstall.model.errors import UnstallError

__all__ = ["main"]

INTERRUPTED = 130  # the shell's own code for a command that Ctrl-C ended
BROKEN_PIPE = 141  # and for one whose reader went away


class Verbs(click.Group):
    """A group whose commands are the modules of this folder, each with a ``command``; imported when named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"{__name__}.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="First:  unstall run train.py --epochs 1",
)
@click.version_option(__version__, prog_name="unstall")
def unstall() -> None:
    """Find why a PyTorch training run is slow, and which line is to blame, from the unmodified script."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out the command line and return its exit code.

    What a user can put right is said on stderr, without a traceback.
    """
    try:
        given = list(arguments) if arguments is not None else None
        code = unstall.main(args=given, prog_name="unstall", standalone_mode=False)
    except UnstallError as error:
        click.echo(f"unstall: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        return BROKEN_PIPE
    return code if isinstance(code, int) else 0
