"""Run a script with edits in force in its own processes, as a trial will: the script on disk stays as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from unstall.model.codec import plan_from_json, plan_to_json
from unstall.model.remedy import Edit, Remedy, Safety
from unstall.remedies.override import apply, environment

PLAN = "UNSTALL_TEST_PLAN"  # environment variable: the file that holds the plan

# In a sitecustomize, not around the script: `__main__`, argv and the children of a loader are the script's own.
_BOOTSTRAP = "from unstall.testing.overridden import carry_out\ncarry_out()\n"


def output_of(script: Path, edits: Sequence[Edit] = (), timeout_s: float = 120.0) -> str:
    """Return what *script* prints with *edits* in force.

    Raises:
        RuntimeError: When it fails, with what it said on stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, **environment(edits)}
        if edits:
            plan = Path(folder, "plan.json")
            plan.write_text(json.dumps(plan_to_json([Remedy("test#override", "test", Safety.SAME_BITS, tuple(edits))])))
            Path(folder, "sitecustomize.py").write_text(_BOOTSTRAP)
            paths = (folder, variables.get("PYTHONPATH", ""))
            variables |= {PLAN: str(plan), "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        ended = subprocess.run(
            [sys.executable, str(script)],
            cwd=script.parent,
            env=variables,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    if ended.returncode:
        raise RuntimeError(f"{script.name} ended with exit code {ended.returncode}:\n{ended.stderr[-2000:]}")
    return ended.stdout


def carry_out() -> None:
    """Hold the plan's edits in force until this process ends."""
    for remedy in plan_from_json(json.loads(Path(os.environ[PLAN]).read_text())):
        apply(remedy.edits)
