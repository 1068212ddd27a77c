"""What the compiler's probes hear under other versions of torch, whose interpreters UNSTALL_OTHER_TORCH names."""

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
from unstall.testing.contract import first_fault, names_line

VARIABLE = "UNSTALL_OTHER_TORCH"
PYTHONS = [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]
WITH_REASONS = (2, 6)  # the compiler tells why it compiles anew and where it breaks a graph since then
# by cause, the planted trainings that Dynamo alone makes; and one that Inductor compiles
OF_DYNAMO = ("recompile-storm", "graph-breaks", "recompile-limit", "compile-in-loop", "debug-backend")
FROM_THE_START = ("compile-in-loop", "debug-backend")  # told by what every version with torch.compile says
OF_INDUCTOR = "cold-cache"

pytestmark = pytest.mark.slow
under_each = pytest.mark.parametrize(
    "python",
    PYTHONS or [pytest.param("", marks=pytest.mark.skip(reason=f"{VARIABLE} names no interpreter with another torch"))],
)


@functools.cache
def version_of(python: str) -> tuple[int, ...]:
    said = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    assert said.returncode == 0, f"{python}: {said.stderr}"
    return tuple(int(part) for part in said.stdout.split("+")[0].split(".")[:2])


def trained(python: str, name: str, folder: Path):
    """Return the planted training of the cause *name*, and the report of it under *python*."""
    cause = next(cause for cause in causes.load() if cause.id == f"compiler/{name}")
    script = folder / "train.py"
    script.write_text(cause.planted[0].before)
    command = [python, str(script)]
    report = run(command, RunOptions(command=tuple(command), out=folder / "recording", job=Job()))
    assert report.exit_code == 0
    assert not [warning for warning in report.warnings if "probe" in warning], "no probe switched itself off"
    return cause.planted[0].before, report


@under_each
@pytest.mark.parametrize("name", OF_DYNAMO)
def test_the_planted_fault_is_told_as_far_as_the_version_tells_it(python, name, tmp_path):
    source, report = trained(python, name, tmp_path)
    if version_of(python) < WITH_REASONS and name not in FROM_THE_START:
        pytest.skip(f"it trained and no probe failed, but torch {version_of(python)} does not tell more")
    first = first_fault(report)
    assert first is not None and first.cause == f"compiler/{name}"
    assert names_line(first, source)


@under_each
def test_windows_and_caches_of_inductor_are_heard_of(python, tmp_path):
    _, report = trained(python, OF_INDUCTOR, tmp_path)
    (rank,) = recording.read(Path(report.recording)).ranks
    assert len(rank.events.of(Kind.COMPILE)) > 0
    if version_of(python) >= WITH_REASONS:
        assert rank.facts.family("fusion") and "compile_cache" in rank.facts.known
