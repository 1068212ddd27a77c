"""Runs a training with and without unstall, as a user would, and tells what came of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PATIENCE_S = 120.0  # for a training that takes seconds; the machine may be loaded
# The training's Python is the first on PATH: let it be the one that runs the tests.
ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),
    "OMP_NUM_THREADS": "1",
}
# A traceback that ends in our code; those of the training's own errors pass through our wrappers.
OURS_RAISED = re.compile(r'File "[^"]*/unstall/[^"]*", line .*\n(?!    return original\()    .*\n(?:    .*\n)?(?=\S)')


@dataclass
class Watched:
    """What `unstall run` of a training left.

    Attributes:
        out, err: of training and unstall together; the report is on err.
        report: the JSON report; empty where there is none.
    """

    code: int
    out: str
    err: str
    folder: Path
    report: dict = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return self.report["run"]["steps"]

    @property
    def warnings(self) -> str:
        return "\n".join(self.report["warnings"])

    def ledger(self, rank: int = 0) -> dict[str, int]:
        """Return the ns of each phase of *rank*."""
        phases: dict[str, int] = {}
        for entry in self.report["ledger"]:
            if entry["rank"] == rank:
                phases[entry["phase"]] = phases.get(entry["phase"], 0) + entry["ns"]
        return phases


class Bench:
    """A folder with a script in it, run plainly or under unstall."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recording = folder / "recording"

    def write(self, source: str, name: str = "train.py") -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(source))
        return path

    def plain(self, *command: str, env: dict[str, str] | None = None, **given: object) -> subprocess.CompletedProcess:
        return subprocess.run(
            command, cwd=self.folder, env={**ENVIRONMENT, **(env or {})}, capture_output=True, text=True,
            timeout=PATIENCE_S, **given,
        )  # fmt: skip

    def argv(self, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        ours = ["--out", str(self.recording), "--json", str(self.folder / "report.json")]
        return [sys.executable, "-m", "unstall", "run", *ours, *options, *command]

    def watched(
        self, *command: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None, **given: object
    ) -> Watched:
        """Run *command* under unstall to its end."""
        done = self.plain(*self.argv(*command, options=options), env=env, **given)
        return self.left(done.returncode, done.stdout, done.stderr)

    def left(self, code: int, out: str, err: str) -> Watched:
        assert not OURS_RAISED.search(re.sub(r"^\[rank\d+\]: ?", "", err, flags=re.M)), err
        report = self.folder / "report.json"
        return Watched(code, out, err, self.recording, json.loads(report.read_text()) if report.exists() else {})

    def start(self, *command: str, env: dict[str, str] | None = None) -> subprocess.Popen:
        """Start *command* under unstall, in a session of its own, to be signalled."""
        return subprocess.Popen(
            self.argv(*command), cwd=self.folder, env={**ENVIRONMENT, **(env or {})}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def wait_for(self, name: str, running: subprocess.Popen) -> str:
        """Return what the training wrote to *name*, once it has."""
        until = time.monotonic() + PATIENCE_S
        path = self.folder / name
        while not (path.exists() and path.read_text().endswith("\n")):
            assert time.monotonic() < until and running.poll() is None, f"{name} did not come"
            time.sleep(0.02)
        return path.read_text()

    @staticmethod
    def group_is_gone(session: int) -> bool:
        """Return whether no process of *session* is left; what is left is killed."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                os.killpg(session, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        os.killpg(session, signal.SIGKILL)
        return False


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
