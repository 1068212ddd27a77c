"""Trials write into a copy: the user's folder stays as it is."""

import os

import pytest

from unstall.launch import workspace
from unstall.launch.workspace import prepare
from unstall.model.errors import UnstallError


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "out").mkdir()
    (folder / ".git").mkdir()
    (folder / "train.py").write_text("print(1)\n")
    (folder / "data" / "images.bin").write_bytes(b"x" * 1000)
    (folder / "out" / "best.pt").write_bytes(b"weights")
    (folder / ".git" / "HEAD").write_text("ref")
    return folder


def test_what_a_trial_writes_does_not_reach_the_users_files(project, tmp_path):
    there = prepare("copy", project, tmp_path / "state", [], []).fresh()
    (there / "out" / "best.pt").write_bytes(b"of the trial")
    (there / "new.txt").write_text("new")
    assert (project / "out" / "best.pt").read_bytes() == b"weights"
    assert not (project / "new.txt").exists()


def test_each_trial_begins_with_the_files_as_they_are(project, tmp_path):
    space = prepare("copy", project, tmp_path / "state", [], [])
    (space.fresh() / "new.txt").write_text("new")
    there = space.fresh()
    assert not (there / "new.txt").exists() and (there / "train.py").read_text() == "print(1)\n"


def test_the_history_of_the_project_is_not_copied(project, tmp_path):
    assert not (prepare("copy", project, tmp_path / "state", [], []).fresh() / ".git").exists()


def test_shared_folders_are_linked_and_outputs_begin_empty(project, tmp_path):
    there = prepare("copy", project, tmp_path / "state", [project / "data"], [project / "out"]).fresh()
    assert os.path.samefile(there / "data" / "images.bin", project / "data" / "images.bin")
    assert list((there / "out").iterdir()) == []


def test_a_script_named_by_its_whole_path_runs_from_the_copy(project, tmp_path):
    space = prepare("copy", project, tmp_path / "state", [project / "data"], [])
    there = space.fresh()
    assert space.moved(str(project / "train.py"), there) == str(there / "train.py")
    assert space.moved("train.py", there) == "train.py"
    assert space.moved(str(project / "data" / "images.bin"), there) == str(project / "data" / "images.bin")
    assert space.moved("--epochs", there) == "--epochs"


def test_a_folder_too_large_to_copy_is_refused_and_named(project, tmp_path, monkeypatch):
    monkeypatch.setattr(workspace, "MOST_BYTES", 900)
    with pytest.raises(UnstallError, match="most of it in data") as refused:
        prepare("copy", project, tmp_path / "state", [], [])
    assert "--share" in str(refused.value) and "--workdir same" in str(refused.value)
    assert prepare("copy", project, tmp_path / "state", [project / "data"], []).copied_bytes < 900


def test_a_shared_folder_elsewhere_is_a_mistake(project, tmp_path):
    with pytest.raises(UnstallError, match="--share"):
        prepare("copy", project, tmp_path / "state", [tmp_path], [])


def test_in_the_folder_itself_nothing_is_copied(project, tmp_path):
    space = prepare("same", project, tmp_path / "state", [], [])
    assert space.fresh() == project.resolve()
    space.remove()
    assert (project / "train.py").exists()
