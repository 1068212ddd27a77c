"""What `unstall fix` asks of the pipeline, prints where, and returns."""

from __future__ import annotations

import io
import json
import sys
import types
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fixes import EVERYTHING, INTERRUPTED, NOTHING, NOTHING_PROVED, ONE_KEPT, OUT_OF_TIME, TRAINING_FAILED

from unstall.cli import main
from unstall.cli._progress import ProgressLine, line
from unstall.model.errors import UnstallError
from unstall.model.remedy import Safety
from unstall.model.report import Job
from unstall.model.trial import Fixed, Ratio, Verdict
from unstall.pipeline._asked import BY_USER, KEEPS_TRAINING, FixOptions, Progress


@dataclass
class Fixing:
    """Stands in for `unstall.pipeline.fix`: *result* is what it returns, or raises; *says* is said before."""

    result: Fixed | BaseException = ONE_KEPT
    says: list[Progress] = field(default_factory=list)
    options: FixOptions | None = None

    def fix(self, options: FixOptions) -> Fixed:
        self.options = options
        for progress in self.says if options.progress else ():
            options.progress(progress)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


@pytest.fixture
def fixing(monkeypatch, tmp_path):
    stand_in = Fixing()
    module = types.ModuleType("unstall.pipeline.fix")
    vars(module)["fix"] = stand_in.fix
    monkeypatch.setitem(sys.modules, "unstall.pipeline.fix", module)
    monkeypatch.chdir(tmp_path)
    return stand_in


def test_what_is_not_given_has_its_documented_default(fixing):
    assert main(["fix", "train.py", "--budget", "1h"]) == 0
    options = fixing.options
    assert replace(options, progress=None) == FixOptions(("train.py", "--budget", "1h"))
    assert (options.budget_s, options.patch, options.workdir) == (900.0, Path("unstall.patch"), "copy")
    assert Safety.CHANGES_TRAINING not in options.allow


def test_every_option_reaches_the_pipeline(fixing, tmp_path):
    (tmp_path / "data").mkdir()
    words = (
        "--steps 9 --budget 90s --patch a.patch --apply --allow changes-training --only starved-loader --skip io/logging-in-loop "
        "--workdir same --share data --outputs runs --bounds --pairs 6 --seed 7 --out state --job-hours 60 --price-per-hour 2.5"
    )
    assert main(["fix", *words.split(), "torchrun", "train.py"]) == 0
    assert replace(fixing.options, progress=None) == FixOptions(
        command=("torchrun", "train.py"),
        steps=9,
        budget_s=90.0,
        patch=Path("a.patch"),
        allow=KEEPS_TRAINING | {Safety.CHANGES_TRAINING},
        only=("data/starved-loader",),
        skip=("io/logging-in-loop",),
        job=Job(None, 60.0, 2.5),
        workdir="same",
        share=(Path("data"),),
        outputs=(Path("runs"),),
        out=Path("state"),
        seed=7,
        most_pairs=6,
        apply=True,
        bounds=True,
    )


@pytest.mark.parametrize(
    ("given", "seconds"), [("90s", 90), ("15m", 900), ("15min", 900), ("1h", 3600), ("1h30m", 5400), ("0.5 H", 1800)]
)
def test_a_budget_is_a_time_with_its_unit(fixing, given, seconds):
    assert main(["fix", "--budget", given, "train.py"]) == 0
    assert fixing.options.budget_s == seconds


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--budget", "15", "train.py"], "90s, 15m, 1h"),
        (["--budget", "0s", "train.py"], "90s, 15m, 1h"),
        (["--budget", "-5m", "train.py"], "90s, 15m, 1h"),
        (["--budget", "m15", "train.py"], "90s, 15m, 1h"),
        (["--budgett", "15m", "train.py"], "--budget"),
        (["-u", "train.py"], "unstall fix python -u train.py"),
        (["-m"], "unstall fix -m pkg.train"),
        ([], "COMMAND"),
        (["--only", "starved-loadr", "train.py"], "Did you mean data/starved-loader"),
        (["--skip", "nothing-like-it-at-all", "train.py"], "no cause of this name"),
        (["--only", "starved-loader", "--skip", "data/starved-loader", "train.py"], "both name data/starved-loader"),
        (["--share", "nowhere", "train.py"], "no such folder"),
        (["--allow", "anything", "train.py"], "changes-training"),
        (["--resume", "a", "--out", "b"], "leave --out out"),
        (["-q", "-v", "train.py"], "contradict"),
        (["--price-per-hour", "5", "train.py"], "needs the length of the job"),
        (["--patch", "no/such.patch", "train.py"], "no such folder"),
        (["--json", "no/such.json", "train.py"], "no such folder"),
        (["--patch", "mine.diff", "train.py"], "not overwritten"),
    ],
)
def test_a_slip_is_named_and_nothing_is_run(fixing, tmp_path, capsys, given, said):
    (tmp_path / "mine.diff").write_text("diff --git a/x b/x\n")
    assert main(["fix", *given]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert fixing.options is None
    assert (tmp_path / "mine.diff").read_text() == "diff --git a/x b/x\n"


def test_a_fix_is_resumed_without_its_command(fixing, tmp_path):
    assert main(["fix", "--resume", "state"]) == 0
    assert fixing.options.resume == Path("state")
    assert fixing.options.command == ()


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (ONE_KEPT, 0),
        (NOTHING, 0),
        (NOTHING_PROVED, 0),
        (OUT_OF_TIME, 0),
        (INTERRUPTED, 130),
        (TRAINING_FAILED, 1),
        (replace(TRAINING_FAILED, first=replace(TRAINING_FAILED.first, exit_code=139)), 139),
        (replace(NOTHING, first=replace(NOTHING.first, exit_code=-15, stopped_by_us=True)), 0),  # ended by us
        (UnstallError("the command cannot be started"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_exit_code_tells_what_came_of_it(fixing, result, code):
    fixing.result = result
    assert main(["fix", "train.py"]) == code


def test_the_page_goes_to_stdout_also_where_the_user_ended_it(fixing, capsys):
    assert INTERRUPTED.interrupted.startswith(BY_USER)
    fixing.result = INTERRUPTED
    main(["fix", "train.py"])
    out, err = capsys.readouterr()
    assert "num_workers=3" in out and "git apply unstall.patch" in out
    assert err == ""


def test_quiet_prints_nothing_and_the_json_is_written_all_the_same(fixing, tmp_path, capsys):
    fixing.result = replace(EVERYTHING, patch="caf\udce9")  # a byte that is no UTF-8, of a file in another encoding
    assert main(["fix", "-q", "--json", "fix.json", "train.py"]) == 0
    assert capsys.readouterr() == ("", "")
    assert fixing.options.progress is None
    record = json.loads((tmp_path / "fix.json").read_text())
    assert record["format"] == "unstall-fix/1"
    assert record["patch"] == "caf\udce9"
    assert [path.name for path in tmp_path.iterdir()] == ["fix.json"]


RATIO = Ratio(1.34, 1.20, 1.51, 3)
WORK = [
    Progress("recording the run as it is", 0, 0, None, 0.0, 900.0),
    Progress("num_workers=3", 0, 8, None, 60.0, 900.0),
    Progress("num_workers=3", 3, 8, RATIO, 180.0, 900.0),
    Progress("num_workers=3", 4, 4, RATIO, 200.0, 900.0, Verdict.FASTER),
    Progress("channels_last", 0, 8, None, 200.0, 900.0),
]


def test_without_a_terminal_progress_is_a_line_a_verdict(fixing, capsys):
    fixing.says = WORK
    main(["fix", "train.py"])
    assert capsys.readouterr().err.splitlines() == [
        "unstall: recording the run as it is",
        "unstall: num_workers=3: faster, 1.34x (95 % interval 1.20-1.51, 3 pairs), 12 min left",
    ]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_is_rewritten_and_a_verdict_stays(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    shown = ProgressLine(stream)
    for progress in WORK:
        shown(progress)
    shown.clear()
    rewritten = stream.getvalue().split("\r\x1b[2K")
    stays = [part for part in rewritten if part.endswith("\n")]
    assert rewritten[1] == "unstall: 15 min left · recording the run as it is"
    assert rewritten[3] == "unstall: 12 min left · pair 4 of 8 · num_workers…"
    assert len(stays) == 1 and stays[0].startswith("unstall: num_workers=3: faster")
    assert rewritten[-1] == ""
    assert stream.getvalue().count("\n") == 1


def test_while_a_remedy_is_screened_the_line_counts_blocks():
    progress = Progress("2 intra-op threads", 3, 48, None, 0.0, 900.0, unit="screening block")
    assert line(progress, 80) == "unstall: 15 min left · screening block 4 of 48 · 2 intra-op threads"


def test_clearing_writes_nothing_where_nothing_is_shown():
    stream = Terminal()
    ProgressLine(stream).clear()
    assert stream.getvalue() == ""


def test_a_command_that_fails_before_it_trains_gives_its_own_code_and_its_last_words(tmp_path, monkeypatch, capsys):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "broken.py").write_text("import sys\nprint('no such data set')\nsys.exit(3)\n")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main(["fix", sys.executable, "broken.py"]) == 3
    out, err = capsys.readouterr()
    assert out == "" and err.endswith("no such data set\n")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["broken.py"]
