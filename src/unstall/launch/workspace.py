"""The folder that a trial runs in: the user's own, or a copy of it that the trial may write to as it likes.

Trials start the training again and again; in the user's folder each would overwrite the checkpoints and logs of a run
that matters.  So each gets a fresh copy of the working folder.  Data that are only read can be linked instead
(*share*), and folders that the training writes begin empty (*outputs*).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unstall.model.errors import UnstallError

MOST_BYTES = 1 << 30  # copied in a few seconds; more is surely data
MOST_FILES = 20_000
LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".ruff_cache"})


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where trials run.

    Attributes:
        project: the user's working folder, absolute.
        place: folder in which copies are made; None to run in *project* itself.
        share: folders below *project* that copies link to; outputs: folders that begin empty.
        copied_bytes: of one copy.
    """

    project: Path
    place: Path | None
    share: tuple[Path, ...] = ()
    outputs: tuple[Path, ...] = ()
    copied_bytes: int = 0

    def fresh(self) -> Path:
        """Return a folder to run in, an older copy removed.

        Raises:
            UnstallError: When the copy cannot be made, as on a full disk.
        """
        if self.place is None:
            return self.project
        copy = self.place / "work" / self.project.name
        shutil.rmtree(copy.parent, ignore_errors=True)
        try:
            for folder, files in _walk(self.project, {*self.share, *self.outputs, self.place}):  # --out
                below = copy / folder.relative_to(self.project)
                below.mkdir(parents=True, exist_ok=True)
                for file in files:
                    _copy(file, below / file.name)
            for folder in self.share:
                _made(copy / folder.relative_to(self.project)).symlink_to(folder, target_is_directory=True)
            for folder in self.outputs:
                _made(copy / folder.relative_to(self.project)).mkdir()
        except OSError as error:
            raise UnstallError(
                f"{self.project} cannot be copied for a trial: {error.strerror or error} ({error.filename}).\n"
                "Make room, or run the trials in the folder itself with --workdir same."
            ) from error
        return copy

    def moved(self, path: str, there: Path) -> str:
        """Return where *path* lies for a trial that runs in *there*; paths outside the copied files stay."""
        given = Path(path)
        whole = given if given.is_absolute() else self.project / given
        if there == self.project or self.project not in whole.parents or any(s in whole.parents for s in self.share):
            return path
        return str(there / whole.relative_to(self.project)) if given.is_absolute() else path

    def remove(self) -> None:
        """Remove the copy."""
        if self.place is not None:
            shutil.rmtree(self.place / "work", ignore_errors=True)


def prepare(kind: str, project: Path, place: Path, share: Sequence[Path], outputs: Sequence[Path]) -> Workspace:
    """Return the workspace of trials of what runs in *project*.

    Args:
        kind: "copy" or "same".
        place: folder of ours, outside *project* or not, to make copies in.
    Raises:
        UnstallError: When the folder is too large to be copied for each trial, or a named folder is not below it.
    """
    project = project.resolve()
    if kind == "same":
        return Workspace(project, None)
    below = {name: tuple(_below(project, each, f"--{name}") for each in given) for name, given in
             (("share", share), ("outputs", outputs))}  # fmt: skip
    count = size = 0
    by_folder: dict[str, int] = {}
    for folder, files in _walk(project, {*below["share"], *below["outputs"], place}):
        parts = folder.relative_to(project).parts
        bytes_ = sum(_size(file) for file in files)
        by_folder[parts[0] if parts else "."] = by_folder.get(parts[0] if parts else ".", 0) + bytes_
        count, size = count + len(files), size + bytes_
        if size > MOST_BYTES or count > MOST_FILES:
            _refuse(project, by_folder, count)
    return Workspace(project, place, below["share"], below["outputs"], size)


def _refuse(project: Path, by_folder: dict[str, int], count: int) -> None:
    largest = max(by_folder, key=lambda name: by_folder[name])
    raise UnstallError(
        f"{project} holds more than a copy for each trial should ({count} files and {sum(by_folder.values()) >> 20} MB "
        f"as far as was counted, most of it in {largest}).\n"
        "Trials run in copies, so that your files stay as they are. Name folders that the training only reads with\n"
        "--share DIR (they are linked), those that it writes with --outputs DIR (they begin empty),\n"
        "or let the trials run in the folder itself with --workdir same."
    )


def _below(project: Path, given: Path, option: str) -> Path:
    whole = (given if given.is_absolute() else project / given).resolve()
    if project not in whole.parents:
        raise UnstallError(f"{option} {given}: it is not below {project}, so nothing has to be done about it.")
    if option == "--share" and not whole.is_dir():
        raise UnstallError(f"{option} {given}: there is no such folder.")
    return whole


def _walk(project: Path, without: set[Path]) -> Iterator[tuple[Path, list[Path]]]:
    """Yield each folder of *project* with its files; what is in *without*, or never part of a run, is left out."""
    for name, folders, files in os.walk(project):
        folder = Path(name)
        folders[:] = [
            each for each in folders
            if each not in LEFT_OUT and folder / each not in without and not (folder / each).is_symlink()
            and not (folder / each / "pyvenv.cfg").exists()
        ]  # fmt: skip
        links = [each for each in os.listdir(folder) if (folder / each).is_symlink() and (folder / each).is_dir()]
        yield folder, [folder / each for each in {*files, *links} - {*LEFT_OUT}]


def _copy(file: Path, to: Path) -> None:
    if file.is_symlink():
        to.symlink_to(file.resolve())  # mostly data elsewhere
    elif file.is_file():
        shutil.copy2(file, to)


def _size(file: Path) -> int:
    try:
        return 0 if file.is_symlink() else file.stat().st_size
    except OSError:
        return 0


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
