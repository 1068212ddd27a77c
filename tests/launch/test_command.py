"""What the user types becomes the argv of the training, or a message that says what to do."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from unstall.launch.command import alone, resolve, training_python, why_silent
from unstall.launch.redaction import redacted
from unstall.model.errors import UnstallError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('trains')\n")
    (tmp_path / "bin").mkdir()
    for name in ("python", "torchrun", "accelerate", "env"):
        program(tmp_path / "bin" / name)
    return tmp_path


@pytest.fixture
def env(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}/bin:/usr/bin:/bin"}


def program(path: Path, text: str = "#!/bin/sh\nexit 0\n") -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_script_is_run_by_the_python_on_path(folder: Path, env: dict[str, str]) -> None:
    command = resolve(["train.py", "--epochs", "3"], env)
    assert command.argv == (f"{folder}/bin/python", "train.py", "--epochs", "3")
    assert command.name == "train.py"


def test_a_leading_double_dash_is_dropped_and_later_ones_are_kept(folder: Path, env: dict[str, str]) -> None:
    assert resolve(["--", "train.py", "--", "x"], env).argv[1:] == ("train.py", "--", "x")


def test_a_module_is_run_by_the_python_on_path(folder: Path, env: dict[str, str]) -> None:
    command = resolve(["-m", "pkg.train", "-x"], env)
    assert command.argv == (f"{folder}/bin/python", "-m", "pkg.train", "-x")
    assert command.name == "pkg.train"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python", "-m", "pkg.train"], "pkg.train"),
        (["python", "train.py", "--lr", "1"], "train.py"),
        (["torchrun", "--nproc-per-node", "2", "train.py"], "train.py"),
        (["accelerate", "launch", "train.py"], "train.py"),
        (["env", "A=1", "python", "train.py"], "train.py"),
    ],
)
def test_any_program_on_path_is_run_as_it_was_typed(
    folder: Path, env: dict[str, str], words: list[str], name: str
) -> None:
    command = resolve(words, env)
    assert command.argv == tuple(words)
    assert command.name == name


def test_an_executable_shell_script_is_run_as_it_is(folder: Path, env: dict[str, str]) -> None:
    program(folder / "go.sh")
    assert resolve(["go.sh", "1"], env).argv == ("./go.sh", "1")
    assert resolve([f"{folder}/go.sh"], env).argv == (f"{folder}/go.sh",)


def test_a_shell_script_that_is_not_executable_is_run_by_the_shell_it_names(folder: Path, env: dict[str, str]) -> None:
    (folder / "plain.sh").write_text("exit 0\n")
    (folder / "of_bash.sh").write_text("#!/usr/bin/env bash\nexit 0\n")
    assert resolve(["plain.sh"], env).argv == ("sh", "plain.sh")
    assert resolve(["of_bash.sh"], env).argv == ("bash", "of_bash.sh")


def test_without_a_python_on_path_it_is_the_one_that_runs_unstall(folder: Path) -> None:
    (folder / "bin" / "python").unlink()
    assert training_python({"PATH": f"{folder}/bin"}) == sys.executable


def test_python3_serves_where_there_is_no_python(folder: Path) -> None:
    (folder / "bin" / "python").rename(folder / "bin" / "python3")
    assert training_python({"PATH": f"{folder}/bin"}) == f"{folder}/bin/python3"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "No command"),
        (["--"], "No command"),
        (["trian.py"], "Did you mean train.py?"),
        (["sub/none.py"], "There is no file sub/none.py"),
        (["no-such-program"], "not found on PATH"),
        (["-m"], "needs something after it"),
        (["--stesp", "3", "train.py"], "no option of unstall run"),
        (["-c", "print(1)"], "no option of unstall run"),
        (["study.ipynb"], "jupyter nbconvert --to script study.ipynb"),
        (["python", "study.ipynb"], "jupyter nbconvert"),
        (["bin"], "folder without __main__.py"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_to_do(
    folder: Path, env: dict[str, str], words: list[str], says: str
) -> None:
    with pytest.raises(UnstallError, match="(?s).*" + says.replace(".", r"\.").replace("?", r"\?")):
        resolve(words, env)


def test_a_notebook_given_to_a_script_is_its_own_business(folder: Path, env: dict[str, str]) -> None:
    assert resolve(["train.py", "study.ipynb"], env).argv[2] == "study.ipynb"


@pytest.mark.parametrize("option", ["-I", "-E", "-S", "-uE", "-OI"])
def test_an_interpreter_option_that_hides_the_probes_is_named(option: str) -> None:
    why = why_silent(["/usr/bin/python3", option, "train.py"])
    assert why is not None
    assert option in why


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "train.py", "-I"],
        ["python", "-u", "train.py"],
        ["python", "-mS", "-I"],
        ["python", "-WE", "x.py"],
        ["sh", "-E"],
    ],
)
def test_other_commands_are_not_said_to_hide_the_probes(argv: list[str]) -> None:
    assert why_silent(argv) is None


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--token", "abc", "train.py"], ("--token", "***", "train.py")),
        (["--api-key=abc"], ("--api-key=***",)),
        (["--hub_token", "abc"], ("--hub_token", "***")),
        (["--wandbApiKey", "abc"], ("--wandbApiKey", "***")),
        (["wandb.key=abc"], ("wandb.key=***",)),
        (["env", "WANDB_API_KEY=abc", "python"], ("env", "WANDB_API_KEY=***", "python")),
        (["sh", "-c", "HF_TOKEN=abc python t.py; x=1"], ("sh", "-c", "HF_TOKEN=*** python t.py; x=1")),
        (["s3://me:pw@host/x"], ("s3://***@host/x",)),
        (["AKIA" + "A1B2C3D4E5F6G7H8"], ("***",)),
        (["x=hf_" + "a1B2" * 6], ("x=***",)),
        (["--password", "--verbose"], ("--password", "--verbose")),
    ],
)
def test_what_looks_secret_is_not_shown(argv: list[str], shown: tuple[str, ...]) -> None:
    assert redacted(argv) == shown


@pytest.mark.parametrize("argv", [["--max-tokens", "5"], ["--tokenizer=gpt2"], ["lr=0.1"], ["--keys", "a"]])
def test_what_only_sounds_secret_is_shown(argv: list[str]) -> None:
    assert redacted(argv) == tuple(argv)


def test_the_home_folder_is_shortened() -> None:
    home = os.path.expanduser("~")
    assert redacted([f"{home}/data", f"--out={home}", f"{home}2/x"]) == ("~/data", "--out=~", f"{home}2/x")


@pytest.mark.parametrize(
    "words, one",
    [
        (
            "torchrun --nproc-per-node 2 train.py --nproc-per-node 8",
            "torchrun --nproc-per-node 1 train.py --nproc-per-node 8",
        ),
        (
            "/env/bin/torchrun --standalone --nproc_per_node=gpu train.py",
            "/env/bin/torchrun --standalone --nproc_per_node=1 train.py",
        ),
        (
            "python -m torch.distributed.run --nproc-per-node=4 -m pkg.train",
            "python -m torch.distributed.run --nproc-per-node=1 -m pkg.train",
        ),
        ("accelerate launch --num_processes 2 train.py", "accelerate launch --num_processes 1 train.py"),
        ("torchrun train.py --num_processes 2", None),
        ("train.py --nproc-per-node 2", None),
        ("torchrun --nproc-per-node", None),
        ("", None),
    ],
)
def test_one_rank_is_started_in_the_place_of_several_where_the_command_tells_how(words, one):
    found = alone(words.split())
    assert (None if found is None else " ".join(found)) == one
