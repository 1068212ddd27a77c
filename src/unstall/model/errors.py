"""Errors that a user can put right: one root, an exit code on it, shown without a traceback."""

from __future__ import annotations


class UnstallError(Exception):
    """What went wrong, what it means and what to do, in the user's words.

    Attributes:
        exit_code: What the command line returns; 2 unless a subclass says otherwise.
    """

    exit_code = 2


class NotARecording(UnstallError):
    """The folder or file is no recording of ours, or one that this version cannot read."""


class NothingRecorded(UnstallError):
    """The command ran, but no process reported a training."""
