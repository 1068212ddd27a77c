"""What the compiler's probes hear under other versions of torch, whose interpreters UNSTALL_OTHER_TORCH names.

Asked is what was heard, not what is found: that depends on how long things take.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

import pytest

from unstall import causes
from unstall.model.report import Job
from unstall.model.wire import Kind
from unstall.pipeline import RunOptions, run
from unstall.readers import recording
from unstall.testing.contract import marked_lines

VARIABLE = "UNSTALL_OTHER_TORCH"
PYTHONS = [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]
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


@pytest.mark.parametrize(
    "python",
    PYTHONS or [pytest.param("", marks=pytest.mark.skip(reason=f"{VARIABLE} names no interpreter with another torch"))],
)
@pytest.mark.parametrize("name", HEARD)
def test_what_the_compiler_says_of_a_planted_fault_is_heard(python: str, name: str, tmp_path: Path) -> None:
    planted = next(cause for cause in causes.load() if cause.id == f"compiler/{name}").planted[0]
    script = tmp_path / "train.py"
    script.write_text(planted.before)
    command = (python, str(script))
    report = run(list(command), RunOptions(command=command, out=tmp_path / "recording", job=Job()))
    assert report.exit_code == 0
    assert not [warning for warning in report.warnings if "probe" in warning], "no probe switched itself off"
    (rank,) = recording.read(tmp_path / "recording").ranks
    assert len(rank.events.of(Kind.COMPILE)) > 0
    family, since, place = HEARD[name]
    if version_of(python) < since:
        pytest.skip(f"it trained and no probe failed, but torch {version_of(python)} does not tell {family}")
    told = rank.facts.family(family)
    assert told
    if place:
        lines = [int((one.text(place) or "::").split(":")[1]) for one in told.values()]
        assert set(lines) & marked_lines(planted.before)
