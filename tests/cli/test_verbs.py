"""What each verb asks of the pipeline, prints where, and returns."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from unstall.cli import main
from unstall.model.errors import NothingRecorded
from unstall.model.report import Job


@pytest.fixture
def codec(monkeypatch: pytest.MonkeyPatch):
    """Stand in for the codec: these tests are about files, not about the format."""
    module = types.ModuleType("unstall.model.codec")
    vars(module)["report_to_json"] = lambda report: {"format": "unstall-report/1", "exit_code": report.exit_code}
    monkeypatch.setitem(sys.modules, "unstall.model.codec", module)


@pytest.mark.parametrize(
    "words",
    [
        ["train.py", "--steps", "9", "-v", "--quiet", "--", "x", "--help"],
        ["python", "-m", "pkg.train", "--lr", "3"],
        ["-m", "pkg.train", "--lr", "3", "--json", "mine.json"],
        ["torchrun", "--nproc-per-node", "2", "train.py"],
    ],
)
def test_what_stands_after_the_first_word_belongs_to_the_command(pipeline, words):
    assert main(["run", "--steps", "5", *words]) == 0
    assert pipeline.argv == words
    assert pipeline.options.command == tuple(words)
    assert pipeline.options.steps == 5


def test_every_option_reaches_the_pipeline(pipeline, tmp_path):
    given = ["--steps", "200", "--warmup", "3", "--seconds", "60.5", "--job-hours", "60", "--price-per-hour", "2.5"]
    assert main(["run", *given, "--out", str(tmp_path), "train.py"]) == 0
    options = pipeline.options
    assert (options.steps, options.warmup, options.seconds) == (200, 3, 60.5)
    assert Path(options.out) == tmp_path
    assert options.job == Job(None, 60.0, 2.5)


def test_what_is_not_given_is_left_to_the_pipeline(pipeline):
    assert main(["run", "train.py"]) == 0
    options = pipeline.options
    assert (options.steps, options.warmup, options.seconds, options.out, options.job) == (None, None, None, None, Job())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--stepz", "5", "train.py"], "--stepz"),
        (["--stepz=5", "train.py"], "--steps"),
        (["-y", "train.py"], "-y"),
        (["-c", "print(1)"], "unstall run python -c 'print(1)'"),
        (["-u", "train.py", "--lr", "1"], "unstall run python -u train.py --lr 1"),
        (["-m"], "-m needs the name of a module"),
        ([], "COMMAND"),
        (["--steps", "0", "train.py"], "--steps"),
        (["--seconds", "0", "train.py"], "--seconds"),
        (["--quiet", "-v", "train.py"], "contradict"),
        (["--job-steps", "5", "--job-hours", "5", "train.py"], "give one of them"),
        (["--price-per-hour", "5", "train.py"], "needs the length of the job"),
    ],
)
def test_a_slip_is_named_and_nothing_is_run(pipeline, capsys, given, said):
    assert main(["run", *given]) == 2
    assert said in capsys.readouterr().err
    assert pipeline.options is None


def test_the_report_goes_to_stderr_and_leaves_stdout_to_the_training(pipeline, capsys):
    main(["run", "train.py"])
    out, err = capsys.readouterr()
    assert out == ""
    assert "No step was found." in err


@pytest.mark.parametrize("code, is_said", [(2, True), (1, False), (0, False)])
def test_an_option_of_ours_behind_the_command_is_told_where_the_training_fails_over_it(
    pipeline, make_report, capsys, code, is_said
):
    pipeline.report = make_report(exit_code=code)
    main(["run", "train.py", "--lr", "3", "--job-hours=60"])
    assert ("Write unstall run --job-hours ... train.py" in capsys.readouterr().err) is is_said


def test_quiet_prints_nothing(pipeline, capsys):
    main(["run", "--quiet", "train.py"])
    assert capsys.readouterr() == ("", "")
    assert pipeline.options.status is None


@pytest.mark.parametrize("code", [0, 3, 137])
def test_the_exit_code_is_the_one_of_the_report_and_the_json_is_written_all_the_same(
    pipeline, codec, make_report, tmp_path, code
):
    pipeline.report = make_report(code)
    assert main(["run", "--json", str(tmp_path / "report.json"), "train.py"]) == code
    assert json.loads((tmp_path / "report.json").read_text())["exit_code"] == code
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_json_file_that_cannot_be_written_is_said_before_the_training(pipeline, tmp_path, capsys):
    assert main(["run", "--json", str(tmp_path / "nowhere" / "report.json"), "train.py"]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main(["run", "--json", str(tmp_path), "train.py"]) == 2
    assert pipeline.options is None


def test_an_error_of_the_user_has_its_own_exit_code_and_no_traceback(pipeline, capsys):
    pipeline.report = NothingRecorded("no process reported a training.\nIs torch imported?")
    assert main(["run", "true"]) == NothingRecorded.exit_code
    err = capsys.readouterr().err
    assert err == "unstall: no process reported a training.\nIs torch imported?\n"


def test_an_error_of_ours_is_not_hidden(pipeline):
    pipeline.report = AssertionError("ours")
    with pytest.raises(AssertionError, match="ours"):
        main(["run", "true"])


def test_an_interrupt_ends_without_a_traceback(pipeline, capsys):
    pipeline.report = KeyboardInterrupt()
    assert main(["run", "train.py"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_diagnose_prints_the_report_to_stdout_and_succeeds_though_the_training_failed(pipeline, make_report, capsys):
    pipeline.report = make_report(1)
    assert main(["diagnose", "somewhere", "--job-steps", "1000"]) == 0
    assert "ended with exit code 1" in capsys.readouterr().out
    path, job = pipeline.diagnosed
    assert (Path(path), job) == (Path("somewhere"), Job(1000, None, None))


def test_diagnose_says_what_is_no_recording(pipeline, capsys):
    pipeline.report = NothingRecorded("somewhere: no recording.")
    assert main(["diagnose", "somewhere"]) == 2
    assert capsys.readouterr() == ("", "unstall: somewhere: no recording.\n")


def test_a_page_in_a_terminal_that_has_only_ascii_is_ascii(pipeline, monkeypatch, tmp_path):
    with (tmp_path / "err").open("w", encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        main(["run", "train.py"])
    assert "unstall | train.py" in (tmp_path / "err").read_text(encoding="ascii")
