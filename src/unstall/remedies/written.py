"""Edits written into a project: as a patch over several files, or into the files themselves.

All is against what lies on disk, committed or not.  Nothing outside the project is ever changed, and no file of an
installed package.  Files are read and written as bytes: line ends, byte order marks and encodings stay as they were.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unstall.model.errors import UnstallError
from unstall.model.remedy import Edit, SetEnvironment, SourceEdit
from unstall.remedies.patch import NotPatchable, patched, unified_diff

HEAD = "# A patch of unstall fix."  # its first words; what does not begin so is not ours to overwrite
BACKUP = ".orig"
_INSTALLED = re.compile(r"/(?:site-packages|dist-packages|lib(?:64)?/python3(?:\.\d+)?)/")


@dataclass(frozen=True, slots=True)
class Change:
    """One file that edits change.

    Attributes:
        path: the file itself, links followed. name: its path from the root of the patch, with slashes.
        before, after: its bytes on disk, and with the edits.
    """

    path: Path
    name: str
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """An edit that is not written, and why."""

    edit: SourceEdit
    why: str


@dataclass(frozen=True, slots=True)
class Written:
    """What edits come to on disk.

    Attributes:
        root: folder that names in the patch are taken from: the git work tree's, else the project's.
        changes: by name; files in which all edits hold already are left out.
    """

    root: Path
    changes: tuple[Change, ...] = ()
    refused: tuple[Refused, ...] = ()


def written(
    edits: Sequence[Edit], working: Path, script: Path | None = None, command: Sequence[str] | None = None
) -> Written:
    """Return what *edits* of source come to in the files on disk; nothing is written.

    The project is the git work tree that holds the folder *working*, or that folder where there is none; if *script*
    lies outside it, that of the script.  Relative names are taken from *working*.  An edit that cannot be carried out,
    or whose file is outside the project or of an installed package, is refused and the others are kept.

    Args:
        command: the words that start the training, as `patched` takes them.
    """
    root = _project(working, script)
    by_file: dict[Path, list[SourceEdit]] = {}
    for edit in edits:
        if not isinstance(edit, SetEnvironment):
            by_file.setdefault(Path(os.path.realpath(working / edit.file)), []).append(edit)
    changes: list[Change] = []
    refused: list[Refused] = []
    for path, of_file in sorted(by_file.items()):
        why = _not_ours(path, root)
        if why:
            refused += [Refused(edit, why) for edit in of_file]
            continue
        change = _change(path, path.relative_to(root).as_posix(), of_file, refused, command)
        if change is not None and change.after != change.before:
            changes.append(change)
    return Written(root, tuple(changes), tuple(refused))


def patch_of(found: Written, patch: Path, working: Path, about: Sequence[str] = ()) -> str:
    """Return the text of the patch, or "" where no file changes.

    It begins with a few lines that git passes over: that it is ours, the command that applies it, and *about*.  Bytes
    that are no UTF-8 stand in it as lone surrogates (PEP 383), which `save_patch` turns back into those bytes.
    """
    if not found.changes:
        return ""
    diff = unified_diff({change.name: (_shown(change.before), _shown(change.after)) for change in found.changes})
    head = f"{HEAD} Apply it with:  {apply_command(found, patch, working)}\n"
    return head + "".join(f"# {line}\n" for line in about) + f"\n{diff}"


def apply_command(found: Written, patch: Path, working: Path) -> str:
    """Return the shell command that applies *patch*, to be given in the folder *working*.

    From a folder below its work tree git passes silently over files that are not below that folder; then it is told
    where to go.
    """
    here, absolute = Path(os.path.realpath(working)), Path(os.path.realpath(working / patch))
    if all(change.path.is_relative_to(here) for change in found.changes) and here.is_relative_to(found.root):
        return f"git apply {shlex.quote(os.path.relpath(absolute, here))}"
    return f"git -C {shlex.quote(str(found.root))} apply {shlex.quote(str(absolute))}"


def check_patch_file(patch: Path) -> None:
    """Say before the trials that the patch could not be written after them.

    Raises:
        UnstallError: When *patch* is a folder, lies in none, or holds something that `save_patch` did not write.
    """
    if patch.is_dir():
        raise UnstallError(f"{patch}: is a folder; --patch takes the name of a file.")
    if not patch.parent.is_dir():
        raise UnstallError(f"{patch.parent}: there is no such folder, so no patch could be written to {patch.name}.")
    try:
        with patch.open("rb") as file:
            head = file.read(len(HEAD))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnstallError(f"{patch}: cannot be read ({error.strerror}), so it is not overwritten.") from error
    if head and head != HEAD.encode():
        raise UnstallError(
            f"{patch}: is there already and was not written by unstall fix, so it is not overwritten.\n"
            "Name another file with --patch."
        )


def save_patch(text: str, patch: Path) -> None:
    """Write the patch, all of it or nothing.

    Raises:
        UnstallError: As `check_patch_file`, and when it cannot be written.
    """
    check_patch_file(patch)
    part = patch.with_name(f".{patch.name}.{os.getpid()}.part")
    try:
        part.write_bytes(text.encode("utf-8", "surrogateescape"))
        part.replace(patch)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise UnstallError(f"{patch}: the patch could not be written ({error.strerror}).") from error


def apply(found: Written) -> Mapping[str, str]:
    """Write the changes into the files, all of them or none; return the name of each file's backup by the file's.

    What a file was is kept beside it as NAME.orig, or NAME.orig2 and so on where that is taken.  A file keeps its mode
    and is replaced in one step, so that no reader meets half of it.

    Raises:
        UnstallError: When a file has changed since *found* was made, or cannot be written; nothing is changed then.
    """
    for change in found.changes:
        if change.path.read_bytes() != change.before:
            raise UnstallError(
                f"{change.path}: has changed meanwhile, so nothing was applied. The patch has what was proved."
            )
        if not os.access(change.path, os.W_OK):
            raise UnstallError(f"{change.path}: is read-only, so nothing was applied. The patch has what was proved.")
    parts: list[Path] = []
    backups: dict[Path, Path] = {}
    try:
        for change in found.changes:
            parts.append(_beside(change))
        for change in found.changes:
            backups[change.path] = _backup(change.path)
        for change, part in zip(found.changes, parts):
            part.replace(change.path)
    except OSError as error:
        _undo(found, parts, backups)
        raise UnstallError(f"{error.filename}: {error.strerror}. Nothing was applied.") from error
    return {change.name: Path(change.name).with_name(backups[change.path].name).as_posix() for change in found.changes}


def _project(working: Path, script: Path | None) -> Path:
    here = _tree_of(Path(os.path.realpath(working)))
    if script is None:
        return here
    there = Path(os.path.realpath(working / script))
    return here if there.is_relative_to(here) else _tree_of(there.parent)


def _tree_of(folder: Path) -> Path:
    """Return the git work tree that holds *folder*, or the folder itself."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def _not_ours(path: Path, root: Path) -> str:
    """Return why a file is not to be changed, or ""."""
    if _INSTALLED.search(path.as_posix()):
        return "it is a file of an installed package"
    return "" if path.is_relative_to(root) else f"it lies outside the project, {root}"


def _change(
    path: Path,
    name: str,
    edits: list[SourceEdit],
    refused: list[Refused],
    command: Sequence[str] | None,
) -> Change | None:
    """Return the file with those of *edits* that can be carried out; the others go to *refused*."""
    try:
        before = path.read_bytes()
        encoding = tokenize.detect_encoding(io.BytesIO(before).readline)[0]
        source = before.decode(encoding)
    except OSError as error:
        why = f"it cannot be read ({error.strerror})"
    except (SyntaxError, UnicodeDecodeError) as error:
        why = f"it is no text in the encoding that it states ({error})"
    else:
        why = (
            "" if source.encode(encoding) == before else f"its encoding, {encoding}, does not give the same bytes back"
        )
    if why:
        refused += [Refused(edit, why) for edit in edits]
        return None
    left = {id(edit): replace(edit, file=str(path)) for edit in edits}
    while True:
        try:
            after = patched(source, list(left.values()), path, command)
        except NotPatchable as error:
            bad = next(key for key, edit in left.items() if edit is error.edit)
            del left[bad]
            refused.append(Refused(next(edit for edit in edits if id(edit) == bad), error.why))
        else:
            return Change(path, name, before, after.encode(encoding))


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _beside(change: Change) -> Path:
    """Write the new content to a file beside the old one, with its mode."""
    part = change.path.with_name(f".{change.path.name}.{os.getpid()}.part")
    with _removed_on_error(part), part.open("wb") as file:
        file.write(change.after)
        file.flush()
        os.fsync(file.fileno())
        shutil.copymode(change.path, part)
    return part


def _backup(path: Path) -> Path:
    for number in range(1, 1000):
        backup = path.with_name(f"{path.name}{BACKUP}{number if number > 1 else ''}")
        try:
            backup.touch(exist_ok=False)
        except FileExistsError:
            continue
        with _removed_on_error(backup):
            shutil.copy2(path, backup)
        return backup
    raise FileExistsError(17, "a thousand backups lie beside it", str(path))


@contextlib.contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def _undo(found: Written, parts: Sequence[Path], backups: Mapping[Path, Path]) -> None:
    """Put back what was replaced, and take away what was written for it."""
    for change in found.changes:
        backup = backups.get(change.path)
        with contextlib.suppress(OSError):
            if backup is not None:
                backup.replace(change.path)
    for part in parts:
        with contextlib.suppress(OSError):
            part.unlink()
