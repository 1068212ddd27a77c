"""Where a run is recorded to, and what happens to what lies there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unstall.launch import recording
from unstall.model.errors import UnstallError


def live_launcher() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_runs_of_one_process_in_one_second_get_different_folders(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    folders = {recording.create("train.py", None, env) for _ in range(5)}
    assert len(folders) == 5
    assert all(f.parent == tmp_path.resolve() / "unstall" / "runs" for f in folders)
    assert all((f / part).is_dir() for f in folders for part in ("seen", "torch", "trains"))


def test_the_newest_twenty_are_kept(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    made = []
    for number in range(25):
        folder = recording.create("train.py", None, env)
        os.utime(folder, ns=(number * 10**9, number * 10**9))
        made.append(folder)
    left = set(made[0].parent.iterdir())
    assert left == set(made[5:])


def test_a_run_that_is_being_recorded_and_folders_of_others_are_not_removed(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    live = recording.create("live", None, env)
    foreign = live.parent / "mine"
    foreign.mkdir()
    other = live_launcher()
    try:
        recording.update(live, {"launcher_pid": other.pid})
        os.utime(live, ns=(0, 0))
        for _ in range(25):
            recording.create("train.py", None, env)
        assert live.exists()
        assert foreign.exists()
    finally:
        other.kill()
        other.wait()


def test_a_name_that_is_no_file_name_becomes_one(tmp_path: Path) -> None:
    folder = recording.create("../a b/ü*", None, {"XDG_STATE_HOME": str(tmp_path)})
    assert folder.parent == tmp_path.resolve() / "unstall" / "runs"


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UnstallError, match="no recording of unstall"):
        recording.create("train.py", tmp_path, {})
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_an_older_recording_is_replaced_and_other_files_in_it_stay(tmp_path: Path) -> None:
    out = tmp_path / "rec"
    recording.create("train.py", out, {})
    for name in ("12-34.wire", "machine.jsonl", "stacks-12-0.all.json", "seen/12"):
        (out / name).write_text("old")
    (out / "notes.txt").write_text("mine")
    recording.create("train.py", out, {})
    assert sorted(os.listdir(out)) == ["notes.txt", "recording.json", "seen", "torch", "trains"]
    assert os.listdir(out / "seen") == []


def test_a_folder_that_another_run_records_to_is_refused(tmp_path: Path) -> None:
    out = recording.create("train.py", tmp_path / "rec", {})
    other = live_launcher()
    try:
        recording.update(out, {"launcher_pid": other.pid})
        with pytest.raises(UnstallError, match="by another unstall run"):
            recording.create("train.py", out, {})
    finally:
        other.kill()
        other.wait()
    assert recording.create("train.py", out, {}) == out


def test_a_file_as_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rec").write_text("")
    with pytest.raises(UnstallError, match="is a file"):
        recording.create("train.py", tmp_path / "rec", {})


def test_a_place_that_cannot_be_written_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(UnstallError, match="cannot be recorded to"):
        recording.create("train.py", "/proc/nowhere/rec", {})


def test_an_unwritable_default_place_falls_back_to_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = recording.create("train.py", None, {"XDG_STATE_HOME": "/proc/nowhere"})
    assert folder.parent.parent == tmp_path.resolve()


def test_a_full_disk_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LEAST_FREE_BYTES", 1 << 62)
    with pytest.raises(UnstallError, match="is full"):
        recording.create("train.py", tmp_path / "rec", {})


def test_what_is_known_is_merged_and_leaves_no_half_file(tmp_path: Path) -> None:
    out = recording.create("train.py", tmp_path / "rec", {})
    recording.write_config(out, {"steps": 3})
    recording.update(out, {"spawn_ns": 1})
    recording.update(out, {"reap_ns": 2})
    known = json.loads((out / "recording.json").read_text())
    assert (known["format"], known["spawn_ns"], known["reap_ns"]) == (1, 1, 2)
    assert json.loads((out / "config.json").read_text()) == {"steps": 3}
    assert not list(out.glob("*.tmp"))
