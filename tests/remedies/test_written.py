"""Edits written into a project: patches that git takes, files that are never touched, and files changed in place."""

import os
import stat
import subprocess

import pytest

from unstall.model.errors import UnstallError
from unstall.model.remedy import RemoveCall, SetEnvironment, SetKeyword
from unstall.remedies import written as module
from unstall.remedies.override import environment
from unstall.remedies.patch import patched
from unstall.remedies.written import apply, apply_command, check_patch_file, patch_of, save_patch, written

LOADER = "torch.utils.data.DataLoader"
SOURCE = "from torch.utils.data import DataLoader\n\nloader = DataLoader(rows, batch_size=4)\n"
AFTER = "from torch.utils.data import DataLoader\n\nloader = DataLoader(rows, batch_size=4, num_workers=2)\n"


def workers(file, line=3, value=2):
    return SetKeyword(str(file), line, LOADER, "num_workers", value)


def git(folder, *words):
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def tree(tmp_path):
    """A git work tree with a script, and a package whose path holds a space."""
    (tmp_path / "my package").mkdir()
    for name in ("train.py", "my package/data é.py"):
        (tmp_path / name).write_bytes(SOURCE.encode())
    git(tmp_path, "init", "-q")
    return tmp_path


def save(found, working, name="unstall.patch"):
    patch = working / name
    save_patch(patch_of(found, patch, working, ["proved: 3.05x"]), patch)
    return patch


def test_a_patch_of_several_files_is_taken_by_git_and_gives_what_patched_gives(tree):
    names = ["train.py", "my package/data é.py"]
    found = written([workers(name) for name in names], tree)
    save(found, tree)
    git(tree, "apply", "--check", "unstall.patch")
    subprocess.run(apply_command(found, tree / "unstall.patch", tree), shell=True, cwd=tree, check=True)
    for name in names:
        assert (tree / name).read_text() == AFTER == patched(SOURCE, [workers(name)], name)


@pytest.mark.parametrize(
    "raw",
    [
        SOURCE.replace("\n", "\r\n").encode(),
        SOURCE.removesuffix("\n").encode(),
        b"\xef\xbb\xbf" + SOURCE.encode(),
        b"# -*- coding: latin-1 -*-\n" + SOURCE.replace("\n\n", "\nname = 'caf\u00e9'\n").encode("latin-1"),
        SOURCE.replace("\n\n", "\n# caf\u00e9 \u2192\n").encode(),
    ],
    ids=["crlf", "no newline at the end", "byte order mark", "latin-1", "utf-8"],
)
def test_bytes_outside_the_edited_call_stay_as_they_were(tree, raw):
    (tree / "train.py").write_bytes(raw)
    line = raw.split(b"DataLoader(")[0].count(b"\n") + 1
    found = written([workers("train.py", line)], tree)
    save(found, tree)
    git(tree, "apply", "unstall.patch")
    expected = raw.replace(b"batch_size=4", b"batch_size=4, num_workers=2")
    assert (tree / "train.py").read_bytes() == expected == found.changes[0].after


def test_the_patch_is_against_what_is_on_disk_not_against_what_is_committed(tree):
    git(tree, "add", ".")
    git(tree, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "first")
    (tree / "train.py").write_text("import os\n" + SOURCE)
    save(written([workers("train.py", 4)], tree), tree)
    git(tree, "apply", "unstall.patch")
    assert (tree / "train.py").read_text() == "import os\n" + AFTER


def test_from_a_folder_below_the_tree_git_applies_it_and_does_not_pass_over_it(tree):
    below = tree / "my package"
    found = written([workers("data é.py")], below)
    patch = save(found, below)
    assert apply_command(found, patch, below) == "git apply unstall.patch"
    git(below, "apply", "unstall.patch")
    assert (below / "data é.py").read_text() == AFTER


def test_a_file_beside_the_working_folder_is_patched_from_the_top_of_the_tree(tree):
    below = tree / "my package"
    found = written([workers("data é.py"), workers("../train.py")], below)
    patch = save(found, below)
    subprocess.run(apply_command(found, patch, below), shell=True, cwd=below, check=True)
    assert (tree / "train.py").read_text() == (below / "data é.py").read_text() == AFTER
    assert apply_command(found, patch, below) in patch.read_text().splitlines()[0]


def test_without_git_names_are_taken_from_the_working_folder(tmp_path):
    (tmp_path / "train.py").write_text(SOURCE)
    found = written([workers(tmp_path / "train.py")], tmp_path)
    save(found, tmp_path)
    assert [change.name for change in found.changes] == ["train.py"]
    subprocess.run(["git", "apply", "unstall.patch"], cwd=tmp_path, check=True, env={**os.environ, "GIT_DIR": "none"})
    assert (tmp_path / "train.py").read_text() == AFTER


@pytest.mark.parametrize(
    "name, why",
    [
        (".venv/lib/python3.11/site-packages/pkg/data.py", "installed package"),
        ("lib/python3.12/data.py", "installed package"),
        ("../elsewhere.py", "outside the project"),
        ("gone.py", "cannot be read"),
        ("wrong.py", "encoding"),
    ],
)
def test_what_is_not_the_projects_own_text_is_refused_and_the_rest_written(tmp_path, name, why):
    project = tmp_path / "project"
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    if name != "gone.py":
        (project / name).write_bytes(b"# \xff\n\n" + SOURCE.encode() if name == "wrong.py" else SOURCE.encode())
    (project / "train.py").write_text(SOURCE)
    found = written([workers(name), workers("train.py")], project)
    assert [change.name for change in found.changes] == ["train.py"]
    assert why in found.refused[0].why
    assert found.refused[0].edit == workers(name)


def test_a_script_outside_the_working_folder_makes_its_folder_the_project(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "train.py").write_text(SOURCE)
    assert not written([workers("../train.py")], tmp_path / "here").changes
    found = written([workers("../train.py")], tmp_path / "here", tmp_path / "train.py")
    assert found.root == tmp_path
    assert found.changes[0].after == AFTER.encode()


def test_an_edit_that_cannot_be_made_does_not_keep_others_of_its_file_away(tmp_path):
    (tmp_path / "train.py").write_text(SOURCE)
    found = written([workers("train.py", line=1), workers("train.py"), SetEnvironment("A", "1")], tmp_path)
    assert [refused.edit.line for refused in found.refused] == [1]
    assert found.changes[0].after == AFTER.encode()
    assert environment([workers("train.py"), SetEnvironment("A", "1"), SetEnvironment("A", "2")]) == {"A": "2"}


def test_a_link_is_followed_so_the_file_itself_is_changed(tmp_path):
    (tmp_path / "real.py").write_text(SOURCE)
    (tmp_path / "train.py").symlink_to("real.py")
    found = written([workers("train.py")], tmp_path)
    apply(found)
    assert (tmp_path / "train.py").is_symlink()
    assert (tmp_path / "real.py").read_text() == AFTER


def test_edits_that_hold_already_make_no_patch(tmp_path):
    (tmp_path / "train.py").write_text(AFTER)
    found = written([workers("train.py"), RemoveCall("train.py", 2, "gc.collect")], tmp_path)
    assert not found.changes and not found.refused
    assert patch_of(found, tmp_path / "unstall.patch", tmp_path) == ""


def test_a_patch_of_ours_is_overwritten_and_anything_else_is_not(tree):
    found = written([workers("train.py")], tree)
    save(found, tree)
    save(found, tree)
    (tree / "own.patch").write_text("diff --git a/x b/x\n")
    with pytest.raises(UnstallError, match="not overwritten"):
        save(found, tree, "own.patch")
    assert (tree / "own.patch").read_text() == "diff --git a/x b/x\n"
    check_patch_file(tree / "new.patch")
    for bad in ("my package", "no/such.patch"):
        with pytest.raises(UnstallError, match="folder"):
            check_patch_file(tree / bad)


def test_applying_keeps_the_mode_and_a_backup_and_no_backup_is_lost(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SOURCE)
    script.chmod(0o755)
    assert apply(written([workers("train.py")], tmp_path)) == {"train.py": "train.py.orig"}
    assert script.read_text() == AFTER
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert apply(written([workers("train.py", value=3)], tmp_path)) == {"train.py": "train.py.orig2"}
    assert (tmp_path / "train.py.orig").read_text() == SOURCE
    assert (tmp_path / "train.py.orig2").read_text() == AFTER


def test_a_file_that_changed_after_the_trials_is_left_alone(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(SOURCE)
    found = written([workers("a.py"), workers("b.py")], tmp_path)
    (tmp_path / "b.py").write_text("import os\n" + SOURCE)
    with pytest.raises(UnstallError, match="changed meanwhile"):
        apply(found)
    assert (tmp_path / "a.py").read_text() == SOURCE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "b.py"]


def test_a_failure_half_way_leaves_every_file_as_it_was(tmp_path, monkeypatch):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(SOURCE)
    found = written([workers("a.py"), workers("b.py")], tmp_path)
    whole = module.Path.replace

    def replace(part, target):
        if target.name == "b.py" and part.name.endswith(".part"):
            raise OSError(28, "No space left on device", str(part))
        return whole(part, target)

    monkeypatch.setattr(module.Path, "replace", replace)
    with pytest.raises(UnstallError, match="No space left"):
        apply(found)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.py": SOURCE, "b.py": SOURCE}
