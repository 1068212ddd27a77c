"""The command line is quick to start, because it imports nothing that it does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "numpy", "libcst", "rich", "msgspec", "psutil"}
LOOK = """
import contextlib, io, sys
from unstall.cli import main
with contextlib.redirect_stdout(io.StringIO()) as said:
    assert main({arguments!r}) == 0
assert {expected!r} in said.getvalue(), said.getvalue()
print(*sorted({heavy!r} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], "diagnose"),
        (["run", "--help"], "--price-per-hour"),
        (["diagnose", "--help"], "PATH"),
        (["explain", "--help"], "CAUSE"),
        (["fix", "--help"], "--budget"),
        (["--version"], "unstall"),
    ],
)
def test_help_imports_nothing_heavy(arguments, expected):
    code = LOOK.format(arguments=arguments, expected=expected, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "unstall", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: unstall ")


def test_every_verb_has_a_line_of_help():
    done = subprocess.run([sys.executable, "-m", "unstall", "--help"], capture_output=True, text=True, check=True)
    said = done.stdout.partition("Commands:")[2].split("First:")[0].splitlines()
    lines = [line.split(maxsplit=1) for line in said if line.strip()]
    assert {line[0] for line in lines} >= {"run", "diagnose", "explain", "causes"}
    assert all(len(line) == 2 and not line[1].endswith("...") for line in lines)
