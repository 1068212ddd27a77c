"""Trials of real trainings: edits are in force and met, what fails is told, and a fix ends in a patch that holds."""

import os
import subprocess
import sys

import pytest

from unstall.launch.workspace import Workspace, prepare
from unstall.model.remedy import Decorate, Named, RemoveCall, SetKeyword
from unstall.model.trial import Verdict
from unstall.pipeline._asked import FixOptions
from unstall.pipeline.fix import fix
from unstall.pipeline.trial import Ask, Bench

SCRIPT = """\
import gc
import sys
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = [[n] for n in range(400_000)]
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    gc.collect()
with open("done.txt", "w") as file:
    file.write(str(step))
if len(sys.argv) > 2:
    raise ValueError("as asked")
"""
COLLECT = RemoveCall("train.py", 13, "gc.collect")


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Return what makes a bench of ``train.py ARGS`` in a copy of its folder."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(project)

    def make(*args):
        space = prepare("copy", project, tmp_path / "state", [], [])
        return Bench(("train.py", *args), tmp_path / "state" / "trials", space)

    return make


def test_an_edit_is_met_where_its_call_is_made_and_missed_where_it_is_not(bench):
    made = bench("12").make(Ask(edits=(COLLECT,), timed=False))
    assert not made.error and made.missed == () and made.end_S.size == 12
    elsewhere = SetKeyword("train.py", 7, "torch.optim.Adam", "fused", True)
    other = bench("12").make(Ask(edits=(elsewhere,), timed=False))
    assert other.error or other.missed == (0,)


def test_the_forward_of_a_class_of_the_script_gets_a_decorator(tmp_path, monkeypatch):
    body = "class Net(torch.nn.Linear):\n    def forward(self, x):\n        return super().forward(x).square()\n"
    loop = SCRIPT.replace("model = torch.nn.Linear(8, 8)", body + "model = Net(8, 8)").replace("    gc.collect()\n", "")
    (tmp_path / "train.py").write_text(loop)
    monkeypatch.chdir(tmp_path)
    half = Decorate("train.py", 7, "forward", "torch.autocast", ("cpu",), (("dtype", Named("torch.bfloat16")),))
    plain, decorated = (
        Bench(("train.py", "9"), tmp_path / name, Workspace(tmp_path, None)).make(Ask(edits=edits, timed=False))
        for name, edits in (("plain", ()), ("half", (half,)))
    )
    assert not decorated.error and decorated.missed == ()
    assert decorated.captured.losses_L == pytest.approx(plain.captured.losses_L, rel=0.05)
    assert (decorated.captured.losses_L != plain.captured.losses_L).any()


def test_a_trial_stops_at_its_step_and_writes_nothing_beside_the_script(bench):
    made = bench("500").make(Ask(steps=9, timed=False))
    assert made.stopped and made.end_S.size == 9 and made.captured.losses_L.size == 9
    assert os.listdir() == ["train.py"]


def test_a_trial_that_fails_says_what_the_training_said(bench):
    made = bench("6", "fail").make(Ask(timed=False))
    assert "exit code 1" in made.error and "ValueError: as asked" in made.error
    assert made.end_S.size == 6


def test_a_trial_that_does_not_end_is_ended(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("import time\nimport torch\ntime.sleep(600)\n")
    monkeypatch.chdir(tmp_path)
    bench = Bench(("train.py",), tmp_path / "trials", Workspace(tmp_path, None))
    made = bench.make(Ask(limit_s=6.0, timed=False))
    assert "was ended" in made.error and made.wall_ns < 60e9


@pytest.mark.slow
def test_a_fix_ends_in_a_patch_with_which_the_script_does_the_same(bench, tmp_path, capsys):
    space = bench("60").workspace
    result = fix(FixOptions(("train.py", "60"), budget_s=240.0, out=tmp_path / "fix"))
    proof = next(proof for proof in result.proofs if proof.cause == "host/collecting-garbage")
    assert proof.verdict is Verdict.FASTER and proof.ratio is not None and proof.ratio.low > 1.5
    assert (space.project / "train.py").read_text() == SCRIPT
    subprocess.run(["git", "apply", "unstall.patch"], check=True)
    assert "gc.collect()" not in (space.project / "train.py").read_text()
    subprocess.run([sys.executable, "train.py", "5"], check=True)
