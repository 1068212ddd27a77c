"""Make the folder that a run is recorded to, and write what the launcher knows into it."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from unstall.model.errors import UnstallError

FORMAT = 1  # of recording.json; raised when an older reader could misread it
KEPT = 20  # recordings in the default place; older ones are removed
LEAST_FREE_BYTES = 16 << 20  # below it a recording is refused before the training starts
FOLDERS = ("seen", "torch", "trains")
_OURS = re.compile(
    r"(config|recording|plan)\.json|output\.txt|(un)?met-.*|machine\.jsonl|.*\.wire|stacks-.*|stop.*|lost-.*|captured-.*"
)


def create(name: str, out: str | os.PathLike[str] | None, env: Mapping[str, str]) -> Path:
    """Make an empty recording folder and return its absolute path.

    Args:
        name: of the command, part of the default folder's name.
        out: the folder the user asked for; None for a new one in the default place,
            ``$XDG_STATE_HOME/unstall/runs`` (``~/.local/state`` where that is not set), of which the newest
            20 are kept.  Where the default place cannot be written it is the temporary folder.
    Raises:
        UnstallError: When *out* holds something else, or the place cannot be written or is full.
    """
    folder = _default_folder(name, env) if out is None else _asked_folder(Path(out))
    try:
        for part in FOLDERS:
            (folder / part).mkdir(exist_ok=True)
        write_json(folder / "recording.json", {"format": FORMAT, "launcher_pid": os.getpid(), "made": int(time.time())})
        if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    except OSError as error:
        raise _unwritable(folder, error) from error
    if out is None:
        _remove_old(folder.parent, folder)
    return folder


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    """Write config.json, what is asked of the probes.

    Raises:
        UnstallError: When the disk is full or the folder cannot be written.
    """
    try:
        write_json(folder / "config.json", config)
    except OSError as error:
        raise _unwritable(folder, error) from error


def update(folder: Path, known: Mapping[str, object]) -> None:
    """Merge *known* into recording.json, by an atomic rename.

    Raises:
        OSError: When it cannot be written.
    """
    write_json(folder / "recording.json", {**read_json(folder / "recording.json"), **known})


def read_json(path: Path) -> dict[str, object]:
    """Return the JSON object in *path*; empty where there is none that can be read."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, record: Mapping[str, object]) -> None:
    """Write *record* so that a reader sees the old file or the new one, never half of it."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(json.dumps(record, indent=1, default=str) + "\n", "utf-8")
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def is_recording(folder: Path) -> bool:
    """Return whether *folder* was made by us."""
    return isinstance(read_json(folder / "recording.json").get("format"), int)


def _default_folder(name: str, env: Mapping[str, str]) -> Path:
    state = env.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:40] or "run"
    leaf = f"{time.strftime('%Y%m%d-%H%M%S')}-{plain}-{os.getpid()}"
    try:
        return _new_folder(Path(state, "unstall", "runs"), leaf)
    except OSError:  # a read-only home is common in containers
        place = Path(tempfile.gettempdir(), f"unstall-{os.getuid()}")
    try:
        return _new_folder(place, leaf)
    except OSError as error:
        raise _unwritable(place, error) from error


def _new_folder(place: Path, leaf: str) -> Path:
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in range(1, 1000):
        folder = place / (leaf if number == 1 else f"{leaf}-{number}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return folder.resolve()
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place / leaf))


def _asked_folder(folder: Path) -> Path:
    """Return the folder that the user asked for, emptied of an older recording."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.listdir(folder)
    except (FileExistsError, NotADirectoryError) as error:
        raise UnstallError(f"{folder} is a file, not a folder.\nPass another place with --out.") from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    if held and not is_recording(folder):
        raise UnstallError(
            f"{folder} holds {len(held)} files and is no recording of unstall; nothing was changed in it.\n"
            "Pass an empty or a new folder with --out."
        )
    if held and is_live(folder):
        raise UnstallError(f"{folder} is being recorded to by another unstall run.\nPass another folder with --out.")
    try:
        _clear(folder, held)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder.resolve()


def _clear(folder: Path, held: list[str]) -> None:
    """Remove the files of an older recording; what else lies there stays."""
    for name in held:
        if name in FOLDERS:
            shutil.rmtree(folder / name)
        elif _OURS.fullmatch(name) and (folder / name).is_file():
            (folder / name).unlink()


def is_live(folder: Path) -> bool:
    """Return whether the launcher that made *folder* has neither ended the recording nor died."""
    known = read_json(folder / "recording.json")
    launcher = known.get("launcher_pid")
    if "reap_ns" in known or not isinstance(launcher, int) or launcher == os.getpid():
        return False
    try:
        os.kill(launcher, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _remove_old(place: Path, newest: Path) -> None:
    """Keep the newest recordings in the default place; never one that is still being written."""
    try:
        folders = sorted((f for f in place.iterdir() if f.is_dir() and f != newest), key=lambda f: f.stat().st_mtime_ns)
    except OSError:
        return
    for folder in folders[: max(0, len(folders) - KEPT + 1)]:
        if is_recording(folder) and not is_live(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _unwritable(folder: Path, error: OSError) -> UnstallError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        why = "The disk (or your quota on it) is full"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        why = "It is read-only for you"
    else:
        why = str(error.strerror or error)
    return UnstallError(f"{folder} cannot be recorded to. {why}.\nPass a folder with room for some 100 MB with --out.")
