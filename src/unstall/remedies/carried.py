"""Carry out a plan in every process of a trial, each edit once the module of what it changes has been imported.

Runs inside the training process: standard library only.  An edit that is met, or that cannot be carried out, leaves a
file in the recording, since a process may be killed at any moment: ``met-N-PID`` and ``unmet-N-PID`` (with the reason),
N being the edit's place in the plan.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from types import ModuleType

from unstall.model.codec import plan_from_json
from unstall.model.remedy import Edit, SetEnvironment
from unstall.remedies import override

When = Callable[[str, Callable[[ModuleType], None]], None]


def carry_out(plan: str, recording: str, when: When) -> None:
    """Arrange for the edits of the plan in the file *plan*.

    Args:
        when: ``when(name, callback)`` calls back after the import of *name*.
    Raises:
        OSError, NotAPlan: When the plan cannot be read.
    """
    with open(plan, encoding="utf-8") as file:
        remedies = plan_from_json(json.load(file))
    edits = [edit for remedy in remedies for edit in remedy.edits]
    for number, edit in reversed(list(enumerate(edits))):  # the wrapper put on last is called first
        if not isinstance(edit, SetEnvironment):
            when(override.awaited(edit), _installing(number, edit, recording))


def _installing(number: int, edit: Edit, recording: str) -> Callable[[ModuleType], None]:
    met_in: set[int] = set()  # pids: a forked child has the parent's

    def met(_: int) -> None:
        pid = os.getpid()
        if pid not in met_in:
            met_in.add(pid)
            _note(recording, f"met-{number}-{pid}", "")

    def install(_: ModuleType) -> None:
        try:
            override.apply([edit], met)
        except Exception as error:  # the trial tells; the training goes on as it is
            _note(recording, f"unmet-{number}-{os.getpid()}", f"{type(error).__name__}: {error}")

    return install


def _note(recording: str, name: str, text: str) -> None:
    try:
        with open(os.path.join(recording, name), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        pass
