"""What a plain `pytest` really trains: a few of the planted trainings, other ones at each commit."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

SHARE = 4  # causes whose planted trainings run without being asked for; all of them take too long for every commit


def key():
    """Return what decides which causes are drawn: the commit, so that it can be done again."""
    given = os.environ.get("UNSTALL_PLANTED_KEY")
    if given:
        return given
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no commit"


def drawn(ids, by):
    """Return SHARE of *ids*, by the hash of each with *by*."""
    return set(sorted(ids, key=lambda name: hashlib.sha256(f"{by} {name}".encode()).digest())[:SHARE])


def pytest_configure(config):
    config.addinivalue_line("markers", "planted(cause): really trains, for that cause")


def pytest_report_header(config):
    return f"planted trainings: {SHARE} causes drawn by UNSTALL_PLANTED_KEY={key()}; all of them by -m slow"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Take the drawn ones out of the slow ones, where the slow ones would be left out."""
    if config.option.markexpr != "not slow":
        return
    planted = [(item, mark.args[0]) for item in items if (mark := item.get_closest_marker("planted"))]
    chosen = drawn({cause for _, cause in planted}, key())
    for item, cause in planted:
        if cause in chosen:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "slow"]
