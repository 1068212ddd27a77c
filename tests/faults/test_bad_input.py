"""What cannot be recorded, wholly or in part: one clear message, the training's own output and exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAINS = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    loss = model(torch.randn(16, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item().hex())
sys.exit(4)
"""


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        pytest.param((sys.executable, "-I", "train.py"), 4, "python -I leaves out PYTHONPATH", marks=pytest.mark.slow),
        (("sh", "-c", "echo no training; exit 6"), 6, "no Python process of the command reported back"),
        ((sys.executable, "-c", "print('no training'); raise SystemExit(6)"), 6, "none imported torch"),
        ((sys.executable, "-c", "import torch; raise SystemExit(6)"), 6, "none made a training step"),
        ((sys.executable, "-c", "import no_such_module"), 1, "none imported torch"),
        (("sh", "-c", "kill -9 $$"), 128 + 9, "no Python process of the command reported back"),
    ],
)
def test_where_nothing_trains_it_is_said_once_why(bench, command, code, said):
    bench.write(TRAINS)
    left = bench.watched(*command)
    assert left.code == left.report["exit_code"] == code
    assert left.err.count(said) == 1 and said in left.warnings
    assert left.steps == 0
    if "echo" in str(command) or "print" in str(command):
        assert left.out == "no training\n"


def test_a_python_without_torch_is_told_from_one_that_trains_nothing(bench):
    bench.write("import sys\nsys.modules['torch'] = None\nimport torch\n")
    left = bench.watched("train.py")
    assert left.code == 1
    assert "ModuleNotFoundError" in left.err or "ImportError" in left.err  # the training's own
    assert f"{os.sep}python" in left.warnings  # which one it was
    assert "Check that the command trains, and that its Python environment has torch" in left.warnings.replace(
        "\n", " "
    )


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 20 MB of which 200 kB are free while the training runs."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(disk)], capture_output=True)
    if mount.returncode:
        pytest.skip("no right to mount a file system")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_disk_that_becomes_full_ends_the_recording_and_not_the_training(bench, small_disk):
    bench.recording = small_disk / "recording"
    fill = f"""
    if step == 9:
        try:
            with open("{small_disk}/full", "wb", buffering=0) as file:
                while True: file.write(b"x" * 4096)
        except OSError: pass
    __import__("time").sleep(0.02)
"""
    bench.write(TRAINS.replace("    optimizer.step()\n", "    optimizer.step()" + fill))
    plain = bench.plain(sys.executable, "train.py")
    (small_disk / "full").unlink()
    left = bench.watched("train.py")
    assert left.out == plain.stdout
    assert left.code == left.report["exit_code"] == 4
    assert left.err.count("the recording ends here, the training goes on: No space left on device") == 1
    assert "the recording of the training ends early: No space left on device" in left.warnings
    assert "switched itself off" not in left.err and "without saying so" not in left.warnings
    assert 5 <= left.steps < 30


def test_a_full_disk_is_said_before_the_training_starts(bench, small_disk):
    with open(small_disk / "full", "wb") as file:
        file.write(b"x" * (15 << 20))
    bench.recording = small_disk / "recording"
    bench.write("print('started')")
    left = bench.watched("train.py")
    assert left.code == 2 and left.out == ""
    assert "The disk (or your quota on it) is full" in left.err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a right to mount")
@pytest.mark.slow
def test_a_read_only_working_folder_is_no_hindrance(bench, tmp_path):
    bench.write(TRAINS)
    outside = tmp_path.parent / f"{tmp_path.name}-out"
    outside.mkdir()
    bound = subprocess.run(["mount", "--bind", "-o", "ro", str(tmp_path), str(tmp_path)], capture_output=True)
    if bound.returncode:
        pytest.skip("no right to mount a file system")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(tmp_path)], check=True)
        command = [sys.executable, "-m", "unstall", "run", "train.py"]
        done = bench.plain(*command, env={"XDG_STATE_HOME": str(outside)})
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
    assert done.returncode == 4
    assert "30 steps in" in done.stderr


@pytest.mark.slow
def test_a_recording_folder_that_is_removed_meanwhile_costs_the_report_only(bench):
    remove = f"    if step == 9: __import__('shutil').rmtree({str(bench.recording)!r})\n"
    bench.write(TRAINS.replace("    optimizer.step()\n", "    optimizer.step()\n" + remove))
    plain = bench.plain(sys.executable, "train.py", env={"PYTHONDONTWRITEBYTECODE": "1"})
    bench.recording.mkdir()
    left = bench.watched("train.py")
    assert left.code == 4
    assert plain.stdout in ("", left.out)
    assert "is not a recording" in left.err


@pytest.mark.slow
def test_a_training_that_closes_its_stderr_is_recorded(bench):
    bench.write("import sys\nsys.stderr = None\n" + TRAINS)
    assert bench.watched("train.py").steps == 30
