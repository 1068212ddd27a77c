"""The compiler's probes under other versions of torch, whose interpreters UNSTALL_OTHER_TORCH names.

Asked is what was heard, not what is found: that depends on how long things take; and that it is compiled as without us.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

import pytest
from compiled_loops import SCRIPTS, objections

from unstall import causes
from unstall.model.report import Job
from unstall.model.wire import Kind
from unstall.pipeline import RunOptions, run
from unstall.readers import recording
from unstall.testing.contract import marked_lines

VARIABLE = "UNSTALL_OTHER_TORCH"
PYTHONS = [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]
# Where any hook of an optimizer's step is there, versions before it skip a library's function in which a graph breaks and
# compile what it calls: the graphs are the same, and the break is not counted.
BREAKS_COUNTED = (2, 8)
RENAMED = {"recompile_limit": ("cache_size_limit", (2, 7))}
WITH_REASONS = (2, 6)  # the compiler tells why it compiles anew and where it breaks a graph since then
# by cause, whose planted training is run: the facts that are heard of, the version that first tells them, and the text in
# them that holds a marked line, "" where no line is in it
HEARD = {
    "recompile-storm": ("recompile", WITH_REASONS, ""),
    "graph-breaks": ("graph_break", WITH_REASONS, "at"),
    "recompile-limit": ("compile_limit", WITH_REASONS, ""),
    "compile-in-loop": ("compile", (2, 0), "site"),
    "debug-backend": ("compile", (2, 0), "site"),
    "cold-cache": ("fusion", WITH_REASONS, ""),  # of Inductor
}

pytestmark = pytest.mark.slow


@functools.cache
def version_of(python: str) -> tuple[int, ...]:
    said = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    assert said.returncode == 0, f"{python}: {said.stderr}"
    return tuple(int(part) for part in said.stdout.split("+")[0].split(".")[:2])


each_python = pytest.mark.parametrize(
    "python",
    PYTHONS or [pytest.param("", marks=pytest.mark.skip(reason=f"{VARIABLE} names no interpreter with another torch"))],
)


def as_of(python: str, source: str) -> str:
    """Return *source* in the names that the torch of *python* knows."""
    for name, (earlier, since) in RENAMED.items():
        if version_of(python) < since:
            source = source.replace(name, earlier)
    return source


@each_python
@pytest.mark.parametrize("name", SCRIPTS)
def test_compiled_training_is_compiled_alike_under_the_recorder(python: str, name: str, tmp_path: Path) -> None:
    found = objections(SCRIPTS[name], "aot_eager", tmp_path, python)
    if version_of(python) < BREAKS_COUNTED:
        found = [one for one in found if not one.startswith("breaks:")]
    assert found == []


@each_python
@pytest.mark.parametrize("name", HEARD)
def test_what_the_compiler_says_of_a_planted_fault_is_heard(python: str, name: str, tmp_path: Path) -> None:
    planted = next(cause for cause in causes.load() if cause.id == f"compiler/{name}").planted[0]
    script = tmp_path / "train.py"
    script.write_text(as_of(python, planted.before))
    command = (python, str(script))
    report = run(list(command), RunOptions(command=command, out=tmp_path / "recording", job=Job()))
    assert report.exit_code == 0
    assert not [warning for warning in report.warnings if "probe" in warning], "no probe switched itself off"
    (rank,) = recording.read(tmp_path / "recording").ranks
    windows = [rank.events.name_of(n).partition("|")[0] for n in rank.events.of(Kind.COMPILE)]
    assert windows and all(windows), "each window has the compiler's own number, to which reasons are told"
    family, since, place = HEARD[name]
    if version_of(python) < since:
        pytest.skip(f"it trained and no probe failed, but torch {version_of(python)} does not tell {family}")
    told = rank.facts.family(family)
    assert told
    if place:
        lines = [int((one.text(place) or "::").split(":")[1]) for one in told.values()]
        assert set(lines) & marked_lines(planted.before)
