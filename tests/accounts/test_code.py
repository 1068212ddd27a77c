"""Whose code a file is."""

from __future__ import annotations

import pytest

from unstall.accounts.code import is_users


@pytest.mark.parametrize("part", ["probes/forward.py", "launch/inject/sitecustomize.py", "remedies/wrappers.py"])
def test_what_we_run_inside_the_training_is_not_the_users(part):
    assert not is_users(f"/home/someone/checkout/src/unstall/{part}")


@pytest.mark.parametrize("file", ["/work/train.py", "/work/remedies/wrappers.py", "/work/unstall_notes/remedies/a.py"])
def test_folders_of_such_names_elsewhere_are(file):
    assert is_users(file)
