"""unstall in an environment of its own, without torch (as pipx makes it), records a training of another environment."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unstall

TRAINS = """
import sys, torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    loss = model(torch.randn(16, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(sys.executable, any("msgspec" in name for name in sys.modules))
"""


def needed(name: str) -> set[str]:
    """Return *name* and the distributions that it needs without extras, as far as they are installed."""
    found, pending = {name}, [name]
    while pending:
        for wanted in importlib.metadata.requires(pending.pop()) or ():
            other = re.split(r"[ ;<>=!~\[(]", wanted)[0].lower()
            if "extra ==" not in wanted and other not in found:
                try:
                    importlib.metadata.distribution(other)
                except importlib.metadata.PackageNotFoundError:  # for another system, or another Python
                    continue
                found.add(other)
                pending.append(other)
    return found


@pytest.fixture(scope="module")
def python_of_unstall(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has unstall and what it needs, and no torch; made of links, offline."""
    folder: Path = tmp_path_factory.mktemp("tool")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in needed("unstall") - {"unstall"}:
        for file in importlib.metadata.distribution(name).files or ():
            top, source = file.parts[0], Path(str(file.locate()))
            if top == "..":  # a program: py-spy
                if source.parent.name == "bin" and not (folder / "bin" / source.name).exists():
                    (folder / "bin" / source.name).symlink_to(source.resolve())
            elif not (site / top).exists():
                (site / top).symlink_to(source.parents[len(file.parts) - 2] if len(file.parts) > 1 else source)
    (site / "unstall").symlink_to(Path(unstall.__file__).parent)
    python = folder / "bin" / "python"
    torch = subprocess.run([str(python), "-c", "import unstall, torch"], capture_output=True, text=True, check=False)
    assert "No module named 'torch'" in torch.stderr, torch.stderr
    return python


def run(python: Path, folder: Path, path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run *command* under the unstall of *python*, with the Python in *path* the first on PATH."""
    return subprocess.run(
        [str(python), "-m", "unstall", "run", "--out", str(folder / "recording"), *command], cwd=folder,
        env={**os.environ, "PATH": f"{path}{os.pathsep}{os.environ.get('PATH', os.defpath)}"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_trainings_own_environment_trains(python_of_unstall: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    left = run(python_of_unstall, tmp_path, Path(sys.executable).parent, "train.py")
    assert left.returncode == 0, left.stderr
    environment, took_ours = left.stdout.split()
    assert Path(environment).parent == Path(sys.executable).parent and took_ours == "False"
    assert "30 steps in" in left.stderr and "switched itself off" not in left.stderr


@pytest.mark.slow
def test_a_training_whose_python_is_named_trains_with_it(python_of_unstall: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    left = run(python_of_unstall, tmp_path, python_of_unstall.parent, sys.executable, "train.py")
    assert left.returncode == 0, left.stderr
    assert "30 steps in" in left.stderr


def test_where_no_environment_with_torch_is_active_it_is_said_which_python_ran(
    python_of_unstall: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    left = run(python_of_unstall, tmp_path, python_of_unstall.parent, "train.py")
    assert left.returncode == 1
    said = " ".join(left.stderr.split())
    assert "none imported torch" in said
    assert python_of_unstall.parent.parent.name in said.replace(" ", "")
    assert "another Python is named so: unstall run /path/to/python train.py" in said
