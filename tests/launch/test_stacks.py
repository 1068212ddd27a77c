"""Stacks are sampled from outside, in windows; where that is refused it is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unstall.launch import stacks
from unstall.launch.stacks import Stacks

pytestmark = pytest.mark.skipif(stacks.find_binary() is None, reason="py-spy is not installed")
BUSY = "import threading, time\ndef spin():\n    until = time.monotonic() + 1.5\n    while time.monotonic() < until: pass\nspin()\n"
SECOND_NS = 1_000_000_000


def fake_sampler(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put *text*, a shell script, in the place of py-spy."""
    fake = tmp_path / "fake-sampler"
    fake.write_text(f"#!/bin/sh\n{text}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(stacks, "find_binary", lambda: str(fake))


def tick_until_refused(sampling: Stacks) -> None:
    until = time.monotonic() + 20
    while sampling.refused is None and time.monotonic() < until:
        sampling.tick(time.monotonic_ns(), set())
        time.sleep(0.01)


@pytest.fixture
def target(tmp_path: Path) -> subprocess.Popen[bytes]:
    (tmp_path / "busy.py").write_text(BUSY)
    process = subprocess.Popen([sys.executable, str(tmp_path / "busy.py")])
    time.sleep(0.2)
    return process


def test_a_busy_function_is_found_in_all_three_files(tmp_path: Path, target: subprocess.Popen[bytes]) -> None:
    sampling = Stacks(tmp_path)
    before = time.monotonic_ns()
    sampling.attach(target.pid, target.pid, "main", before)
    target.wait()
    sampling.finish()
    assert sampling.refused is None
    stem = f"stacks-{target.pid}-0"
    sidecar = json.loads((tmp_path / f"{stem}.json").read_text())
    assert (sidecar["pid"], sidecar["thread"], sidecar["hz"]) == (target.pid, target.pid, 100)
    assert before <= sidecar["spawn_ns"] <= time.monotonic_ns()
    events = json.loads((tmp_path / f"{stem}.all.json").read_text())
    (label,) = {event["name"] for event in events if event["name"].startswith("thread (")}
    assert label.endswith("): MainThread")
    if sys.version_info >= (3, 11):  # before, the sampler knows the address of a thread and not its native id
        assert label.startswith(f"thread ({target.pid})")
    assert "spin" in {event["name"] for event in events}
    for part in ("gil", "active"):
        assert label in (tmp_path / f"{stem}.{part}.txt").read_text()
        assert "spin (" in (tmp_path / f"{stem}.{part}.txt").read_text()
    assert sampling.cpu_ns > 0
    assert not list(tmp_path.glob("*.err"))


def test_a_worker_gets_one_sampler(tmp_path: Path, target: subprocess.Popen[bytes]) -> None:
    sampling = Stacks(tmp_path)
    sampling.attach(target.pid, target.pid, "worker", time.monotonic_ns())
    target.wait()
    sampling.finish()
    assert {p.name.partition(f"{target.pid}-0.")[2] for p in tmp_path.glob("stacks-*")} == {"all.json", "json"}


def test_a_sampler_whose_process_lives_on_is_told_to_write(tmp_path: Path) -> None:
    target = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(0.01)"])
    try:
        sampling = Stacks(tmp_path)
        sampling.attach(target.pid, target.pid, "main", time.monotonic_ns())
        time.sleep(1)
        samplers = sampling.pids
        sampling.finish(wait_s=0)
        assert (tmp_path / f"stacks-{target.pid}-0.all.json").stat().st_size > 2
        assert len(samplers) == 3
        assert not any(Path(f"/proc/{pid}").exists() for pid in samplers)
    finally:
        target.kill()
        target.wait()


def test_a_forbidden_process_is_a_refusal_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sampler(
        tmp_path, 'echo "Permission Denied: Try running again with elevated permissions" >&2; exit 1', monkeypatch
    )
    sampling = Stacks(tmp_path)
    sampling.attach(os.getpid(), os.getpid(), "main", time.monotonic_ns())
    tick_until_refused(sampling)
    assert sampling.refused is not None
    assert "may not read the training's memory" in sampling.refused
    assert (tmp_path / "stacks-refused").read_text().strip() == sampling.refused
    sampling.finish()


def test_another_failure_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sampler(
        tmp_path, f'echo x >> {tmp_path}/starts; echo "Error: Failed to find python version" >&2; exit 1', monkeypatch
    )
    sampling = Stacks(tmp_path)
    sampling.attach(os.getpid(), os.getpid(), "main", time.monotonic_ns())
    tick_until_refused(sampling)
    assert sampling.refused == "py-spy failed: Failed to find python version"
    sampling.finish()
    assert (tmp_path / "starts").read_text().count("x") == 6


def test_a_process_that_has_ended_is_no_refusal(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    sampling = Stacks(tmp_path)
    sampling.attach(ended.pid, ended.pid, "main", time.monotonic_ns())
    sampling.finish()
    assert sampling.refused is None


def test_windows_follow_one_another_for_ten_minutes_then_come_each_ten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_sampler(tmp_path, "exit 0", monkeypatch)
    sampling = Stacks(tmp_path)
    sampling.attach(os.getpid(), os.getpid(), "main", 0)
    starts = {0}
    for second in range(1, 3000):
        before = len(list(tmp_path.glob("stacks-*-*.json")))
        sampling.tick(second * SECOND_NS, {os.getpid()})
        if len(list(tmp_path.glob("stacks-*-*.json"))) > before:
            starts.add(second)
    sampling.finish()
    assert sorted(starts) == [0, *range(30, 600, 60), 1170, 1770, 2370, 2970]


def test_a_process_that_turns_out_not_to_train_gets_one_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sampler(tmp_path, "exit 0", monkeypatch)
    sampling = Stacks(tmp_path)
    sampling.attach(os.getpid(), os.getpid(), "main", 0)
    sampling.tick(61 * SECOND_NS, {os.getpid() + 1})
    assert len(list(tmp_path.glob("stacks-*-*.json"))) == 1
    sampling.tick(62 * SECOND_NS, set())
    assert len(list(tmp_path.glob("stacks-*-*.json"))) == 2
    sampling.finish()
