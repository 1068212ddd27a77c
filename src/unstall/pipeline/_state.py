"""Where a fix keeps its state, so that it can be resumed where it was ended."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unstall.launch import recording as recordings
from unstall.model.codec_fixed import proof_from_json, proof_to_json
from unstall.model.errors import UnstallError
from unstall.model.trial import Proof, Verdict
from unstall.pipeline._asked import FixOptions

STATE = "fix.json"
KEPT_FIXES = 20  # in the default place; older ones are removed


def save(
    folder: Path,
    words: Sequence[str],
    project: Path,
    proofs: Sequence[Proof],
    kept: Sequence[Proof],
    verdicts: Sequence[Verdict],
    spent_s: float,
) -> None:
    """Write the state.

    Args:
        verdicts: of all proofs that were made, in order; also of those that were left open and made again.
    Raises:
        OSError: When it cannot be written.
    """
    state = {
        "command": list(words),
        "cwd": str(project),
        "proofs": [proof_to_json(proof) for proof in proofs],
        "kept": [proof.remedy.id for proof in kept],
        "verdicts": [verdict.name for verdict in verdicts],
        "spent_s": spent_s,
    }
    recordings.write_json(folder / STATE, state)


def begun(options: FixOptions) -> tuple[Path, FixOptions, list[tuple[Proof, bool]]]:
    """Return the folder of the state, the options with the command in them, and earlier proofs, each with whether it stays."""
    if options.resume is None:
        return _new_folder(options), options, []
    state = recordings.read_json(options.resume / STATE)
    command, kept = state.get("command"), state.get("kept")
    if not isinstance(command, list) or not isinstance(kept, list):
        raise UnstallError(f"{options.resume} holds no fix that could be resumed: there is no {STATE} of ours in it.")
    if state.get("cwd") != str(Path.cwd().resolve()):
        raise UnstallError(f"The fix in {options.resume} is of {state.get('cwd')}; resume it from there.")
    words = tuple(str(word) for word in command)
    if options.command and options.command != words:
        raise UnstallError(f"The fix in {options.resume} is of another command: {' '.join(words)}")
    listed = state.get("proofs")
    proofs = [proof_from_json(record) for record in listed] if isinstance(listed, list) else []
    told = [proof for proof in proofs if proof.verdict is not Verdict.INCONCLUSIVE]  # the others are tried again
    return options.resume, replace(options, command=words), [(proof, proof.remedy.id in kept) for proof in told]


def verdicts(folder: Path | None) -> list[Verdict]:
    """Return the verdicts of the fix whose state *folder* holds, which the next alpha depends on; none for a new fix."""
    listed = recordings.read_json(folder / STATE).get("verdicts") if folder is not None else None
    return [Verdict[name] for name in listed if name in Verdict.__members__] if isinstance(listed, list) else []


def _new_folder(options: FixOptions) -> Path:
    if options.out is not None:
        folder = options.out
    else:
        state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        name = os.path.basename(options.command[0]) if options.command else "fix"
        folder = Path(state, "unstall", "fixes", f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if options.out is None:
            _remove_old(folder.parent)
    except OSError as error:
        raise UnstallError(
            f"{folder} cannot be made: {error.strerror}.\nPass a folder with room for some 100 MB with --out."
        ) from error
    return folder.resolve()


def _remove_old(place: Path) -> None:
    """Keep the newest fixes of the default place."""
    folders = sorted((each for each in place.iterdir() if each.is_dir()), key=lambda each: each.name)
    for folder in folders[:-KEPT_FIXES]:
        shutil.rmtree(folder, ignore_errors=True)
