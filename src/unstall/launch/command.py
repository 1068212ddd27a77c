"""Turn what the user typed after ``unstall run`` into the argv of the training."""

from __future__ import annotations

import difflib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unstall.launch.redaction import redacted
from unstall.model.errors import UnstallError

__all__ = ["Command", "alone", "redacted", "resolve", "training_python", "why_silent"]

_HIDING_LETTERS = {
    "I": "leaves out PYTHONPATH and sitecustomize's folder",
    "E": "ignores PYTHONPATH",
    "S": "does not load sitecustomize",
}
_LOOK_FOR_TORCH = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('torch') else 1)"


@dataclass(frozen=True, slots=True)
class Command:
    """A command that can be started.

    Attributes:
        argv: what is executed; argv[0] may have to be looked up on PATH.
        name: short name for folders and headings, as ``train.py``.
    """

    argv: tuple[str, ...]
    name: str


def resolve(words: Sequence[str], env: Mapping[str, str]) -> Command:
    """Return the command that *words* ask for: a script, ``-m module``, a shell script or any program.

    Args:
        words: what stands after ``unstall run`` and its options; a leading ``--`` is dropped.
        env: the environment it will run in; PATH is read from it.
    Raises:
        UnstallError: When there is no command, a file is missing, a program is not on PATH, or it is a notebook.
    """
    if words and words[0] == "--":
        words = words[1:]
    if not words or not words[0]:
        raise UnstallError("No command was given.\nName what trains, as in:  unstall run train.py --epochs 3")
    _refuse_notebook(words)
    head, rest = words[0], tuple(words[1:])
    if head.startswith("-"):
        return _module(head, rest, env)
    if head.endswith((".py", ".pyz")) or os.path.isfile(os.path.join(head, "__main__.py")):
        _require_file(head)
        return Command((training_python(env), head, *rest), os.path.basename(head.rstrip("/")))
    if head.endswith((".sh", ".bash")):
        _require_file(head)
        return Command((*_shell_script(head), *rest), os.path.basename(head))
    return Command((_program(head, env), *rest), _name_of((head, *rest)))


def alone(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the command that starts one rank in the place of several on this machine; None where that cannot be told.

    Known are ``--nproc-per-node N`` of torchrun and of ``-m torch.distributed.run``, and ``--num_processes N`` of
    ``accelerate launch``.
    """
    starts = os.path.basename(words[0]) in ("torchrun", "accelerate") if words else False
    if not starts and not any(word.endswith("torch.distributed.run") for word in words):
        return None
    found = list(words)
    for at, word in enumerate(words):
        name, given, _ = word.partition("=")
        if name.lstrip("-").replace("-", "_") in ("nproc_per_node", "num_processes"):
            if given:
                found[at] = f"{name}=1"
            elif at + 1 < len(words):
                found[at + 1] = "1"
            return tuple(found) if given or at + 1 < len(words) else None
        if word.endswith((".py", ".pyz")):  # what follows is the training's own
            return None
    return None


def training_python(env: Mapping[str, str]) -> str:
    """Return the Python to train with: the first on PATH, for unstall may live in another environment.

    Where that one has no torch and the one that runs unstall has, it is the latter: unstall was
    then called by its path, without activating its environment.

    Cost: starts the Python on PATH once (about 30 ms) where the two differ and ours has torch.
    """
    path = env.get("PATH", os.defpath)
    found = shutil.which("python", path=path) or shutil.which("python3", path=path)
    if found is None:
        return sys.executable
    if os.path.dirname(found) == os.path.dirname(sys.executable) or importlib.util.find_spec("torch") is None:
        return found
    try:
        looked = subprocess.run(
            [found, "-c", _LOOK_FOR_TORCH], env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return found
    return found if looked.returncode == 0 else sys.executable


def why_silent(argv: Sequence[str]) -> str | None:
    """Return why a Python started by *argv* cannot load the probes (``-I``, ``-E``, ``-S``), or None."""
    if not os.path.basename(argv[0]).startswith(("python", "pypy")):
        return None
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-") or word.startswith("--") or word == "-":
            return None
        for at, letter in enumerate(word[1:], 1):
            if letter in _HIDING_LETTERS:
                return f"python {word} {_HIDING_LETTERS[letter]}"
            if letter in "cm":  # what follows belongs to the program
                return None
            if letter in "WX":  # takes the rest of the word, or the next one
                if at == len(word) - 1:
                    next(words, None)
                break
    return None


def _module(head: str, rest: tuple[str, ...], env: Mapping[str, str]) -> Command:
    if head != "-m":  # what else begins with "-" is a mistyped option of ours, or one of Python
        raise UnstallError(
            f"{head} is no option of unstall run.\n"
            "Options of unstall stand before the command; see them with:  unstall run --help"
        )
    if not rest:
        raise UnstallError("-m needs something after it, as in:  unstall run -m package.train")
    return Command((training_python(env), head, *rest), rest[0])


def _refuse_notebook(words: Sequence[str]) -> None:
    for word in words[:3]:  # the program, or what python or -u runs
        if word.endswith(".ipynb"):
            script = os.path.splitext(os.path.basename(word))[0] + ".py"
            raise UnstallError(
                f"{word} is a notebook; notebooks are not supported yet.\n"
                f"Make it a script and run that:\n"
                f"    jupyter nbconvert --to script {word}\n    unstall run {script}"
            )
        if not word.startswith("-") and not os.path.basename(word).startswith("python"):
            return


def _require_file(path: str) -> None:
    if os.path.isfile(path) or os.path.isfile(os.path.join(path, "__main__.py")):
        return
    folder, name = os.path.split(path)
    try:
        near = difflib.get_close_matches(name, os.listdir(folder or "."), n=1)
    except OSError:
        near = []
    hint = f"Did you mean {os.path.join(folder, near[0])}?" if near else "Check the name and the working folder."
    raise UnstallError(f"There is no file {path} (looked from {os.getcwd()}).\n{hint}")


def _shell_script(path: str) -> tuple[str, ...]:
    """Return how to start a shell script: as it is when executable, otherwise by the shell that it names."""
    started = path if os.sep in path else os.path.join(".", path)
    if os.access(path, os.X_OK) and _shebang(path):
        return (started,)
    wants_bash = path.endswith(".bash") or "bash" in _shebang(path)
    return ("bash" if wants_bash else "sh", path)


def _shebang(path: str) -> str:
    try:
        with open(path, "rb") as file:
            line = file.readline(256)
    except OSError as error:
        raise UnstallError(f"{path} cannot be read: {error.strerror}.") from error
    return line.decode("utf-8", "replace").strip() if line.startswith(b"#!") else ""


def _program(head: str, env: Mapping[str, str]) -> str:
    """Return the program to execute: found on PATH or, like no shell does, in the working folder."""
    if os.sep not in head and shutil.which(head, path=env.get("PATH", os.defpath)):
        return head
    if os.path.isdir(head):
        raise UnstallError(f"{head} is a folder without __main__.py.\nName the script that trains.")
    if os.path.isfile(head):
        if not os.access(head, os.X_OK):
            raise UnstallError(f"{head} is neither a .py or .sh file nor executable.\nMake it so:  chmod +x {head}")
        return head if os.sep in head else os.path.join(".", head)
    if os.sep in head:
        _require_file(head)
    raise UnstallError(
        f"{head} was not found on PATH.\nCheck the name, and that the training's environment is activated."
    )


def _name_of(argv: Sequence[str]) -> str:
    """Return the script or module that the words name, for headings: ``train.py`` of ``python train.py``."""
    for before, word in zip(("", *argv), argv, strict=False):
        if word.endswith((".py", ".sh", ".bash")) or before == "-m":
            return os.path.basename(word)
    return os.path.basename(argv[0])
