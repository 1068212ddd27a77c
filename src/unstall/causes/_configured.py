"""Where a framework's setting is made: an edit of the user's call that makes the configuration, else words on what to pass."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from unstall.model.finding import Line
from unstall.model.remedy import Knob, Scalar, SetKeyword
from unstall.model.run import Facts, Run
from unstall.model.tables import Tables

_LIBRARY = re.compile(r"^<|[/\\](site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python\d[^/\\]*[/\\]")
_PARSER = "transformers/hf_argparser"
_FROM_WORDS = "parse_args_into_dataclasses"  # of the parser: from the command line; its other ways read files or a dict


@dataclass(frozen=True, slots=True)
class Setting:
    """How to set one key of a configuration.

    Attributes:
        name: the key, as a call or a configuration has it.
        edits: empty where no single call of the user's sets it.
        by_hand: what to change then, a clause in the imperative; "" where there are edits.
    """

    name: str
    edits: tuple[SetKeyword, ...]
    by_hand: str = ""

    def knobs(self, predicted: int, low: int, high: int) -> tuple[Knob, ...]:
        """Return the knob to search over; none where there is no edit that it would turn."""
        return tuple(Knob(edit.keyword, predicted, low, high) for edit in self.edits[:1])


def is_library(file: str) -> bool:
    """Return whether *file* is of an installed package or of Python itself, so that no edit belongs there."""
    return not file or bool(_LIBRARY.search(file))


def head_file(run: Run, tables: Tables) -> str | None:
    """Return the user's file that makes the first optimizer: its head runs before the training; None if unknown."""
    for facts in run.ranks[0].facts.family("parameters").values():
        line = tables.place(facts.text("site") or "")
        if line is not None and not is_library(line.file):
            return line.file
    return None


def set_in_script(variable: str, run: Run, tables: Tables) -> Line | None:
    """Return the line that puts *variable* into ``os.environ``, in the files of the training that were seen."""
    sites = [facts.text("site") or "" for facts in run.ranks[0].facts.family("parameters").values()]
    seen = [line for site in sites if site and (line := tables.place(site)) is not None]
    for file in dict.fromkeys(line.file for line in (*seen, *(hot.line for hot in tables.lines))):
        for number, text in enumerate(linecache.getlines(os.path.join(run.project, file)), 1):
            if variable in text and "environ" in text and not text.lstrip().startswith("#"):
                return Line(file, number, "", text.strip())
    return None


def trains_on_cpu(run: Run) -> bool:
    """Return whether all parameters whose device is known are on the CPU."""
    devices = [facts.known.get("devices") for facts in run.ranks[0].facts.family("parameters").values()]
    return all(not isinstance(names, list) or set(names) <= {"cpu"} for names in devices)


def setting(key: str, value: Scalar, run: Run, tables: Tables) -> Setting:
    """Return how to give *key*, as ``TrainingArguments.logging_steps``, the *value* in this run."""
    owner, _, name = key.partition(".")
    made = [facts for facts in run.ranks[0].facts.family("configured").values() if facts.text("key") == owner]
    own = [facts for facts in made if facts.text("site") and not facts.text("library")]
    if len(own) == 1:
        line = tables.place(own[0].text("site") or "")
        if line is not None:
            return Setting(key, (SetKeyword(line.file, line.line, own[0].text("class") or owner, name, value),))
    if len(own) > 1:
        return Setting(key, (), f"set {key} to {value!r} in the call that makes it ({len(own)} lines make one)")
    return Setting(key, (), _through_library(made, key, value, run, tables))


def _through_library(made: Sequence[Facts], key: str, value: Scalar, run: Run, tables: Tables) -> str:
    """Return what to change where a library makes the configuration, or where it was not seen."""
    owner, _, name = key.partition(".")
    for facts in made:
        library = (facts.text("library") or "").replace("\\", "/")
        if _PARSER in library:
            at = _at(tables.place(facts.text("site") or ""))
            if _FROM_WORDS in library:
                return _pass_flag(f"--{name}", value, run)
            return f'set "{name}" to {value!r} in the file or dictionary that is read{at}'
    if made:
        return f"hand over {owner}({name}={value!r}): the library makes one of its own"
    return f"set {key} to {value!r} where it is made"


def _pass_flag(flag: str, value: Scalar, run: Run) -> str:
    command = run.facts.known.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    for n, word in enumerate(words):
        if word == flag and n + 1 < len(words):
            return f"start the command with {flag} {value} instead of {flag} {words[n + 1]}"
        if word.startswith(flag + "="):
            return f"start the command with {flag} {value} instead of {word}"
    return f"start the command with {flag} {value}"


def _at(line: Line | None) -> str:
    return f" at {line.file}:{line.line}" if line is not None else ""
